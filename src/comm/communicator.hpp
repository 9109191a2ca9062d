// One rank of one communicator: the order of its calls, their plans, and the executions under way. Connections has its
// links with the other ranks, Faults what ended it, Windows its one-sided operations.
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

/// What decides how a rank waits for others: whether it may spin, and how long it yields before it sleeps.
struct Waiting {
    bool oversubscribed = false;                    // ranks on this host outnumber its cores: waits must not spin
    bool alone = false;                             // they do, but this one is bound to a core that it has alone
    bool crowded = false;                           // the ranks' threads do: calls that threads share must not
    bool all_fence = true;                          // every rank's process lets the others fence its cores (membarrier)
    std::chrono::microseconds trust_in_yields{50};  // Backoff's trust, kept from wait to wait
};

/// Owned, through CommunicatorPtr, by its handle and by every operation that runs on it. One thread at a time uses it,
/// inside ticket_lock(). Any thread may ask for its rank, its options and its GPU; its parts (Connections, Faults,
/// Windows, GpuSide) say what any thread may call there.
class Communicator {
  public:
    /// Joins `ranks` processes to a communicator. Blocks until all ranks have joined, at most options.init_timeout.
    /// processes, origin: as for Session::join.
    static std::unique_ptr<Communicator> join(const Identity& identity, Rank rank, int ranks, const Options& options,
                                              std::span<const std::uint64_t> processes = {}, SessionOrigin origin = {});

    /// Makes a communicator all of whose ranks are in this process; by rank. devices: the ranks' GPUs, by rank
    /// (TUTTI_DEVICE_CPU: on the CPU); empty if all are on the CPU.
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
    /// Compares the ranks' calls before they run, for Options::check.
    CallComparison& comparison() { return comparison_; }
    const Planner& planner() const { return *planner_; }
    Waiting& waiting() { return waiting_; }
    /// The threads that share this rank's large calls; nullptr if it has a single one.
    Crew* crew() { return crew_.get(); }
    const Options& options() const { return options_; }
    const std::shared_ptr<TicketLock>& ticket_lock() const { return ticket_lock_; }
    /// Adopts the ticket lock of the communicator that this one replaces, so that the order of calls goes on. Only
    /// before the first operation.
    void go_on_with(std::shared_ptr<TicketLock> ticket_lock) { ticket_lock_ = std::move(ticket_lock); }

    /// Plans `operation` and starts its execution, for the caller to progress. The reference is valid until the
    /// execution has finished. Executions of different queues (Operation::queue()) may be under way at once, but only
    /// one of each queue. On a GPU: only an all-to-all of host memory, which goes over the hosts' links.
    HostExecution& begin(const Operation& operation);
    /// The operation that begin() began last, if one that differs only in its buffers may begin by begin_again(), which
    /// has nothing to plan: most programs make the same call again and again. Otherwise nullptr.
    const Operation* last() const { return last_.execution != nullptr ? &last_.operation : nullptr; }
    HostExecution& begin_again(const void* input, void* output);

    /// The number of the next exchange through the session. All ranks must ask for it equally often, in the same order.
    std::uint64_t next_exchange() { return exchanges_++; }

    /// What this rank has on its GPU; nullptr if it is on the CPU.
    GpuSide* gpu() const { return gpu_.get(); }

    /// True if some ranks are on GPUs and p2p does not join all ranks. Then ranks on CPUs also run operations as the
    /// kernels run them.
    bool through_host() const { return connections_.places().through_host(); }

    /// Like begin(), for a kernel: plans `operation` and returns the job to launch on `stream`. Throws if a buffer is
    /// not of this rank's GPU.
    gpu::Job gpu_job(Operation operation, void* stream);
    /// The same for a collective that goes by multicast; nullopt if this one does not. All ranks conclude the same.
    std::optional<gpu::MulticastJob> multicast_job(const Operation& operation);

    /// For a call of that signature that copy engines run: this rank's part of its meetings. The caller sets `begins`.
    gpu::Meeting gpu_meeting(const Operation& operation, std::uint32_t signature);

    /// Most memory that the communicator's connections may use, in bytes.
    std::size_t memory() const { return connections_.memory() + (gpu_ ? gpu_->memory() : 0); }

    /// Like leave(), but the session stays and goes on to hear of deaths. Returns it.
    std::shared_ptr<Session> suspend();

    /// Leaves in order: waits until every peer has read what this rank sent, because the messages lie in this rank's
    /// memory, and closes its windows. Ranks of one process do not wait for each other: their arenas are kept
    /// (Connections::keep). Bounded by options.timeout; logs a warning if a peer has not read everything by then.
    void leave();

  private:
    /// join() for two or more ranks.
    static std::unique_ptr<Communicator> meet(const Identity& identity, Rank rank, int ranks, const Options& options,
                                              std::span<const std::uint64_t> processes, SessionOrigin origin);

    Communicator(std::shared_ptr<Session> session, std::shared_ptr<Arena> arena, std::shared_ptr<Engine> engine,
                 std::unique_ptr<GpuSide> gpu, const std::shared_ptr<const UserAlgorithms>& own, const Options& options,
                 Census told);
    gpu::Budget meet_gpus();
    void settle();
    void attach(Rank peer, bool pair);
    std::chrono::microseconds round_trip() const;
    Platform platform_of(const Census& told, int cores, std::span<const Rank> order, const gpu::Budget& budget,
                         bool far_cores) const;
    HostExecution& start_on_host(const Operation& exchange);
    Executable prepare(BoundProgram bound, bool pair);
    void link_for_texts(Rank peer);
    void link_all_for_texts();
    void announce(bool collective, std::uint32_t signature, Call& call);
    void tell_of_multicast(const Operation& operation, const char* why_not);

    Options options_;
    Connections connections_;
    std::unique_ptr<GpuSide> gpu_;
    Faults faults_;
    Windows windows_;
    CallComparison comparison_;
    Waiting waiting_;
    CacheShare caches_;
    std::shared_ptr<TicketLock> ticket_lock_ = std::make_shared<TicketLock>();
    std::uint64_t exchanges_ = 0;
    std::unique_ptr<Crew> crew_;
    std::optional<Planner> planner_;  // set by the constructor, when the ranks' infos are known
    struct alignas(64) {
        HostExecution* execution = nullptr;  // nullptr: there is none that may begin again, or it may be gone
        std::uint32_t signature = 0;         // of its plan
        Operation operation;
    } last_;
    std::map<int, std::uint64_t> scalars_;    // by queue: the premultiplier of the operation under way
    std::unique_ptr<HostExecution> on_host_;  // made by the first start_on_host()
    unsigned told_of_multicast_ = 0;          // a bit for each collective and answer
    bool suspended_ = false, links_all_for_texts_ = false;
};

}  // namespace tutti
