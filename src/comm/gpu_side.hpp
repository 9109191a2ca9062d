// What a communicator has besides all else when its rank is on a GPU: the memory in which it receives, uploaded
// programs, the word by which the host stops its kernels and they tell why they gave up.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>

#include "gpu/arena.hpp"
#include "gpu/boards.hpp"
#include "gpu/budget.hpp"
#include "gpu/neighbours.hpp"
#include "gpu/program.hpp"
#include "gpu/residents.hpp"
#include "plan/one_sided.hpp"
#include "plan/operation.hpp"

namespace tutti {

/// Owned by its Communicator, and used inside that one's ticket lock by one thread at a time; except that any thread
/// may abort(), look at verdict() and call_of() it, and ask what connect() has left as it is: gpus(), device(),
/// budget(), tenant().
class GpuSide {
  public:
    /// Throws tuttiInvalidArgument if there is no such device.
    GpuSide(int device, int ranks);
    ~GpuSide();  // waits for its kernels, which then end soon
    GpuSide(const GpuSide&) = delete;

    gpu::EndpointInfo info() const { return arena_->info(); }
    /// Before it connects: for ranks of other processes, under the key of the info's arena.
    void offer(Session& session) const { neighbours_->offer(session); }
    void connect(Session& session, const gpu::Places& places, const gpu::Budget& budget, Deadline deadline);

    gpu::Gpus& gpus() const { return gpus_; }
    int device() const { return device_; }
    const gpu::Budget& budget() const { return budget_; }
    std::size_t memory() const { return arena_->bytes() + pool_bytes; }

    /// Gives the wires of the host's channel with a peer that is not reached by p2p.
    struct Wires {
        Wire out, in;
    };
    using Connect = std::function<Wires(Rank peer, int channel)>;
    /// The peer's channels for collectives, or for sends and receives, unless that was done.
    void attach(Rank peer, bool pair, const Connect& connect);
    std::unique_ptr<gpu::Program> upload(BoundProgram bound, bool pair);  // all peers that it names are attached

    /// Throws if a buffer is not of this device.
    gpu::Job job(const Operation& operation, const Tiling& tiling, const Call& call, gpu::Program& program,
                 std::chrono::milliseconds timeout, void* stream);
    /// Throws if it is not of this device, or in a capture in which the order of operations is not known any more.
    void check_stream(void* stream) const;
    /// Throws if another rank's kernel is on that stream, and waits for the one that is about to be put behind it.
    void check_mates(void* stream, std::uint64_t group) const;

    /// What it lends to ranks of other processes, and they to it.
    gpu::Neighbours& neighbours() { return *neighbours_; }

    /// For one-sided operations; only where p2p joins all ranks.
    gpu::Boards& boards() { return *boards_; }
    /// A put, or a signal. Throws if its buffer is not of this device.
    gpu::Put put(const OneSided& operation);

    /// Operations of a communicator run in the order of their calls, also on different streams; those of a graph in
    /// the order in which they were captured, whatever its branches, and graphs in the order of their launches, among
    /// themselves and beside calls. engine: of its networks, served while kernels run; nullptr: it has none, or nothing
    /// to do. In a graph the stream tells it, at every launch (leave_engine); else it looks by itself.
    void before_launch(void* stream, Engine* engine = nullptr);
    void after_launch(void* stream, Engine* engine = nullptr);
    void leave_engine(Engine* engine, void* stream);
    /// Whether some call's kernels have not ended. From any thread; does not wait.
    bool busy() const noexcept;

    /// A stream beside the users': what can't go into one launch, and must run at the same time, needs several.
    void* spare_stream(std::size_t number);

    /// This rank's blocks among all that run on the device.
    gpu::Tenant* tenant() const { return mates_.tenant.get(); }
    /// Where one is kept. nullptr: else, and where several ranks are there, of which none may follow another.
    gpu::LaunchOrder* order() const;
    gpu::Stay stay(int blocks, bool collective, void* stream, std::uint64_t group) const {
        return {tenant(), mates_.seat, blocks, collective, stream, group};
    }

    /// Every kernel under way ends.
    void abort();
    /// Waits until they have.
    void finish() noexcept;

    /// Why a kernel has given up; nullptr: none has.
    const gpu::Verdict* verdict() const;
    Call call_of(const gpu::Verdict& verdict) const { return calls_.last[verdict.call % remembered].get(); }

  private:
    static constexpr std::uint32_t remembered = 64;
    static constexpr std::size_t pool_bytes = 1 << 20;  // most programs have some kilobytes
    gpu::Buffer buffer(const void* pointer, std::size_t bytes, const char* name, bool lend);
    bool knows_loans(const gpu::Job& job);
    void move_in(const gpu::Places& places, Rank self);
    void warn_of_turns(const gpu::Places& places, Rank self) const;

    gpu::Gpus& gpus_;
    const int device_;
    std::shared_ptr<gpu::Arena> arena_;
    std::unique_ptr<gpu::Ends> ends_;
    std::unique_ptr<gpu::Pool> pool_;  // for programs
    std::optional<gpu::Neighbours> neighbours_;
    gpu::Control* control_ = nullptr;
    std::optional<gpu::Boards> boards_;
    gpu::Budget budget_;
    struct {
        std::shared_ptr<gpu::Tenant> tenant;
        int seat = 0;             // this rank's
        std::vector<Rank> ranks;  // by seat
    } mates_;                     // the communicator's ranks that are threads of this process on this device
    std::vector<void*> spare_streams_;
    struct {
        SharedCall last[remembered] = {};
        std::uint32_t number = 0;  // of the next one
    } calls_;
    struct {
        void* event = nullptr;  // after it, and moved by launches of graphs, too
        void* stream = nullptr;
        bool by_graphs = false;  // so it may be on another stream than that
    } last_launch_;
    std::atomic<void*> engines_event_{nullptr};  // the same, once an engine asks for it
    struct Captured {
        std::uint64_t capture;
        void* event = nullptr;  // in the graph, after the last operation
        void* stream = nullptr;
    };
    static constexpr std::size_t captures_at_a_time = 32;
    std::vector<Captured> captures_;               // those that may not have ended, the last used one last
    std::unordered_set<std::uint64_t> forgotten_;  // those for which there was no room; they may have ended
    Captured* captured(std::uint64_t capture);
    void after_capture(std::uint64_t capture, void* stream);
};

}  // namespace tutti
