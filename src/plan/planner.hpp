// From an operation to what will run. A plan is a function of what all ranks know, so all ranks plan alike without
// exchanging a message.
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

/// A bound program, ready to run on this rank with any number of elements. One of the two is set.
struct Executable {
    std::unique_ptr<HostExecution> execution;  // on the CPU
    std::unique_ptr<gpu::Program> uploaded;    // on a GPU
};

/// How an operation will run.
struct Plan {
    std::shared_ptr<Executable> runs;  // shared by plans that differ only in sizes and types
    /// All of the job but what is each call's own: buffers, rows, the scalar, its number among the rank's calls. The
    /// signature is equal on all ranks that take part, if they call the same.
    Job job;
    const Algorithm* algorithm = nullptr;
    std::atomic<bool>* told = nullptr;  // the entry of Planner::told_ that a run updates; or nullptr
};

/// The most recently used plans of one communicator, which owns it. One thread at a time uses it, inside the
/// communicator's ticket lock. Any thread may call expected_time().
class Planner {
  public:
    /// What the planner needs to know of its rank.
    struct Site {
        Rank rank;
        std::vector<Rank> order;                                // ring_order(): ranks by part; empty: part r is rank r
        bool on_gpu;                                            // all programs are kept: captured graphs may use them
        std::function<bool(Rank)> by_network;                   // whether sends to it go over a network, not by a GPU
        std::function<Executable(BoundProgram, bool)> prepare;  // second argument: it is a send's or a receive's
        std::function<RankPage*()> host_page = {};              // Connections::host_page(); empty: there is none
    };
    Planner(std::shared_ptr<Tuner> tuner, Site site);

    /// The plan of a collective, a send or a receive. A collective must run before the next one is planned. Valid until
    /// the next call. Throws tuttiInvalidUsage if no algorithm can do it, and what prepare throws.
    const Plan& plan(const Operation& operation);

    /// Call it when a plan with `told` begins: the next call learns from it.
    void learn_from(const Plan& plan) { lesson_ = &plan; }

    /// How many of the rank's threads would share the operation.
    int threads_of(const Operation& operation) const;

    /// The time that the operation would take by the cost model, in microseconds.
    double expected_time(const Operation& operation) const;

    const Platform& platform() const { return tuner_->platform(); }
    const Allowed& allowed() const { return tuner_->allowed(); }
    std::size_t plans() const { return plans_.size(); }
    std::size_t most_plans() const { return plans_.most(); }

  private:
    struct Hash {
        std::size_t operator()(const Question& question) const;
    };
    /// Whether all ranks' buffers were mappable in the last call of that collective and of a size in the same power of
    /// two.
    std::atomic<bool>& told_of(Collective collective, std::size_t bytes) const;
    std::size_t bytes_of(const Operation& operation) const;
    Question question_of(const Operation& operation) const;
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
    std::vector<std::shared_ptr<Executable>> uploaded_;  // on a GPU: all executables, which are kept
    Recent<Question, Plan, Hash> plans_;
    std::set<const Candidate*> announced_;                            // candidates that were logged
    mutable std::array<std::atomic<bool>, collectives * 65> told_{};  // told_of(): by collective and bits of the size
    const Plan* lesson_ = nullptr;                                    // the plan under way, if it has `told`
};

}  // namespace tutti
