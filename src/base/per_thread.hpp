// State of each thread. Where there is no memory to note the destructor of a thread_local object, the C library ends
// the process; here that is a std::bad_alloc, as for all other memory.
#pragma once

#include <pthread.h>

#include <memory>
#include <new>

namespace tutti {

/// The calling thread's T: made when it is first asked for, destroyed when the thread ends. One for each type.
/// Throws std::bad_alloc.
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
