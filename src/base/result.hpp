// Errors are thrown as Error inside the library and turned into a tuttiResult_t at the C API. A communicator that an
// error has ended keeps it. The path of a small message does not throw.
#pragma once

#include <new>
#include <stdexcept>
#include <string>

#include "tutti/tutti.h"

namespace tutti {

class Error : public std::runtime_error {
  public:
    Error(tuttiResult_t code, const std::string& text) : std::runtime_error(text), code_(code) {}
    tuttiResult_t code() const { return code_; }

  private:
    tuttiResult_t code_;
};

/// Formats a text like printf.
std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Throws Error(code, formatted text).
[[noreturn]] void fail(tuttiResult_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Throws tuttiSystemError: "<what>: <strerror(errno)>".
[[noreturn]] void fail_errno(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Stores the error's text as the calling thread's last error, which tuttiGetLastError returns. Returns its code.
tuttiResult_t keep(const Error& error) noexcept;
const char* last_error() noexcept;
/// keep() for the exception being handled. Call it in a catch block.
tuttiResult_t keep_caught() noexcept;

/// Runs body() and turns an exception into a result, as keep_caught() does.
template <class Body>
tuttiResult_t guarded(Body&& body) noexcept {
    try {
        body();
        return tuttiSuccess;
    } catch (...) {
        return keep_caught();
    }
}

/// Checks an invariant of the library, also in release builds. Prints expression, file and line, and aborts.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);
#define TUTTI_ASSERT(expression) \
    (__builtin_expect(!!(expression), 1) ? (void)0 : ::tutti::assertion_failed(#expression, __FILE__, __LINE__))

}  // namespace tutti
