// Turns any exception that the library catches into an Error.
#pragma once

#include <optional>

#include "base/result.hpp"

namespace tutti {

/// The exception being handled, as an Error: an Error keeps its code, std::bad_alloc and std::system_error become
/// tuttiSystemError, all others tuttiInternalError. Call it in a catch block. Works when memory is exhausted.
Error caught() noexcept;

/// Calls act(error) with the exception being handled. Subclasses of Error (PeerError) keep their class; all other
/// exceptions are converted as by caught(). Call it in a catch block.
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

/// Logs the exception being handled as a warning. where: what the library was doing. Call it in a catch block.
void log_caught(const char* where) noexcept;

/// Runs body() and logs what it throws. For places where an exception has no catcher: destructors and the tops of
/// threads.
template <class Body>
void shielded(const char* where, Body&& body) noexcept {
    try {
        body();
    } catch (...) {
        log_caught(where);
    }
}

/// Runs body() and keeps in `first` what it throws, unless an error is there already.
template <class Body>
void keep_first(std::optional<Error>& first, Body&& body) noexcept {
    try {
        body();
    } catch (...) {
        if (!first) first = caught();
    }
}

}  // namespace tutti
