// All ranks of a run: processes x threads x ranks per thread. Makes their communicators, and coordinates what is not
// measured: barriers and the sums of times and errors, among threads by std::barrier and among processes by a
// communicator of its own.
#pragma once

#include <tutti/tutti.h>

#include <barrier>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "library.hpp"
#include "options.hpp"

namespace perf {

/// Says why on the standard error and ends the process.
[[noreturn]] void fail(ExitCode code, const std::string& why);

/// Does nothing on success. Otherwise prints `rank R: ` (unless rank < 0) and the library's text, and ends the process
/// with 4 after a time-out and 3 after any other error.
void expect(tuttiResult_t result, tuttiComm_t comm, int rank);

/// Is called with the reason before fail() or expect() end the process.
void on_failure(std::function<void(const std::string&)> listener);

class World {
  public:
    /// Joins the other processes and, unless the threads are to do it in parallel, makes all of this one's
    /// communicators.
    explicit World(const Options& options);

    int ranks() const { return processes_ * local_ranks_; }
    int local_ranks() const { return local_ranks_; }
    int processes() const { return processes_; }
    int process() const { return process_; }
    bool is_main(int thread) const { return process_ == 0 && thread == 0; }

    /// Of a thread of this process. The first call makes the communicators if that was left to the threads.
    int first_rank(int thread) const { return process_ * local_ranks_ + thread * ranks_per_thread_; }
    std::span<tuttiComm_t> join(int thread);

    /// The library to race against, or nullptr; why there is none although one was asked for.
    const Library* rival() const { return rival_refusal_.empty() ? rival_.get() : nullptr; }
    const std::string& rival_refusal() const { return rival_refusal_; }
    const Library* loaded_rival() const { return rival_.get(); }
    std::span<const tuttiComm_t> rival_comms(int thread) const;

    /// The GPU of one of this process's ranks: those of a host take turns. -1: it is on the CPU.
    int device_of(int rank) const;

    // Called by all threads of all processes.
    void barrier(int thread);
    void combine(int thread, std::span<double> values, tuttiRedOp_t how);
    double combine(int thread, double value, tuttiRedOp_t how);

    /// One line of each process, in order. Called by one thread of each process.
    std::vector<std::string> gather(const std::string& line);

    /// Called by one thread after all have ended.
    void leave();

    /// As fail(), for what all processes find alike, called by one thread of each before the threads begin: no other
    /// process takes the end of this one for a death.
    [[noreturn]] void give_up(ExitCode code, const std::string& why);

  private:
    tuttiConfig_t config(int rank) const;  // -1: of the communicator of the processes, which is on the CPU
    void share(tuttiUniqueId& id);
    void init_rival();
    void make_communicators();
    void init(int first, int count);
    void among_processes(std::span<double> values, tuttiRedOp_t how);

    const Options options_;
    int threads_;
    int ranks_per_thread_;
    int local_ranks_;
    int processes_ = 1;
    int process_ = 0;
    tuttiComm_t processes_comm_ = nullptr;  // one rank per process
    std::vector<tuttiComm_t> comms_;        // this process's ranks
    tuttiUniqueId id_{};
    std::unique_ptr<const Library> rival_;
    std::string rival_refusal_;
    std::vector<tuttiComm_t> rival_comms_;
    std::barrier<> threads_barrier_;
    std::vector<std::vector<double>> of_threads_;
    std::vector<double> combined_;
};

}  // namespace perf
