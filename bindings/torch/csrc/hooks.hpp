// What torch wants to be told of a group's operations: its flight recorder, of those that end and of the first that
// fails. Nothing before torch 2.15.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "torch.hpp"

namespace tutti_torch {

#if TUTTI_TORCH_AT_LEAST(2, 15)

/// Any thread may call any of it.
class Hooks {
  public:
    Hooks() = default;
    Hooks(const Hooks&) = delete;
    Hooks& operator=(const Hooks&) = delete;
    ~Hooks() { settle(); }

    void add(std::int64_t id, c10d::CompletionHook hook) { put(completion_, id, std::move(hook)); }
    void add(std::int64_t id, c10d::AbortHook hook) {
        put(abort_, id, std::make_shared<const c10d::AbortHook>(std::move(hook)));
    }
    void remove_completion(std::int64_t id) { remove(completion_, id); }
    /// Returns when the hook does not run any more.
    void remove_abort(std::int64_t id) {
        remove(abort_, id);
        settle();
    }

    /// An operation has ended well. `milliseconds` is how long it took.
    void completed(const c10d::Work& work, float milliseconds) const;
    /// An operation is about to be given up. Returns when all have been told.
    void failed() const { tell(abort_hooks()); }
    /// An operation has failed. All are told in a thread of its own, for who waits is to learn of it at once: torch's
    /// flight recorder takes many seconds to look up the names of functions. One failure at a time.
    void failed_meanwhile() const;
    /// Waits for that thread.
    void settle() const;
    bool any() const { return any_.load(std::memory_order_relaxed); }

  private:
    /// By their numbers. Hooks of Python's take Python's lock to be copied and to end, which another thread may hold
    /// while it waits for mutex_: under that neither is done.
    using AbortHooks = std::map<std::int64_t, std::shared_ptr<const c10d::AbortHook>>;
    /// A copy: they may take their time, and come back.
    AbortHooks abort_hooks() const;
    static void tell(const AbortHooks& hooks);
    template <typename Hook>
    void put(std::map<std::int64_t, Hook>& hooks, std::int64_t id, Hook hook) {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::swap(hooks[id], hook);  // what was there ends behind the lock, with the argument
        any_ = true;
    }
    template <typename Hook>
    void remove(std::map<std::int64_t, Hook>& hooks, std::int64_t id) {
        typename std::map<std::int64_t, Hook>::node_type removed;
        const std::lock_guard<std::mutex> lock(mutex_);
        removed = hooks.extract(id);
        any_ = !completion_.empty() || !abort_.empty();
    }

    mutable std::mutex mutex_;
    std::atomic<bool> any_{false};
    std::map<std::int64_t, c10d::CompletionHook> completion_;
    AbortHooks abort_;
    mutable std::mutex telling_mutex_;  // of the two below
    mutable std::thread telling_;
    mutable std::atomic<bool> tells_{false};
};

#else

struct Hooks {
    void completed(const c10d::Work&, float) const {}
    void failed() const {}
    void failed_meanwhile() const {}
    void settle() const {}
    bool any() const { return false; }
};

#endif

}  // namespace tutti_torch
