// Handles that are numbers, none of which is used twice: a destroyed or foreign one is simply not found. Any thread may
// use them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace tutti {

/// A table of such handles, with a lock of its own. Handle: a pointer to an incomplete type. Pointer: what a handle
/// stands for; find() returns an empty one if the handle is not known.
template <class Handle, class Pointer>
class Numbered {
  public:
    Handle add(Pointer what) {
        std::unique_lock lock(mutex_);
        auto* const handle = reinterpret_cast<Handle>(last_ += 16);
        living_[handle] = std::move(what);
        return handle;
    }
    Pointer find(Handle handle) const {
        std::shared_lock lock(mutex_);
        const auto found = living_.find(handle);
        return found == living_.end() ? Pointer{} : found->second;
    }
    /// False if the handle is not known.
    bool remove(Handle handle) {
        std::unique_lock lock(mutex_);
        return living_.erase(handle) > 0;
    }

  private:
    mutable std::shared_mutex mutex_;
    std::map<Handle, Pointer> living_;
    std::uintptr_t last_ = 16;
};

}  // namespace tutti
