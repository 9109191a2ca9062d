// Per-thread state. In contrast to a thread_local object with a destructor, for which the C library ends the process
// if it can't allocate the registration, this throws std::bad_alloc.
#pragma once

#include <pthread.h>

#include <memory>
#include <new>

namespace tutti {

/// The calling thread's instance of T, of which there is one for each type. It is created on the first call and
/// destroyed when the thread ends. Throws std::bad_alloc.
template <class T>
T& of_this_thread() {
    static constinit thread_local T* mine = nullptr;
    if (mine != nullptr) [[likely]]
        return *mine;
    static const pthread_key_t key = [] {
        pthread_key_t made;
        if (pthread_key_create(&made, [](void* at) {
                mine = nullptr;
                delete static_cast<T*>(at);
            }) != 0)
            throw std::bad_alloc();
        return made;
    }();
    auto made = std::make_unique<T>();
    if (pthread_setspecific(key, made.get()) != 0) throw std::bad_alloc();
    mine = made.release();
    return *mine;
}

}  // namespace tutti
