#include "transport/net/lock.hpp"

#include <chrono>
#include <thread>

#include "base/log.hpp"
#include "base/os.hpp"

namespace tutti::net {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds longest_call{1000};  // of a network plugin; after that soon() does not wait any more
constexpr std::chrono::microseconds between_tries{100};

/// Not by timed locking, which may follow the wall clock (base/condition.hpp).
bool lock_within(Lock::Held& lock, milliseconds time) {
    for (const Deadline limit = Clock::now() + time; Clock::now() < limit; std::this_thread::sleep_for(between_tries))
        if (lock.try_lock()) return true;
    return false;
}

}  // namespace

Lock::Held Lock::soon(Rank self) {
    Held lock(mutex_, std::try_to_lock);
    if (lock) return lock;
    if (!foreign_)
        lock.lock();
    else if (!lock_within(lock, stuck_ ? milliseconds(0) : longest_call) && !stuck_.exchange(true))
        log(Level::warn, "rank %d: a call of a network plugin does not return", self);
    if (lock) stuck_ = false;
    return lock;
}

Lock::Held Lock::in_background() {
    wanted_.store(true, std::memory_order_relaxed);
    Held lock(mutex_);
    wanted_.store(false, std::memory_order_relaxed);
    return lock;
}

}  // namespace tutti::net
