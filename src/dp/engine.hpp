// The data-parallel layer of one rank: begin(), grad_ready() for every parameter, synchronize(), step(). Its parts:
//
//     Ranks, Attendance     communicators, and what ranks agree on; config.join: which ranks still have batches
//     Backends, Storage     memory of the host or a GPU, and arithmetic there; buckets: gradients, values, states
//     Iteration, LossScale  which gradients are ready, and which buckets may be reduced; whether a step is made
//     Reducer, Updater      reduces gradients and distributes new values; updates the elements that this rank owns
//     Units, Versions       ZeRO-3: gathers and releases values; asynchronous modes: received values, steps under way
//     Handover              moves data to its new owners when ranks die or join
//     Statistics, Trace, Worker (the thread that runs jobs); Saves, checkpoint.hpp
//
// Reductions are jobs of the Worker. On a GPU they only enqueue work, in the calling thread (asynchronous modes: in a
// thread and a stream of their own). Each rank has its own backends, so ranks on CPUs and on GPUs can work together.
#pragma once

#include <functional>
#include <optional>

#include "dp/attendance.hpp"
#include "dp/handover.hpp"
#include "dp/saves.hpp"
#include "dp/statistics.hpp"
#include "dp/units.hpp"
#include "dp/versions.hpp"

namespace tutti::dp {

/// Owned by a tuttiDp_t; threads as dp.h says of that. A function without a comment is the C API's of the same name.
class Engine {
  public:
    /// What this rank registers; if its arguments were refused, the error to report to all ranks.
    struct Request {
        Registration registration;
        std::optional<Error> refusal;
    };
    /// Collective: if one rank refuses, the constructor throws on all ranks. comm must outlive this.
    Engine(Request request, tuttiComm_t comm);
    ~Engine();

    /// Returns the parameter's number. Throws tuttiInvalidArgument if there is no such parameter.
    std::size_t checked(std::size_t parameter, const char* function) const;
    void* gradient(std::size_t parameter);
    void* data(std::size_t parameter);
    void begin();
    void follow_the_others();  // Join
    void no_sync(bool on);
    void grad_ready(std::size_t parameter, const void* made_at = nullptr);  // nullptr: where gradient() says
    void synchronize();
    double clip(double limit, bool by_value);
    bool unscale();
    void reset_error_feedback();
    void step();
    void wait();
    void set_learning_rate(double rate) { registration_.options.optimizer.learningRate = rate; }
    void set_group(std::size_t group, const tuttiDpGroup_t& its);
    const LossScale& loss_scale() const { return loss_scale_; }
    void gather(int unit);
    void release(int unit);
    void broadcast(int root);
    void check_equal();
    void find_bad(int* rank, std::size_t* parameter);
    void save(const char* path, bool beside);  // SaveAsync, too
    void save_wait();
    const Notes& notes() const { return notes_; }
    void set_note(const char* key, const char* text);  // nullptr: removes it
    void load(const char* path);
    void move(tuttiComm_t comm);
    void abandon();
    tuttiDpMemory_t memory() const;
    tuttiDpStatistics_t statistics() const { return statistics_.all(); }
    tuttiDpBucketStatistics_t bucket_statistics(std::size_t bucket) const;
    void write_trace(const char* path) const;

  private:
    using Phase = Iteration::Phase;
    const Options& options() const { return registration_.options; }
    const std::vector<Parameter>& parameters() const { return registration_.parameters; }
    void expect(Phase phase, const char* function, const char* instead) const;

    // setup.cpp
    struct Team;  // the ranks of a communicator that the layer is about to use
    Team meet(tuttiComm_t comm, const std::optional<Error>& refusal, bool first);
    void join(Team team);
    void start_worker();
    void leave();
    void check_memory() const;
    void agree_on_registration(bool rates) const;
    void start_iterations(bool record);
    void relayout(const std::vector<std::size_t>& order, bool record);
    void sweep();

    // moving.cpp
    std::optional<Error> inelastic(const char* function) const;
    void rejoin(Team team, const std::function<void()>& settle);
    void follow_the_furthest();
    void complete_the_step();
    void hand_over();
    void begin_anew(std::span<const Origin> lost);
    void go_back(const std::string& lost, long long step);
    void share_settings(int root);

    // following.cpp
    void announce(Announcement what, const std::string& text = {});
    void call_roll(bool has_batch);
    bool follow();

    // engine.cpp
    void begin_iteration(), end_job();
    std::byte* gradient_memory(std::size_t parameter);
    void launch(std::size_t bucket);
    void look_for_nan(std::size_t parameter);
    void agree_on_unused();
    void update_all(), spread_all(), finish_save();
    double norm();
    double clip_to(double limit, bool by_value);
    bool finite();
    void set_steps(long long steps);
    void load_from(const std::string& path);
    void step_later();  // from here on: stale.cpp
    void abandon_beside();
    void take_version();
    void apply(const Versions::Version& version);
    /// Runs the checks of a call before it has any effect. Collective: if they throw on one rank, all ranks throw.
    void agree(const std::function<void()>& checks);

    Registration registration_;
    Backends backends_;
    Ranks ranks_;
    Attendance attendance_;
    Storage storage_;
    Iteration iteration_;
    Reducer reducer_;
    Updater updater_;
    Progress progress_;
    LossScale loss_scale_;
    Statistics statistics_;
    std::unique_ptr<Trace> trace_;  // nullptr if config.trace is 0
    Units units_;
    Versions versions_;
    Handover handover_;
    Notes notes_;
    Saves saves_;
    Latest reductions_;               // jobs of worker_
    std::unique_ptr<Worker> worker_;  // declared last, so that its thread ends before the rest is destroyed
};

}  // namespace tutti::dp
