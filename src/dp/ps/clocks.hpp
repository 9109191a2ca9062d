// How far workers have come, as a server sees it, and the pulls that wait for slower ones: stale synchronous parallel.
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

/// A worker's clock is how many of its ticks have come behind pushes that have all been applied. Any thread. Pull: what
/// waits, with a member `worker`.
template <class Pull>
class Clocks {
  public:
    /// bound: by how many clocks a worker may be ahead of the slowest when it pulls; negative: by any number.
    Clocks(std::size_t workers, int bound) : workers_(workers), bound_(bound) {}

    /// A push has come. Its clock, for applied().
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

    /// The slowest worker's clock, if a pull with this clock may go on; otherwise it is kept until changes let it go.
    std::optional<long long> admit(long long clock, const Pull& pull, Deadline deadline) {
        std::lock_guard lock(mutex_);
        const long long least = slowest();
        if (bound_ < 0 || clock - least <= bound_) return std::min(least, clock);
        waiting_.push_back({clock, pull, deadline});
        return std::nullopt;
    }

    // Each returns the pulls that need not wait any more; admit() lets them through now.
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
    /// Pulls that have waited too long, and do not wait any more.
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
        std::deque<std::size_t> unapplied{0};  // pushes, by clock from `clock` on to `ticks`
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
