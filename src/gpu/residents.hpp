// Whose blocks run on a device. Blocks of ranks that share one wait for each other, so all of them must find room at
// the same time, or those that have would wait for those that have not. Within a communicator that is certain: its
// ranks divide the device among them (gpu/budget.hpp). Between communicators whose ranks are threads of one process it
// is seen to here: one whose ranks do not fit beside those that run waits, on the host, until they have ended.
//
// Other processes need nothing of the kind: the driver gives them the whole device in turn.
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

/// The ranks of one communicator that are threads of this process on one device. Each has a seat.
class Tenant {
  public:
    /// The one of that key, which all of its ranks give and no others. share: the most blocks that a rank ever has
    /// there at a time.
    static std::shared_ptr<Tenant> of(Gpus& gpus, int device, std::uint64_t key, int ranks, int share);
    ~Tenant();
    Tenant(const Tenant&) = delete;

    /// Graphs of its ranks have so many blocks each, at most: while one runs, which the seat's mark tells, they are
    /// there. Nobody asks before a graph is launched.
    void captured(int blocks);

    int ranks() const { return static_cast<int>(seats_.size()); }
    Residence& residence() const { return *residence_; }

    /// The seat's last launch, by the mark behind it.
    void launched(int seat, void* event) { at(seat).event.store(event, std::memory_order_release); }
    /// The seat of a rank whose kernel is on that stream and waits for one of this seat's, which would come behind it;
    /// -1: there is none. group: of calls that are launched together.
    int blocked_by(int seat, void* stream, std::uint64_t group) const;

    /// Of the seat's kernels: not 0 once one has given up. It stays until leave().
    void watch(int seat, const std::uint32_t* gave_up) { at(seat).gave_up.store(gave_up, std::memory_order_release); }
    /// It will not launch all that the others have launched.
    void forsake(int seat) { at(seat).left.store(true, std::memory_order_release); }
    /// Nor anything else, and its mark is about to go.
    void leave(int seat);

  private:
    friend class Residence;
    struct Seat {
        std::atomic<void*> event{nullptr};
        std::atomic<std::uint64_t> collectives{0};
        std::atomic<void*> stream{nullptr};  // of the last one, and the group of calls that it was in
        std::atomic<std::uint64_t> group{0};
        std::atomic<const std::uint32_t*> gave_up{nullptr};
        std::atomic<bool> left{false};
        void begin(void* its_stream, std::uint64_t its_group);
        bool stays() const;
    };
    Tenant(std::shared_ptr<Residence> residence, std::uint64_t key, int ranks, int share);
    Seat& at(int seat) { return seats_[static_cast<std::size_t>(seat)]; }

    const std::shared_ptr<Residence> residence_;
    const std::uint64_t key_;
    const int share_;
    std::vector<Seat> seats_;
    int blocks() const { return std::max(blocks_, captured_); }

    int blocks_ = 0;    // of each rank, while some of them run; under the residence's mutex, as what follows
    int captured_ = 0;  // of each rank, in any of its graphs
    int entering_ = 0;  // ranks between enter() and launched()
};

/// What a rank is about to launch.
struct Stay {
    Tenant* tenant;
    int seat;
    int blocks;
    bool collective;  // the other ranks will launch the like
    void* stream;
    std::uint64_t group;
    bool counted = false;  // by enter()
};

class Residence {
  public:
    static std::shared_ptr<Residence> of(Gpus& gpus, int device);

    int blocks() const { return blocks_; }  // that the device runs at the same time
    LaunchOrder& order() { return order_; }

    /// Returns when all of them have room beside whatever others run. stop: gives up by throwing. Whoever has entered
    /// says so when he has launched, or failed to.
    void enter(std::span<Stay> stays, const std::function<void()>& stop);
    void entered(std::span<Stay> stays);

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
    std::atomic<bool> contended_{false};  // some share the device with themselves, and not all fit at once
};

}  // namespace tutti::gpu
