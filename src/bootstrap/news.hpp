// What a member has heard of: whether all have joined, who has left, who has died, and the first fault; and the
// listener that is told of the fault. The service thread makes the changes; other threads only set and drop the
// listener. Any thread may ask and wait.
#pragma once

#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "bootstrap/monitor.hpp"
#include "bootstrap/session.hpp"

namespace tutti::bootstrap {

/// A part of its membership. All state is guarded by the monitor.
class News {
  public:
    enum class State { joining, joined, failed };
    using Listener = std::function<void(const Fault&)>;

    News(Monitor& monitor, int ranks) : monitor_(monitor), has_left_(static_cast<std::size_t>(ranks)) {}

    bool is(State state) const {
        return monitor_.look([&] { return state_ == state; });
    }
    /// Returns false at the deadline. Throws the fault if joining failed.
    bool wait_joined(Deadline deadline);
    bool has_left(Rank rank) const;
    /// Whether this member has left.
    bool left() const {
        return monitor_.look([&] { return left_; });
    }
    std::vector<Rank> dead() const;
    std::optional<Fault> fault() const;
    /// Waits until there is a fault, the peer has left or this member has; then returns fault().
    std::optional<Fault> fault_behind(Rank peer, Deadline deadline);

    // ---- under the monitor's lock
    bool left_locked() const { return left_; }
    /// Whether that rank has died or left.
    bool is_gone_locked(Rank rank) const;

    // ---- changes
    void become(State state);
    /// Notes a death. False if it is not noted: not all have joined yet, or that rank is known to have died or left.
    bool note_death(Rank rank);
    struct Noted {
        bool first;        // this fault is now fault()
        bool was_joining;  // first, and not all had joined
    };
    /// Keeps the fault if it is the first. Does not wake waiting threads: see wake().
    Noted note(const Fault& fault);
    void wake() {
        monitor_.change([] {});
    }
    /// Notes a fault of this rank when there is no memory for its text. If not all have joined, joining has failed.
    void note_without_memory(Rank self);
    /// Notes that ranks have left. Returns those that were not noted before.
    std::vector<Rank> mark_left(const std::vector<Rank>& ranks);
    /// Notes that this member leaves, and drops the listener. False if it has left before.
    bool leave();
    /// Whether this member has left and has no news to pass on for others: all have left, there is a fault, or it has
    /// no connections (alone).
    bool is_idle(bool alone) const;

    // ---- the listener: called once, with the first fault, without the lock
    /// Calls it at once if there is a fault already. Ignored if this member has left.
    void set_listener(Listener listener);
    void drop_listener();
    void tell_listener(const Fault& fault);
    /// Waits until the listener is not running. Returns at once if called by the listener.
    void wait_listener();

  private:
    Monitor& monitor_;
    // Guarded by it:
    State state_ = State::joining;
    bool left_ = false;
    std::vector<bool> has_left_;  // by rank
    std::optional<Fault> fault_;
    std::vector<Rank> dead_;  // in the order of the news
    Listener listener_;
    std::thread::id listener_runs_;  // the thread that it runs on; none if it does not run
};

}  // namespace tutti::bootstrap
