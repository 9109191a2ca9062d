// The workers' clocks as a server sees them, and the pulls that wait for slower workers: stale synchronous parallel.
//
// (Q. Ho et al.: More effective distributed ML via a stale synchronous parallel parameter server. NIPS 2013.)
#pragma once

#include <algorithm>
#include <climits>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "base/os.hpp"

namespace tutti::dp::ps {

/// Counts the ticks (tuttiPsClock) of each worker. A worker's clock is the number of its ticks for which all earlier
/// pushes have been applied. Owned by the Server. Any thread; guarded by mutex_. Pull: describes a waiting pull and has
/// a member `worker`.
template <class Pull>
class Clocks {
  public:
    /// bound: how many clocks a worker may be ahead of the slowest one when it pulls; negative if unbounded.
    Clocks(std::size_t workers, int bound) : workers_(workers), bound_(bound) {}

    /// Call when a push arrives. Returns its clock, for applied().
    long long push(int worker) {
        std::lock_guard lock(mutex_);
        Worker& w = of(worker);
        ++w.unapplied.back();
        return w.ticks;
    }
    long long ticks(int worker) const {
        std::lock_guard lock(mutex_);
        return of(worker).ticks;
    }

    /// Asks whether a pull of a worker at `clock` may be answered now. If so, returns the clock of the slowest worker,
    /// or `clock` if that is lower. Otherwise keeps the pull and returns nullopt; a function below releases it.
    std::optional<long long> admit(long long clock, const Pull& pull, Deadline deadline) {
        std::lock_guard lock(mutex_);
        const long long least = slowest();
        if (bound_ < 0 || clock - least <= bound_) return std::min(least, clock);
        waiting_.push_back({clock, pull, deadline});
        return std::nullopt;
    }

    // Each returns the pulls that it releases; admit() will now let them through.
    std::vector<Pull> applied(int worker, long long clock) {
        std::lock_guard lock(mutex_);
        Worker& w = of(worker);
        --w.unapplied[static_cast<std::size_t>(clock - w.clock)];
        return advance(w);
    }
    std::vector<Pull> tick(int worker) {
        std::lock_guard lock(mutex_);
        Worker& w = of(worker);
        ++w.ticks;
        w.unapplied.push_back(0);
        return advance(w);
    }
    std::vector<Pull> drop(int worker) {
        std::lock_guard lock(mutex_);
        of(worker).lives = false;
        std::erase_if(waiting_, [&](const Waiting& one) { return one.pull.worker == worker; });
        return released();
    }
    /// Removes and returns the pulls whose deadline has passed.
    std::vector<Pull> expired(Deadline now) {
        std::lock_guard lock(mutex_);
        return taken([&](const Waiting& one) { return one.deadline <= now; });
    }

    struct Slowest {
        int worker = -1;
        long long clock = 0;
    };
    Slowest who_is_slowest() const {
        std::lock_guard lock(mutex_);
        Slowest found;
        for (std::size_t w = 0; w < workers_.size(); ++w)
            if (workers_[w].lives && (found.worker < 0 || workers_[w].clock < found.clock))
                found = {static_cast<int>(w), workers_[w].clock};
        return found;
    }

  private:
    struct Worker {
        bool lives = true;
        long long clock = 0, ticks = 0;
        std::deque<std::size_t> unapplied{0};  // pushes not applied yet, for each clock from `clock` to `ticks`
    };
    struct Waiting {
        long long clock;
        Pull pull;
        Deadline deadline;
    };

    Worker& of(int worker) { return workers_[static_cast<std::size_t>(worker)]; }
    const Worker& of(int worker) const { return workers_[static_cast<std::size_t>(worker)]; }
    long long slowest() const {
        long long least = LLONG_MAX;
        for (const Worker& w : workers_)
            if (w.lives) least = std::min(least, w.clock);
        return least;
    }
    std::vector<Pull> advance(Worker& w) {
        for (; w.unapplied.size() > 1 && w.unapplied.front() == 0; ++w.clock) w.unapplied.pop_front();
        return released();
    }
    std::vector<Pull> released() {
        const long long least = slowest();
        return taken([&](const Waiting& one) { return one.clock - least <= bound_; });
    }
    template <class Condition>
    std::vector<Pull> taken(Condition condition) {
        std::vector<Pull> all;
        std::erase_if(waiting_, [&](Waiting& one) {
            if (!condition(one)) return false;
            all.push_back(one.pull);
            return true;
        });
        return all;
    }

    mutable std::mutex mutex_;
    std::vector<Worker> workers_;
    std::vector<Waiting> waiting_;
    const int bound_;
};

}  // namespace tutti::dp::ps
