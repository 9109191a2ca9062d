// A process-wide table of objects by key. The table holds weak references and does not own the objects. Any thread.
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
    /// Takes an entry out. Does not allocate, so destructors may call it.
    void remove(std::uint64_t key) {
        const std::lock_guard lock(mutex_);
        all_.erase(key);
    }
    /// The object; nullptr if there is no such key or the object is gone.
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
