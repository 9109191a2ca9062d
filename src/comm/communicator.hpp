// One rank of one communicator: the order of its calls, their plans, and what runs. Whom it reaches is in Connections,
// what has befallen it in Faults, what is one-sided in Windows.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/call_comparison.hpp"
#include "comm/crew.hpp"
#include "comm/ticket_lock.hpp"
#include "comm/windows.hpp"
#include "plan/planner.hpp"

namespace tutti {

struct Census;

/// What decides how a rank passes the time until others have done something.
struct Waiting {
    bool oversubscribed = false;                    // ranks of this host outnumber its cores: waiting must not spin
    bool crowded = false;                           // their threads do: nor must it where these share a call
    bool all_fence = true;                          // all ranks' processes let others fence their cores
    std::chrono::microseconds trust_in_yields{50};  // see Backoff
};

/// Owned by its handle and by whatever runs on it (CommunicatorPtr). Used by one thread at a time, inside
/// ticket_lock(). From any thread: who it is, its options and its GPU, and of its parts what they allow.
class Communicator {
  public:
    /// Blocks until all ranks have joined.
    /// processes, origin: see Session::join.
    static std::unique_ptr<Communicator> join(const Identity& identity, Rank rank, int ranks, const Options& options,
                                              std::span<const std::uint64_t> processes = {}, SessionOrigin origin = {});

    /// All ranks in this process. devices: their GPUs; empty: they are on the CPU.
    static std::vector<std::unique_ptr<Communicator>> in_process(int ranks, const Options& options,
                                                                 std::span<const int> devices = {});

    ~Communicator();

    Rank rank() const { return connections_.rank(); }
    int ranks() const { return connections_.ranks(); }
    Session& session() const { return connections_.session(); }
    Connections& connections() { return connections_; }
    const Connections& connections() const { return connections_; }
    Faults& faults() { return faults_; }
    const Faults& faults() const { return faults_; }
    Windows& windows() { return windows_; }
    /// Options::check.
    CallComparison& comparison() { return comparison_; }
    const Planner& planner() const { return *planner_; }
    Waiting& waiting() { return waiting_; }
    /// Of a rank with several threads; else nullptr.
    Crew* crew() { return crew_.get(); }
    const Options& options() const { return options_; }
    const std::shared_ptr<TicketLock>& ticket_lock() const { return ticket_lock_; }
    /// Before its first operation: it takes the place of another one, whose ticket lock it is.
    void go_on_with(std::shared_ptr<TicketLock> ticket_lock) { ticket_lock_ = std::move(ticket_lock); }

    /// Makes the execution for operation ready to progress; it is this communicator's until it has finished. Executions
    /// of different queues (Operation::queue()) may be under way at once. On a GPU: an exchange, all to all, of what
    /// ranks tell each other over their hosts.
    HostExecution& begin(const Operation& operation);

    /// A number for an exchange of its ranks by way of the session: all of them ask equally often.
    std::uint64_t next_exchange() { return exchanges_++; }

    /// The rank's GPU; nullptr on the CPU.
    GpuSide* gpu() const { return gpu_.get(); }

    /// Some ranks are on GPUs, and not all reach each other by p2p: then those on CPUs, too, run what kernels can take
    /// part in.
    bool through_host() const { return connections_.places().through_host(); }

    /// The same for kernels: what to launch. Throws if an argument is not of this rank's GPU.
    gpu::Job gpu_job(Operation operation, void* stream);

    /// Upper bound of the memory that its connections use, in bytes.
    std::size_t memory() const { return connections_.memory() + (gpu_ ? gpu_->memory() : 0); }

    /// leave(), but for the session, which goes on to hear of deaths.
    std::shared_ptr<Session> suspend();

    /// Goes in peace: first what this rank has sent must have been read, for its memory goes with it.
    void leave();

  private:
    /// join() of several ranks.
    static std::unique_ptr<Communicator> meet(const Identity& identity, Rank rank, int ranks, const Options& options,
                                              std::span<const std::uint64_t> processes, SessionOrigin origin);

    Communicator(std::shared_ptr<Session> session, std::shared_ptr<Arena> arena, std::shared_ptr<Engine> engine,
                 std::unique_ptr<GpuSide> gpu, const std::shared_ptr<const UserAlgorithms>& own, const Options& options,
                 Census told);
    gpu::Budget meet_gpus();
    void settle();
    void attach(Rank peer, bool pair);
    std::chrono::microseconds round_trip() const;
    Platform platform_of(const Census& told, int cores, std::span<const Rank> order, const gpu::Budget& budget) const;
    HostExecution& start_on_host(const Operation& exchange);
    Executable prepare(BoundProgram bound, bool pair);
    void link_for_texts(const BoundProgram& bound);
    Call announce(const Operation& operation, const Plan& plan);

    Options options_;
    Connections connections_;
    std::unique_ptr<GpuSide> gpu_;
    Faults faults_;
    Windows windows_;
    CallComparison comparison_;
    Waiting waiting_;
    std::shared_ptr<TicketLock> ticket_lock_ = std::make_shared<TicketLock>();
    std::uint64_t exchanges_ = 0;
    std::unique_ptr<Crew> crew_;
    std::optional<Planner> planner_;          // since the ranks have met
    std::map<int, std::uint64_t> scalars_;    // by queue: the scalar of the operation under way
    std::unique_ptr<HostExecution> on_host_;  // of start_on_host()
    bool suspended_ = false;
};

}  // namespace tutti
