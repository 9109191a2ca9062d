// Handles of the C API. The memory of a destroyed handle is kept, so that a later use of it is recognised and refused.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"

namespace tutti::dp {

/// Base of tuttiDp and tuttiPs. number: a magic number, different for each kind of handle.
template <class Held, std::uint32_t number>
struct Handle {
    static constexpr std::uint32_t living = number, dead = number - 1;
    std::atomic<std::uint32_t> magic{living};
    std::unique_ptr<Held> held;
};

/// Makes a handle that owns `held`. Any thread.
template <class Of, class Held>
Of* keep_handle(std::unique_ptr<Held> held) {
    constexpr std::size_t most = 256;  // handles to keep; beyond that, the oldest is reused if it was destroyed
    static std::mutex mutex;
    static auto* all = new std::vector<std::unique_ptr<Of>>;
    std::lock_guard lock(mutex);
    all->reserve(most);
    if (all->size() >= most && all->front()->magic.load(std::memory_order_acquire) == Of::dead)
        std::rotate(all->begin(), all->begin() + 1, all->end());
    else
        all->push_back(std::make_unique<Of>());
    Of& handle = *all->back();
    handle.held = std::move(held);
    handle.magic.store(Of::living, std::memory_order_release);
    return &handle;
}

/// Returns what a living handle holds. name: the argument's, for error texts. Throws tuttiInvalidArgument.
template <class Of>
auto& held_by(Of* handle, const char* function, const char* name) {
    if (handle == nullptr) fail(tuttiInvalidArgument, "%s: %s is NULL", function, name);
    if (handle->magic.load(std::memory_order_acquire) != Of::living)
        fail(tuttiInvalidArgument, "%s: %s was destroyed before, or is none", function, name);
    return *handle->held;
}

/// Marks the handle as destroyed and returns what it held, to one caller only. Throws tuttiInvalidArgument.
template <class Of>
auto take_from(Of* handle, const char* function, const char* name) {
    held_by(handle, function, name);
    std::uint32_t expected = Of::living;
    if (!handle->magic.compare_exchange_strong(expected, Of::dead))
        fail(tuttiInvalidArgument, "%s: %s was destroyed before", function, name);
    return std::move(handle->held);
}

template <class T>
T& required(T* pointer, const char* function, const char* name) {
    if (pointer == nullptr) fail(tuttiInvalidArgument, "%s: %s is NULL", function, name);
    return *pointer;
}

}  // namespace tutti::dp
