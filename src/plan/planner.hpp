// From an operation to what will run. A plan is a function of what all ranks know, so all of them plan alike, without a
// word.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "gpu/program.hpp"
#include "kernels/host/executor.hpp"
#include "plan/operation.hpp"
#include "plan/recent.hpp"
#include "plan/tuner.hpp"

namespace tutti {

/// A bound program, ready to run on this rank with any number of elements: by one of the two.
struct Executable {
    std::unique_ptr<HostExecution> execution;  // on the CPU
    std::unique_ptr<gpu::Program> uploaded;    // on a GPU
};

/// What will run.
struct Plan {
    std::shared_ptr<Executable> runs;  // shared by plans that differ in sizes and types alone
    /// All but what each call has of its own: buffers, rows, the scalar, its place among the rank's calls. Its
    /// signature is equal on all ranks that take part, if they call the same.
    Job job;
    const Algorithm* algorithm = nullptr;
    std::atomic<bool>* told = nullptr;  // if when it has run all ranks know whether the buffers of all are mappable
};

/// The plans of one communicator, those that were used last. Owned by it, and used inside its ticket lock by one thread
/// at a time; expected_time() from any thread.
class Planner {
  public:
    /// What it needs to know of its rank.
    struct Site {
        Rank rank;
        std::vector<Rank> order;                                // see ring_order; empty: parts and ranks are the same
        bool on_gpu;                                            // where captured graphs may name any program: all stay
        std::function<bool(Rank)> by_network;                   // whether sends to that rank go by one, not by a GPU
        std::function<Executable(BoundProgram, bool)> prepare;  // whether it is of sends and receives
    };
    Planner(std::shared_ptr<Tuner> tuner, Site site);

    /// Of a collective, which then runs before the next one is planned, or a send or receive. Valid until the next
    /// call. Throws tuttiInvalidUsage if no algorithm is capable of it, and what prepare throws.
    const Plan& plan(const Operation& operation);

    /// A plan that tells now begins.
    void learn_from(const Plan& plan) { lesson_ = &plan; }

    /// How many of the rank's threads would share it.
    int threads_of(const Operation& operation) const;

    /// By the cost model, in microseconds.
    double expected_time(const Operation& operation) const;

    const Platform& platform() const { return tuner_->platform(); }
    std::size_t plans() const { return plans_.size(); }
    std::size_t most_plans() const { return plans_.most(); }

  private:
    struct Hash {
        std::size_t operator()(const Question& question) const;
    };
    /// What calls of that collective, and of sizes from one power of two to the next, have told last.
    std::atomic<bool>& told_of(Collective collective, std::size_t bytes) const;
    std::size_t bytes_of(const Operation& operation) const;
    Question question_of(const Operation& operation) const;
    bool is_last(const Operation& operation) const;
    const Plan& keep(const Question& question, Plan plan);
    Tiling tiling_of(const Candidate& chosen, const Question& question, const Operation& operation) const;
    Plan make(const Question& question, const Operation& operation);
    std::shared_ptr<Executable> executable(const Operation& operation, const Algorithm& algorithm, bool to_all);
    Program program_of(const Operation& operation, const Algorithm& algorithm, Rank rank) const;
    bool may_go(const Plan& plan);
    void learn();

    const std::shared_ptr<Tuner> tuner_;
    const Site site_;
    std::map<std::tuple<Collective, Rank, const Algorithm*, bool>, std::weak_ptr<Executable>> executables_;
    std::vector<std::shared_ptr<Executable>> uploaded_;  // on a GPU: all of them
    Recent<Question, Plan, Hash> plans_;
    std::set<const Candidate*> announced_;                            // in the log
    mutable std::array<std::atomic<bool>, collectives * 65> told_{};  // by collective and the width of the size
    const Plan* lesson_ = nullptr;                                    // of the call under way, if it tells
    struct {
        Operation operation;                      // not uneven
        const Plan* plan = nullptr;               // nullptr: there is none, or it may be gone
        const std::atomic<bool>* told = nullptr;  // where its `mappable` was from
        bool mappable = false;
    } last_;
};

}  // namespace tutti
