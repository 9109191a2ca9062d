// Objects of this process that others find by a key. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace tutti {

template <class T>
class ByKey {
  public:
    void add(std::uint64_t key, const std::shared_ptr<T>& object) {
        const std::lock_guard lock(mutex_);
        all_[key] = object;
    }
    /// Of one that goes. Needs no memory.
    void remove(std::uint64_t key) {
        const std::lock_guard lock(mutex_);
        all_.erase(key);
    }
    /// nullptr: there is none any more.
    std::shared_ptr<T> find(std::uint64_t key) {
        const std::lock_guard lock(mutex_);
        const auto found = all_.find(key);
        return found == all_.end() ? nullptr : found->second.lock();
    }

  private:
    std::mutex mutex_;
    std::map<std::uint64_t, std::weak_ptr<T>> all_;
};

}  // namespace tutti
