#include "comm/driver.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/caught.hpp"
#include "base/config.hpp"

namespace tutti {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Decides how to pass the time between two fruitless looks. Spinning is free only while a core is; a yield helps only
/// where the scheduler then runs another rank, which it does not when every rank has a session of its own (some
/// launchers give them that, and the kernel schedules sessions as groups); a sleeper costs its waker a system call, and
/// some 30 us until it runs. Where ranks outnumber cores, those that run at the same time often wait for each other for
/// less than two switches take: to look on then spares the switch to a rank that could not go on either.
class Backoff {
  public:
    /// wake-up: of the rank that waits. trust: how long to go on with yields that do not switch; learned from wait to
    /// wait.
    Backoff(bool oversubscribed, WakeUp& wake_up, microseconds& trust)
        : wake_up_(wake_up), trust_(trust), looks_on_(oversubscribed && config().spin_us < 0) {
        const int chosen = config().spin_us;
        spin_ = microseconds(chosen >= 0 ? chosen : oversubscribed ? 0 : 20);
        yield_until_ = spin_ + milliseconds(oversubscribed ? 2 : 1);
    }
    void reset() {
        if (futile_) trust_ = std::min(trust_ + microseconds(5), longest_trust);  // it was worth it
        futile_ = started_ = looked_on_ = false;
        looks_ = yields_ = 0;
        yielding_ = {};
        if (adaptive_spin_ != nullptr) adaptive_spin_->won();
        adaptive_spin_ = nullptr;
    }

    /// False when it is time to sleep. execution: what waits, if it is one.
    bool stay_awake(HostExecution* execution) {
        if (spin_.count() != 0 && yields_ == 0) {
            if (++looks_ % looks_per_clock != 0) {
                cpu_relax();
                return true;
            }
            if (since_start() < spin_) return true;
        }
        if (looks_on_ && execution != nullptr && look_on(*execution)) {
            cpu_relax();
            return true;
        }
        looked_on_ = false;
        if (++yields_ % yields_per_clock != 0) {  // most waits end before, without a look at the clock
            sched_yield();
            return true;
        }
        const auto before = since_start();
        sched_yield();
        const auto waited = since_start();
        yielding_ += yields_per_clock * (waited - before);  // as if all had been like this one
        futile_ = yielding_ < yields_ * switch_time;
        if (futile_ && yielding_ > trust_) {
            trust_ = std::max(trust_ / 2, shortest_trust);
            futile_ = false;
            return false;
        }
        return waited < yield_until_;
    }
    std::chrono::nanoseconds waited() const { return started_ ? Clock::now() - start_ : std::chrono::nanoseconds(0); }

  private:
    /// Since it was asked first.
    std::chrono::nanoseconds since_start() {
        const auto now = Clock::now();
        if (!started_) start_ = now;
        started_ = true;
        return now - start_;
    }

    /// Whether to wait for ranks on other cores a moment longer.
    bool look_on(HostExecution& execution) {
        const std::int32_t core = sched_getcpu() + 1;
        if (wake_up_.core.load(std::memory_order_relaxed) != core) wake_up_.core.store(core, std::memory_order_relaxed);
        if (!execution.waits_for_other_cores(core)) {
            adaptive_spin_ = nullptr;
        } else if (adaptive_spin_ == nullptr) {
            if (looked_on_ || !execution.adaptive_spin().worth_it()) return false;
            adaptive_spin_ = &execution.adaptive_spin();
            looked_on_ = true;
            looks_ = 0;
            looking_since_ = Clock::now();
        } else if (++looks_ % 4 == 0 && Clock::now() - looking_since_ > two_switches) {
            adaptive_spin_->lost();
            adaptive_spin_ = nullptr;
        }
        return adaptive_spin_ != nullptr;
    }

    static constexpr unsigned looks_per_clock = 64;  // reading the clock takes half as long as a message
    static constexpr unsigned yields_per_clock = 4;
    static constexpr std::chrono::nanoseconds switch_time{500};  // a yield that takes less has switched to nobody
    static constexpr std::chrono::nanoseconds two_switches{2000};
    static constexpr microseconds shortest_trust{2}, longest_trust{50};

    WakeUp& wake_up_;
    microseconds& trust_;
    const bool looks_on_;
    std::chrono::nanoseconds spin_{}, yield_until_{}, yielding_{};
    unsigned looks_ = 0, yields_ = 0;
    bool futile_ = false, started_ = false;
    bool looked_on_ = false;                 // since the last switch
    AdaptiveSpin* adaptive_spin_ = nullptr;  // looking on
    Deadline start_{}, looking_since_{};
};

/// The operations of one batch while they run: queues of which the heads are under way.
class Work {
  public:
    explicit Work(Batch& batch) : comm_(*batch.comm), turn_(batch.turn), compare_only_(batch.compare_only) {
        for (const Operation& o : batch.operations)
            if (o.is_pair() && o.root == comm_.rank())
                to_itself_.push_back(o);
            else
                queues_[o.queue()].operations.push_back(o);
    }
    ~Work() { turn_.end(); }
    Work(const Work&) = delete;

    Communicator& comm() { return comm_; }
    TicketLock::Turn await_turn() { return turn_.await(); }
    bool finished() const { return queues_.empty() && to_itself_.empty(); }
    HostExecution* any() { return queues_.empty() ? nullptr : queues_.begin()->second.running; }

    bool progress() {
        bool moved = !to_itself_.empty();
        for (const Operation& o : to_itself_)  // what is sent is the receive's input
            if (o.collective == Collective::recv) std::memmove(o.output, o.input, o.count * size_of(o.type));
        to_itself_.clear();
        for (auto q = queues_.begin(); q != queues_.end();) {
            Queue& queue = q->second;
            if (const OneSided* const o = queue.operations.front().one_sided) {
                moved |= advance(*o, queue);
                q = queue.operations.empty() ? queues_.erase(q) : std::next(q);
                continue;
            }
            if (queue.running == nullptr) {
                queue.comparing = comm_.options().check && q->first == 0 && !queue.compared;
                const Operation& next = queue.operations.front();
                queue.running = &comm_.begin(queue.comparing ? comm_.comparison().exchange(next) : next);
            }
            moved |= queue.running->progress();
            if (queue.running->finished()) {
                queue.running = nullptr;
                if (queue.comparing) comm_.comparison().check();
                queue.compared = queue.comparing && !compare_only_ && queue.operations.front().moves();
                if (!queue.compared) queue.operations.pop_front();
                moved = true;
            }
            q = queue.operations.empty() ? queues_.erase(q) : std::next(q);
        }
        moved |= comm_.connections().poll();
        if (finished()) comm_.connections().rest(false);
        return moved;
    }
    void diagnose(std::chrono::nanoseconds waited) {
        for (auto& [number, queue] : queues_)
            if (queue.running != nullptr)
                comm_.faults().diagnose(*queue.running, waited);
            else if (const OneSided* const o = queue.operations.front().one_sided)
                comm_.windows().diagnose(*o, waited);
    }

  private:
    struct Queue {
        std::deque<Operation> operations;
        HostExecution* running = nullptr;
        bool comparing = false, compared = false;  // Options::check: what runs is the exchange of calls; it has run
        std::size_t put = 0;                       // bytes of the one-sided operation under way
    };

    bool advance(const OneSided& operation, Queue& queue) {
        const std::size_t before = queue.put;
        if (!comm_.windows().advance(operation, queue.put)) return queue.put != before;
        queue.operations.pop_front();
        queue.put = 0;
        return true;
    }
    Communicator& comm_;
    Reservation& turn_;
    const bool compare_only_;
    std::map<int, Queue> queues_;
    std::vector<Operation> to_itself_;
};

/// Sleeps until a peer wakes comm, at most for `at_most`. look() is the last look, after which a wake-up can't be
/// missed; where fences on all cores are not to be had it can, and the sleep is short. rest() hands the network over.
template <class Look, class Rest>
void sleep_on(Communicator& comm, std::chrono::nanoseconds at_most, Look&& look, Rest&& rest) {
    WakeUp& wake_up = comm.connections().page().wake_up;
    const bool all_fence = comm.waiting().all_fence;
    const std::uint32_t word = wake_up.word.load(std::memory_order_acquire);
    wake_up.sleeping.store(1, std::memory_order_seq_cst);
    const bool wake_ups_reach_us = all_fence && fence_all_cores();
    if (!look() && !rest()) futex_wait(wake_up.word, word, wake_ups_reach_us ? at_most : milliseconds(1));
    wake_up.sleeping.store(0, std::memory_order_relaxed);
}

/// Looks at `work` until it is finished: spins, yields and sleeps while nothing of it moves. Its finished() may throw.
template <class Work>
void look_after(Work& work, Backoff& backoff) {
    while (!work.finished()) {
        if (work.progress()) {
            backoff.reset();
            continue;
        }
        if (backoff.stay_awake(work.execution())) continue;
        bool news = false;
        sleep_on(
            work.wakes(), work.longest_sleep(), [&] { return news = work.progress(); },
            [&] { return news = work.rest(); });
        if (news || work.progress_or_diagnose(backoff.waited())) backoff.reset();
    }
}

/// One operation.
class Single {
  public:
    Single(Communicator& comm, HostExecution& execution) : comm_(comm), execution_(execution) {}
    bool finished() const {
        if (execution_.finished()) return true;
        comm_.faults().check();
        return false;
    }
    bool progress() {
        const bool moved = execution_.progress();
        if (execution_.finished()) return true;
        return comm_.connections().poll() | moved | comm_.faults().failed();
    }
    bool rest() { return comm_.connections().rest(true); }
    bool progress_or_diagnose(std::chrono::nanoseconds waited) {
        if (progress()) return true;
        comm_.faults().diagnose(execution_, waited);
        return false;
    }
    HostExecution* execution() const { return &execution_; }
    Communicator& wakes() const { return comm_; }
    milliseconds longest_sleep() const { return milliseconds(20); }

  private:
    Communicator& comm_;
    HostExecution& execution_;
};

/// Batches under way, with the first error of those that have ended.
class SharedThread {
  public:
    explicit SharedThread(std::span<Batch> batches) {
        for (Batch& batch : batches) work_.push_back(std::make_unique<Work>(batch));
    }
    std::optional<Error> run() {
        await_turns();
        if (work_.empty()) return std::move(first_);
        bool oversubscribed = work_.size() > 1;
        for (const auto& w : work_) oversubscribed |= w->comm().waiting().oversubscribed;
        microseconds trust = wakes().waiting().trust_in_yields;
        Backoff backoff(oversubscribed, wakes().connections().page().wake_up, trust);
        look_after(*this, backoff);
        return std::move(first_);
    }

    bool finished() const { return work_.empty(); }
    bool progress() {
        return look([](Work& w) { return w.progress(); }) || finished();
    }
    bool rest() {
        bool moved = false;
        for (auto& w : work_) moved |= w->comm().connections().rest(true);
        return moved;
    }
    bool progress_or_diagnose(std::chrono::nanoseconds waited) {
        return look([&](Work& w) {
            if (w.progress()) return true;
            w.diagnose(waited);
            return false;
        });
    }
    HostExecution* execution() const { return nullptr; }
    /// Ranks that this thread drives wake each other by running; only one can be slept for, so the others cap the
    /// sleep.
    Communicator& wakes() const { return work_.front()->comm(); }
    milliseconds longest_sleep() const { return work_.size() == 1 ? milliseconds(20) : milliseconds(1); }

  private:
    /// One look at everything; a communicator that fails ends, the others go on (they hear of it if they are
    /// concerned).
    template <class Act>
    bool look(Act&& act) {
        bool moved = false;
        for (auto w = work_.begin(); w != work_.end();) {
            Communicator& comm = (*w)->comm();
            try {
                comm.faults().check();
                moved |= act(**w);
            } catch (...) {
                with_caught([&](const Error& error) { comm.faults().fail(error); });
                if (!first_) first_ = comm.faults().error();
                w = work_.erase(w);
                moved = true;
                continue;
            }
            w = (*w)->finished() ? work_.erase(w) : std::next(w);
        }
        return moved;
    }

    /// What fails before its turn has come, or while it waits for that of others, waits no longer.
    void await_turns() {
        for (bool all_inside = false; !all_inside;) {
            all_inside = true;
            look([&](Work& w) {
                // Only the first one that is outside waits: the turns come in any order.
                if (all_inside) all_inside = w.await_turn() == TicketLock::Turn::inside;
                return false;
            });
        }
    }

    std::vector<std::unique_ptr<Work>> work_;
    std::optional<Error> first_;
};

}  // namespace

void run_one(Communicator& comm, const Operation& operation) {
    comm.faults().check();
    try {
        Single single(comm, comm.begin(operation));
        Backoff backoff(comm.waiting().oversubscribed, comm.connections().page().wake_up,
                        comm.waiting().trust_in_yields);
        look_after(single, backoff);
        comm.connections().rest(false);
    } catch (const Error& error) {
        comm.faults().fail(error);
        comm.faults().check();  // what is thrown may be what lies behind the error
    } catch (...) {
        comm.faults().fail(caught());
        throw;
    }
}

std::optional<Error> run_batches(std::span<Batch> batches) {
    try {
        return SharedThread(batches).run();
    } catch (...) {
        const Error error = caught();  // what is not done now never will be, and the other ranks wait for it
        for (Batch& batch : batches) batch.comm->faults().fail(error);
        return error;
    }
}

}  // namespace tutti
