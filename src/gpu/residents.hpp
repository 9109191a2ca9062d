// Which communicators' blocks run on a device. Blocks of ranks that share a device wait for each other, so all of them
// must be resident at the same time, or those that are would wait for ever for those that are not. Within a
// communicator its ranks divide the device among them (gpu/budget.hpp). Between communicators whose ranks are threads
// of one process it is ensured here: a launch waits on the host until its communicator's ranks fit beside those that
// run.
//
// Other processes are not looked at: without MPS, the driver gives each the whole device in turn.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/os.hpp"
#include "gpu/gpus.hpp"
#include "gpu/launch_order.hpp"

namespace tutti::gpu {

class Residence;

/// The ranks of one communicator that are threads of this process on one device, each with a seat of its own. The ranks
/// share ownership. Any thread may use it; a rank changes only its own seat.
class Tenant {
  public:
    /// Finds the tenant, or makes it. key: the same for all its ranks, and for no others. ranks: how many these are.
    /// share: the most blocks that a rank runs at a time.
    static std::shared_ptr<Tenant> of(Gpus& gpus, int device, std::uint64_t key, int ranks, int share);
    ~Tenant();
    Tenant(const Tenant&) = delete;

    /// Notes a capture with that many blocks per rank. A graph is launched without enter(), so from now on that many
    /// blocks at least count as running while a seat's event is not reached.
    void captured(int blocks);

    int ranks() const { return static_cast<int>(seats_.size()); }
    Residence& residence() const { return *residence_; }

    /// Sets the event that is recorded after each of the seat's launches.
    void launched(int seat, void* event) { at(seat).event.store(event, std::memory_order_release); }
    /// stream: its Gpus::identity(). The seat of another rank whose kernel on that stream waits for the kernel that
    /// this seat is about to enqueue behind it, a deadlock; -1 if there is none. group: calls of the same group are
    /// launched together and don't count.
    int blocked_by(int seat, std::uintptr_t stream, std::uint64_t group) const;

    /// Sets the word that is not 0 once a kernel of the seat has given up. It must stay valid until leave().
    void watch(int seat, const std::uint32_t* gave_up) { at(seat).gave_up.store(gave_up, std::memory_order_release); }
    /// The seat will not launch what the others have launched: they no longer count as waiting for it.
    void forsake(int seat) { at(seat).left.store(true, std::memory_order_release); }
    /// The seat launches nothing more. Its event and word are not used after this.
    void leave(int seat);

  private:
    friend class Residence;
    struct Seat {
        std::atomic<void*> event{nullptr};
        std::atomic<std::uint64_t> collectives{0};  // launched so far
        std::atomic<std::uintptr_t> stream{0};      // of the last collective: its Gpus::identity()
        std::atomic<std::uint64_t> group{0};        // of calls, that the last collective was in
        std::atomic<const std::uint32_t*> gave_up{nullptr};
        std::atomic<bool> left{false};
        void begin(std::uintptr_t its_stream, std::uint64_t its_group);
        bool stays() const;
    };
    Tenant(std::shared_ptr<Residence> residence, std::uint64_t key, int ranks, int share);
    Seat& at(int seat) { return seats_[static_cast<std::size_t>(seat)]; }

    const std::shared_ptr<Residence> residence_;
    const std::uint64_t key_;
    const int share_;
    std::vector<Seat> seats_;
    int blocks() const { return std::max(blocks_, captured_); }

    // Guarded by the residence's mutex:
    int blocks_ = 0;    // per rank, while any of the ranks runs
    int captured_ = 0;  // per rank, the most in any graph
    int entering_ = 0;  // ranks between enter() and entered()
};

/// What a rank is about to launch.
struct Stay {
    Tenant* tenant;
    int seat;
    int blocks;
    bool collective;        // the other ranks launch it, too
    std::uintptr_t stream;  // its Gpus::identity()
    std::uint64_t group;
    bool counted = false;  // set by enter(): entered() has to undo it
};

/// The tenants of one device. Owned by them. Any thread may use it; mutex_ guards what follows it, and tenants' counts.
class Residence {
  public:
    static std::shared_ptr<Residence> of(Gpus& gpus, int device);

    int blocks() const { return blocks_; }  // interpreter blocks that the device runs at the same time
    LaunchOrder& order() { return order_; }

    /// Waits until the device has room for all of `stays` beside what other tenants run. stop: called while waiting;
    /// throws to give up. The caller launches then and calls entered(), also if a launch has failed. launched: false if
    /// nothing is enqueued; then nobody waits for what the others would launch.
    void enter(std::span<Stay> stays, const std::function<void()>& stop);
    void entered(std::span<Stay> stays, bool launched);

  private:
    friend class Tenant;
    Residence(Gpus& gpus, int device)
        : gpus_(gpus), device_(device), blocks_(gpus.info(device).blocks), order_(gpus, device) {}
    bool makes_room(std::span<const Stay> stays);
    bool runs(Tenant& tenant);
    void recount();

    Gpus& gpus_;
    const int device_, blocks_;
    LaunchOrder order_;
    std::mutex mutex_;
    std::vector<Tenant*> tenants_;
    bool contended_ = false;  // a tenant has several ranks, and not all tenants fit at once
};

}  // namespace tutti::gpu
