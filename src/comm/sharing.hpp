// What threads that share work need of each other: work that is shown for a while, a place to sleep until there is
// some, and the first error. The parts of a Crew; each is any thread's, without a lock of its owner, unless a comment
// says otherwise.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>

#include "base/os.hpp"

namespace tutti {

/// A pointer to something that its owner shows to other threads and takes back later. show() and withdraw() are the
/// owner's.
template <class T>
class Shown {
  public:
    void show(T& what) { what_.store(&what, std::memory_order_seq_cst); }
    /// Returns when no thread uses it any more: what was shown, nullptr if nothing was.
    T* withdraw() {
        T* const was = what_.exchange(nullptr, std::memory_order_seq_cst);
        if (was == nullptr) return was;
        for (int looks = 0; inside_.load(std::memory_order_seq_cst) > 0; ++looks)
            looks < 100 ? cpu_relax() : void(sched_yield());
        return was;
    }
    bool is_shown() const { return what_.load(std::memory_order_relaxed) != nullptr; }
    /// Calls use(what). False if nothing is shown. use must not throw.
    template <class Use>
    bool use(Use&& use) {
        if (!is_shown()) return false;
        inside_.fetch_add(1, std::memory_order_seq_cst);
        T* const what = what_.load(std::memory_order_seq_cst);
        if (what != nullptr) use(*what);
        inside_.fetch_sub(1, std::memory_order_seq_cst);
        return what != nullptr;
    }

  private:
    std::atomic<T*> what_{nullptr};
    std::atomic<int> inside_{0};  // threads that may be using it
};

/// Where threads sleep until another one has work for them. A sleeper first reads word(), then looks for work, and then
/// sleeps on that word: so it misses none.
class Sleepers {
  public:
    std::uint32_t word() const { return word_.load(std::memory_order_seq_cst); }
    void sleep(std::uint32_t word, std::chrono::nanoseconds at_most) {
        asleep_.fetch_add(1, std::memory_order_seq_cst);
        futex_wait(word_, word, at_most);
        asleep_.fetch_sub(1, std::memory_order_relaxed);
    }
    void wake_all() {
        word_.fetch_add(1, std::memory_order_seq_cst);
        if (asleep_.load(std::memory_order_seq_cst) > 0) futex_wake_all(word_);
    }

  private:
    alignas(64) std::atomic<std::uint32_t> word_{0};
    std::atomic<int> asleep_{0};
};

/// The first error that any of several threads met.
class FirstError {
  public:
    /// Keeps the exception being handled, unless there is one already.
    void keep() noexcept {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        met_.store(true, std::memory_order_release);
    }
    void rethrow() {
        if (!met_.load(std::memory_order_acquire)) return;
        const std::lock_guard lock(mutex_);
        std::rethrow_exception(error_);
    }

  private:
    std::atomic<bool> met_{false};
    std::mutex mutex_;  // guards error_
    std::exception_ptr error_;
};

}  // namespace tutti
