// Admission of kernels to a device that ranks share. Blocks of such ranks wait for each other, so all of them must be
// resident at the same time, or those that are would wait for those that are not. Within a communicator this is
// certain: its ranks divide the device among them (gpu/budget.hpp). Between communicators whose ranks are threads of
// one process a Residence ensures it: a communicator whose ranks do not fit beside those that run waits, on the host,
// until they end.
//
// Ranks in other processes need no admission: the driver gives each process the whole device in turn.
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

/// The ranks of one communicator that are threads of this process on one device; each has a seat. Shared by these
/// ranks, and for any of their threads.
class Tenant {
  public:
    /// The tenant with that key, made by the first call. key: the same for all its ranks, and no others. share: the
    /// most blocks that a rank ever runs there at a time.
    static std::shared_ptr<Tenant> of(Gpus& gpus, int device, std::uint64_t key, int ranks, int share);
    ~Tenant();
    Tenant(const Tenant&) = delete;

    /// Notes that a graph of a rank has so many blocks. Graphs are launched without enter(); while one runs, which the
    /// seat's event tells, its blocks are counted.
    void captured(int blocks);

    int ranks() const { return static_cast<int>(seats_.size()); }
    Residence& residence() const { return *residence_; }

    /// Sets the event behind the seat's last launch.
    void launched(int seat, void* event) { at(seat).event.store(event, std::memory_order_release); }
    /// The seat of a rank whose kernel, ahead on the same stream, waits for the kernel that this seat is about to
    /// launch behind it: a deadlock. group: number of the calls that are launched together, which do not count. -1 if
    /// there is none.
    int blocked_by(int seat, void* stream, std::uint64_t group) const;

    /// Sets the word that is not 0 once a kernel of the seat has given up. It must exist until leave().
    void watch(int seat, const std::uint32_t* gave_up) { at(seat).gave_up.store(gave_up, std::memory_order_release); }
    /// Notes that the seat may not launch all that the others have launched.
    void forsake(int seat) { at(seat).left.store(true, std::memory_order_release); }
    /// Notes that the seat launches nothing any more. Its event may be destroyed afterwards.
    void leave(int seat);

  private:
    friend class Residence;
    struct Seat {
        std::atomic<void*> event{nullptr};                   // behind the last launch
        std::atomic<std::uint64_t> collectives{0};           // launched so far
        std::atomic<void*> stream{nullptr};                  // of the last collective
        std::atomic<std::uint64_t> group{0};                 // of calls, that the last collective was in
        std::atomic<const std::uint32_t*> gave_up{nullptr};  // see watch()
        std::atomic<bool> left{false};                       // see forsake()
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

    // Guarded by the residence's mutex:
    int blocks_ = 0;    // of each rank, while kernels of some of them run
    int captured_ = 0;  // most blocks of a rank in a graph
    int entering_ = 0;  // launches between enter() and entered()
};

/// A launch that a rank is about to make.
struct Stay {
    Tenant* tenant;
    int seat;
    int blocks;
    bool collective;  // the other ranks of the tenant will launch the same
    void* stream;
    std::uint64_t group;
    bool counted = false;  // in Tenant::entering_
};

/// A device of this process. Shared by its tenants; for any thread.
class Residence {
  public:
    static std::shared_ptr<Residence> of(Gpus& gpus, int device);

    int blocks() const { return blocks_; }  // that fit on the device at the same time
    LaunchOrder& order() { return order_; }

    /// Waits until all these launches have room beside what other tenants run. stop: called while it waits; may throw
    /// to give up. The caller then launches, and calls entered() whether that succeeds or fails.
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
    std::vector<Tenant*> tenants_;        // guarded by mutex_
    std::atomic<bool> contended_{false};  // some tenant has several ranks here, and not all tenants fit at once
};

}  // namespace tutti::gpu
