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
constexpr std::chrono::hours until_rung{1};

void await_none(const std::atomic<int>& helpers) {
    for (int looks = 0; helpers.load(std::memory_order_seq_cst) > 0; ++looks)
        looks < 100 ? cpu_relax() : void(sched_yield());
}

}  // namespace

Crew::Crew(const Threads& threads, bool crowded, WakeUp& leader)
    : threads_(threads),
      spin_(config().spin_us >= 0 ? std::chrono::microseconds(config().spin_us)
            : crowded             ? std::chrono::microseconds(0)
                                  : helper_spin),
      leader_(leader) {}

Crew::~Crew() {
    ends_.store(true, std::memory_order_release);
    ring();
    for (Thread& thread : own_) thread.join();
}

void Crew::ring() {
    word_.fetch_add(1, std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst) > 0) futex_wake_all(word_);
}

void Crew::run(const std::function<void()>& lead) {
    if (threads_.parallel == nullptr) return lead();
    lead_ = &lead;
    lead_error_ = nullptr;
    leads_.store(-1, std::memory_order_relaxed);
    over_.store(false, std::memory_order_release);
    threads_.parallel(threads_.context, threads_.number, &Crew::body, this);
    lead_or_help(0);  // if parallel() ran no body, or they have not all returned
    if (lead_error_) std::rethrow_exception(std::exchange(lead_error_, nullptr));
}

void Crew::body(void* crew, int index) {
    static_cast<Crew*>(crew)->lead_or_help(index);
}

/// Leads if no body leads yet, else helps. Throws nothing, since the caller's parallel() is on the stack.
void Crew::lead_or_help(int index) {
    int nobody = -1;
    if (over_.load(std::memory_order_acquire)) return;
    if (!leads_.compare_exchange_strong(nobody, index, std::memory_order_acq_rel))
        return help(index == 0 ? nobody : index, over_);  // the leader is thread 0, so body 0 takes its number
    try {
        (*lead_)();
    } catch (...) {
        lead_error_ = std::current_exception();
    }
    over_.store(true, std::memory_order_release);
    ring();
}

void Crew::open(HostExecution& execution) {
    TUTTI_ASSERT(open_.load(std::memory_order_relaxed) == nullptr && execution.threads() > 1);
    if (threads_.parallel == nullptr) {
        choose_cores();
        if (!std::exchange(started_, true)) start();
    }
    open_.store(&execution, std::memory_order_seq_cst);
    ring();
}

HostExecution* Crew::close() {
    HostExecution* const execution = open_.exchange(nullptr, std::memory_order_seq_cst);
    if (execution == nullptr) return nullptr;
    await_none(inside_);
    return execution;
}

bool Crew::news() {
    if (failed_.load(std::memory_order_acquire)) {
        const std::lock_guard lock(mutex_);
        std::rethrow_exception(error_);
    }
    return std::exchange(heard_, news_.load(std::memory_order_acquire)) != heard_;
}

void Crew::rouse() {
    if (open_.load(std::memory_order_relaxed) != nullptr) ring();
}

void Crew::Parts::work() {
    for (std::size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) try {
            part_(i);
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!error_) error_ = std::current_exception();
        }
}

void Crew::spread(std::size_t count, const std::function<void(std::size_t)>& part) {
    Parts parts(count, part);
    if (open_.load(std::memory_order_relaxed) != nullptr) {  // else they sleep
        parts_.store(&parts, std::memory_order_seq_cst);
        ring();
    }
    parts.work();
    parts_.store(nullptr, std::memory_order_seq_cst);
    await_none(taking_part_);
    if (parts.error_) std::rethrow_exception(parts.error_);
}

/// For helpers: runs parts of a spread(). True if there was one.
bool Crew::take_part() {
    if (parts_.load(std::memory_order_relaxed) == nullptr) return false;
    taking_part_.fetch_add(1, std::memory_order_seq_cst);
    Parts* const parts = parts_.load(std::memory_order_seq_cst);
    if (parts != nullptr) parts->work();
    taking_part_.fetch_sub(1, std::memory_order_seq_cst);
    return parts != nullptr;
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
    inside_.fetch_add(1, std::memory_order_seq_cst);
    HostExecution* const execution = open_.load(std::memory_order_seq_cst);
    Look found = execution == nullptr ? Look::closed : Look::still;
    if (execution != nullptr && thread < execution->threads()) try {
            if (execution->share(thread)) found = Look::moved;
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!error_) error_ = std::current_exception();
            failed_.store(true, std::memory_order_release);
            found = Look::moved;
        }
    if (found == Look::moved) news_.fetch_add(1, std::memory_order_seq_cst);
    inside_.fetch_sub(1, std::memory_order_seq_cst);
    if (found == Look::moved) wake(leader_);
    return found;
}

void Crew::help(int thread, const std::atomic<bool>& over) {
    unsigned fruitless = 0, followed = 0;
    while (!over.load(std::memory_order_acquire)) {
        const std::uint32_t word = word_.load(std::memory_order_seq_cst);
        follow(followed);
        if (take_part()) fruitless = 0;
        switch (look(thread)) {
            case Look::moved:
                fruitless = 0;
                break;
            case Look::still:
                pass_time(fruitless++, word);
                break;
            case Look::closed:
                fruitless = 0;
                if (!over.load(std::memory_order_acquire)) sleep(word, until_rung);
        }
    }
}

void Crew::sleep(std::uint32_t word, std::chrono::nanoseconds at_most) {
    asleep_.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(word_, word, at_most);
    asleep_.fetch_sub(1, std::memory_order_relaxed);
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
        sleep(word, std::min<std::chrono::nanoseconds>(std::chrono::microseconds(50) * (1 << doubled), longest_nap));
    }
}

/// For the leader: chooses the helpers' cores near the memory that it is near to now, where its buffers mostly are.
void Crew::choose_cores() {
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

/// For helpers: moves to the cores that the leader has chosen. seen: the last choice that it followed.
void Crew::follow(unsigned& seen) {
    if (threads_.parallel != nullptr || moves_.load(std::memory_order_acquire) == seen) return;
    const std::lock_guard lock(mutex_);
    seen = moves_.load(std::memory_order_relaxed);
    if (!cores_.empty() && !bind_caller_to(cores_))
        log(Level::info, "a thread of the library can't be bound to cores near its memory");
}

}  // namespace tutti
