// What a member has heard of: whether all have joined, who has left, who has died, and the first fault; and the
// listener that is told of that. Changed by the service thread, and by users who leave; any thread may ask, and wait.
#pragma once

#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "bootstrap/monitor.hpp"
#include "bootstrap/session.hpp"

namespace tutti::bootstrap {

class News {
  public:
    enum class State { joining, joined, failed };
    using Listener = std::function<void(const Fault&)>;

    News(Monitor& monitor, int ranks) : monitor_(monitor), has_left_(static_cast<std::size_t>(ranks)) {}

    bool is(State state) const {
        return monitor_.look([&] { return state_ == state; });
    }
    /// False: not in time. Throws what went wrong, if something did.
    bool wait_joined(Deadline deadline);
    bool has_left(Rank rank) const;
    /// This member has left.
    bool left() const {
        return monitor_.look([&] { return left_; });
    }
    std::vector<Rank> dead() const;
    std::optional<Fault> fault() const;
    /// The same after a wait until there is one, the peer has left, or this member has.
    std::optional<Fault> fault_behind(Rank peer, Deadline deadline);

    // ---- under the monitor's lock
    bool left_locked() const { return left_; }
    /// It has died or left.
    bool is_gone_locked(Rank rank) const;

    // ---- changes
    void become(State state);
    /// True if it is news: only of a member that all have known, and that had not left.
    bool note_death(Rank rank);
    struct Noted {
        bool first;        // fault() is this one
        bool was_joining;  // and comes before all had joined
    };
    /// The first one is kept. Those who wait are not woken yet: see wake().
    Noted note(const Fault& fault);
    void wake() {
        monitor_.change([] {});
    }
    /// A fault of which there is no memory to say more; what was still to be joined has failed.
    void note_without_memory(Rank self);
    /// Those of which it is news.
    std::vector<Rank> mark_left(const std::vector<Rank>& ranks);
    /// This member leaves. False if it has left before.
    bool leave();
    /// A member that has left has nobody any more to pass news on for. alone: without connections.
    bool is_idle(bool alone) const;

    // ---- the listener: called once, with the first fault
    /// With this one if there was one already.
    void set_listener(Listener listener);
    void drop_listener();
    void tell_listener(const Fault& fault);
    /// Until no listener runs, unless it is the listener that waits.
    void wait_listener();

  private:
    Monitor& monitor_;
    // Guarded by it:
    State state_ = State::joining;
    bool left_ = false;
    std::vector<bool> has_left_;
    std::optional<Fault> fault_;
    std::vector<Rank> dead_;
    Listener listener_;
    std::thread::id listener_runs_;  // on this thread
};

}  // namespace tutti::bootstrap
