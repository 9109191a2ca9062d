// What a communicator has in addition when its rank is on a GPU: the memory in which the rank receives, uploaded
// programs, and the control word by which the host stops kernels and kernels say why they gave up.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/launch_sequence.hpp"
#include "gpu/arena.hpp"
#include "gpu/boards.hpp"
#include "gpu/budget.hpp"
#include "gpu/neighbours.hpp"
#include "gpu/program.hpp"
#include "gpu/residents.hpp"
#include "plan/one_sided.hpp"
#include "plan/operation.hpp"

namespace tutti {

/// The last calls by number. One thread adds; any thread may ask.
class RecentCalls {
  public:
    std::uint32_t add(const Call& call) {
        last_[next_ % remembered].set(call);
        return next_++;
    }
    Call of(std::uint32_t number) const { return last_[number % remembered].get(); }

  private:
    static constexpr std::uint32_t remembered = 64;
    SharedCall last_[remembered] = {};
    std::uint32_t next_ = 0;
};

/// Owned by its Communicator; one thread at a time uses it, inside the communicator's ticket lock. Any thread may call
/// abort(), verdict(), call_of() and busy(), and ask for what is fixed since connect(): gpus(), device(), budget(),
/// tenant().
class GpuSide {
  public:
    /// Throws tuttiInvalidArgument if there is no such device.
    GpuSide(int device, int ranks);
    ~GpuSide();  // waits for its kernels
    GpuSide(const GpuSide&) = delete;

    gpu::EndpointInfo info() const { return arena_->info(); }
    /// Offers the memory to ranks of other processes, under the key of the info's arena. Call it before connect().
    void offer(Session& session) const { neighbours_->offer(session); }
    void connect(Session& session, const gpu::Places& places, const gpu::Budget& budget, Deadline deadline);

    gpu::Gpus& gpus() const { return gpus_; }
    int device() const { return device_; }
    const gpu::Budget& budget() const { return budget_; }
    std::size_t memory() const { return arena_->bytes() + pool_bytes; }

    /// The two wires of the host's channel with a peer that p2p does not reach.
    struct Wires {
        Wire out, in;
    };
    using Connect = std::function<Wires(Rank peer, int channel)>;
    /// Attaches the peer's channels for collectives or, if `pair`, for sends and receives. Those already attached stay.
    /// connect: gives the wires of a channel.
    void attach(Rank peer, bool pair, const Connect& connect);
    std::unique_ptr<gpu::Program> upload(BoundProgram bound, bool pair);  // peers that it names must be attached

    /// What to launch for a planned operation. Throws tuttiInvalidArgument if a buffer is not of this device.
    gpu::Job job(const Operation& operation, const Tiling& tiling, const Call& call, gpu::Program& program,
                 std::chrono::milliseconds timeout, void* stream);
    /// What to launch for an operation by multicast. The caller sets what is about buffers, then number()s it.
    gpu::MulticastJob multicast_job(const Operation& operation, gpu::MulticastSum sum, Rank self, int ranks,
                                    std::chrono::milliseconds timeout) const;
    void number(gpu::MulticastJob& job, const Call& call);
    /// Throws if the stream is not of this device, or is in a capture whose order of operations is no longer known.
    void check_stream(void* stream) const;
    /// Throws if a kernel of another rank on this stream waits for the kernel that is about to go behind it.
    void check_mates(void* stream, std::uint64_t group) const;

    /// The memory that this rank lends to other processes, and that it borrows from them.
    gpu::Neighbours& neighbours() { return *neighbours_; }

    /// For one-sided operations. Only if p2p joins all ranks.
    gpu::Boards& boards() { return *boards_; }
    /// What to launch for a put, a get or a signal. Throws if its buffer is not of this device.
    gpu::Put put(const OneSided& operation);
    /// This rank's part of the meetings of a call. The caller sets `begins`.
    gpu::Meeting meeting(const Call& call, std::chrono::milliseconds timeout);

    /// Call these around each launch on `stream`, to keep a communicator's operations in order (launch_sequence.hpp).
    /// engine: the one to serve while kernels run; nullptr if there is none or it has nothing to do. In a graph,
    /// before_launch() and leave_engine() put calls into the stream that tell the engine at every launch; otherwise the
    /// engine asks busy().
    void before_launch(void* stream, Engine* engine = nullptr);
    void after_launch(void* stream, Engine* engine = nullptr);
    void leave_engine(Engine* engine, void* stream);
    /// Whether kernels that the engine serves still run, or calls that copy others' memory. Any thread; does not wait.
    bool busy() const noexcept { return launches_.busy(); }

    /// A stream of its own, for kernels that must run at the same time but can't share a launch or a user's stream.
    /// user: a stream that it is to follow; it is part of no capture but that one's.
    void* spare_stream(std::size_t number, void* user);

    /// The ranks of this communicator that are threads of this process on this device.
    gpu::Tenant* tenant() const { return mates_.tenant.get(); }
    /// The device's launch order; nullptr if none is kept (TUTTI_LAUNCH_ORDER_IMPLICIT), or if several ranks of the
    /// communicator are here, none of which may follow another.
    gpu::LaunchOrder* order() const;
    gpu::Stay stay(int blocks, bool collective, void* stream, std::uint64_t group) const {
        return {tenant(), mates_.seat, blocks, collective, gpus_.identity(stream), group};
    }

    /// Makes every kernel under way give up.
    void abort();
    /// Waits until all kernels have ended.
    void finish() noexcept { launches_.finish(); }

    /// Why a kernel has given up; nullptr if none has. call_of(): the call that it belonged to, if it is among the last
    /// 64.
    const gpu::Verdict* verdict() const;
    Call call_of(const gpu::Verdict& verdict) const { return calls_.of(verdict.call); }

  private:
    static constexpr std::size_t pool_bytes = 1 << 20;  // most programs take some kilobytes
    enum class Lends { nothing, windows, all };         // what messages may refer to
    gpu::Buffer buffer(const void* pointer, std::size_t bytes, const char* name, Lends lends);
    bool knows_loans(const gpu::Job& job);
    void move_in(const gpu::Places& places, Rank self);
    void warn_of_turns(const gpu::Places& places, Rank self) const;

    gpu::Gpus& gpus_;
    const int device_;
    std::shared_ptr<gpu::Arena> arena_;
    std::unique_ptr<gpu::Ends> ends_;
    std::unique_ptr<gpu::Pool> pool_;  // for uploaded programs
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
    RecentCalls calls_;
    bool copies_ = false;  // copies of the others' memory have been enqueued, or captured
    LaunchSequence launches_;
};

}  // namespace tutti
