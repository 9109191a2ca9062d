// Whatever the library catches becomes an Error.
#pragma once

#include "base/result.hpp"

namespace tutti {

/// The exception that is being handled, as an Error: one by itself, std::bad_alloc and std::system_error as
/// tuttiSystemError, any other as tuttiInternalError. Call it in a catch block. Needs no memory if there is none.
Error caught() noexcept;

/// The same, but an Error of another class (PeerError) as it is. Call it in a catch block.
template <class Act>
void with_caught(Act&& act) {
    try {
        throw;
    } catch (const Error& error) {
        act(error);
    } catch (...) {
        act(caught());
    }
}

/// The same as a line of the log. where: what was going on.
void log_caught(const char* where) noexcept;

/// Runs body() where nobody can catch what it throws: in a destructor, at the top of a thread. That is logged then.
template <class Body>
void shielded(const char* where, Body&& body) noexcept {
    try {
        body();
    } catch (...) {
        log_caught(where);
    }
}

}  // namespace tutti
