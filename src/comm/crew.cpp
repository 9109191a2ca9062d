#include "comm/crew.hpp"

#include <sched.h>

#include <algorithm>

#include "base/caught.hpp"
#include "base/config.hpp"
#include "base/cores.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "topology/placement.hpp"

namespace tutti {
namespace {

// How a helper without work waits while a call goes on. To wake one that sleeps costs the leader a system call; a
// missed wake-up costs only the helper's help.
constexpr std::chrono::microseconds helper_spin{20}, helper_yields{50};
constexpr std::chrono::milliseconds longest_nap{5};
constexpr std::chrono::hours until_woken{1};

}  // namespace

void HelperCores::choose() {
    const std::map<int, std::vector<int>>& memories = memories_here();
    const auto here = memories.find(sched_getcpu());
    if (here == memories.end() || here->second == memory_) return;
    const std::vector<int> allowed = cores_of_caller();
    const std::lock_guard lock(mutex_);
    memory_ = here->second;
    cores_.clear();
    for (const int core : allowed)
        if (const auto its = memories.find(core); its != memories.end() && its->second == memory_)
            cores_.push_back(core);
    moves_.fetch_add(1, std::memory_order_release);
}

void HelperCores::follow(unsigned& seen) {
    if (moves_.load(std::memory_order_acquire) == seen) return;
    const std::lock_guard lock(mutex_);
    seen = moves_.load(std::memory_order_relaxed);
    if (!cores_.empty() && !bind_caller_to(cores_))
        log(Level::info, "a thread of the library can't be bound to cores near its memory");
}

void LentCall::begin(const std::function<void()>& lead) {
    lead_ = &lead;
    leader_.store(-1, std::memory_order_relaxed);
    over_.store(false, std::memory_order_release);
}

int LentCall::enter(int index) {
    int leader = -1;
    if (over_.load(std::memory_order_acquire)) return 0;
    if (!leader_.compare_exchange_strong(leader, index, std::memory_order_acq_rel)) return index == 0 ? leader : index;
    try {
        (*lead_)();
    } catch (...) {  // thrown by rethrow(), since the caller's parallel() is on the stack
        error_ = std::current_exception();
    }
    over_.store(true, std::memory_order_release);
    return 0;
}

void LentCall::rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

Crew::Crew(const Threads& threads, bool crowded, WakeUp& leader)
    : threads_(threads),
      spin_(config().spin_us >= 0 ? std::chrono::microseconds(config().spin_us)
            : crowded             ? std::chrono::microseconds(0)
                                  : helper_spin),
      leader_(leader) {}

Crew::~Crew() {
    ends_.store(true, std::memory_order_release);
    sleepers_.wake_all();
    for (Thread& thread : own_) thread.join();
}

void Crew::run(const std::function<void()>& lead) {
    if (threads_.parallel == nullptr) return lead();
    lent_.begin(lead);
    threads_.parallel(threads_.context, threads_.number, &Crew::body, this);
    lead_or_help(0);  // if parallel() ran no body, or they have not all returned
    lent_.rethrow();
}

void Crew::body(void* crew, int index) {
    static_cast<Crew*>(crew)->lead_or_help(index);
}

void Crew::lead_or_help(int index) {
    if (const int helper = lent_.enter(index); helper > 0) return help(helper, lent_.over());
    sleepers_.wake_all();  // helpers whose call is over
}

void Crew::open(HostExecution& execution) {
    TUTTI_ASSERT(!execution_.is_shown() && execution.threads() > 1);
    if (threads_.parallel == nullptr) {
        cores_.choose();
        if (!std::exchange(started_, true)) start();
    }
    execution_.show(execution);
    sleepers_.wake_all();
}

HostExecution* Crew::close() {
    return execution_.withdraw();
}

bool Crew::news() {
    error_.rethrow();
    return std::exchange(heard_, news_.load(std::memory_order_acquire)) != heard_;
}

void Crew::rouse() {
    if (execution_.is_shown()) sleepers_.wake_all();
}

void Crew::Parts::work() {
    for (std::size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) try {
            part_(i);
        } catch (...) {
            error_.keep();
        }
}

void Crew::spread(std::size_t count, const std::function<void(std::size_t)>& part) {
    Parts parts(count, part);
    if (execution_.is_shown()) {  // else they sleep
        parts_.show(parts);
        sleepers_.wake_all();
    }
    parts.work();
    parts_.withdraw();
    parts.error_.rethrow();
}

/// Starts the helpers. If threads can't be had, the calls go on with fewer.
void Crew::start() {
    try {
        for (int thread = 1; thread < threads_.number; ++thread)
            own_.push_back(start_thread("tutti-crew", [this, thread] { help(thread, ends_); }));
    } catch (...) {
        with_caught([&](const Error& error) {
            log(Level::warn, "calls go on with %zu of %d threads: %s", own_.size() + 1, threads_.number, error.what());
        });
    }
}

Crew::Look Crew::look(int thread) {
    Look found = Look::closed;
    execution_.use([&](HostExecution& execution) {
        found = Look::still;
        if (thread < execution.threads()) try {
                if (execution.share(thread)) found = Look::moved;
            } catch (...) {
                error_.keep();
                found = Look::moved;
            }
        if (found == Look::moved) news_.fetch_add(1, std::memory_order_seq_cst);
    });
    if (found == Look::moved) wake(leader_);
    return found;
}

void Crew::help(int thread, const std::atomic<bool>& over) {
    unsigned fruitless = 0, followed = 0;
    while (!over.load(std::memory_order_acquire)) {
        const std::uint32_t word = sleepers_.word();
        cores_.follow(followed);
        if (parts_.use([](Parts& parts) { parts.work(); })) fruitless = 0;
        switch (look(thread)) {
            case Look::moved:
                fruitless = 0;
                break;
            case Look::still:
                pass_time(fruitless++, word);
                break;
            case Look::closed:
                fruitless = 0;
                if (!over.load(std::memory_order_acquire)) sleepers_.sleep(word, until_woken);
        }
    }
}

/// For helpers, after `fruitless` looks in a row: spins, yields or sleeps on `word`. A fruitless look takes some 100
/// ns.
void Crew::pass_time(unsigned fruitless, std::uint32_t word) {
    const auto spins = static_cast<unsigned>(spin_.count()) * 10;
    const unsigned yields = spins + static_cast<unsigned>(helper_yields.count());
    if (fruitless < spins) {
        cpu_relax();
    } else if (fruitless < yields) {
        sched_yield();
    } else {
        const unsigned doubled = std::min(fruitless - yields, 8u);
        sleepers_.sleep(
            word, std::min<std::chrono::nanoseconds>(std::chrono::microseconds(50) * (1 << doubled), longest_nap));
    }
}

}  // namespace tutti
