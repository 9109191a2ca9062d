#include "base/result.hpp"

#include "base/peer_error.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/caught.hpp"
#include "base/log.hpp"

namespace tutti {
namespace {

std::string format_text(const char* format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, again);
    va_end(again);
    std::string out(length > 0 ? static_cast<size_t>(length) : 0, '\0');
    std::vsnprintf(out.data(), out.size() + 1, format, arguments);
    return out;
}

std::string& error_text() {
    static thread_local std::string text;
    return text;
}

}  // namespace

std::string text(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string out = format_text(format, arguments);
    va_end(arguments);
    return out;
}

void fail(tuttiResult_t code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string out = format_text(format, arguments);
    va_end(arguments);
    throw Error(code, out);
}

void fail_by(Rank peer, tuttiResult_t code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const std::string out = format_text(format, arguments);
    va_end(arguments);
    throw PeerError(code, out, peer);
}

void fail_errno(const char* format, ...) {
    const int number = errno;
    va_list arguments;
    va_start(arguments, format);
    std::string out = format_text(format, arguments);
    va_end(arguments);
    throw Error(tuttiSystemError, out + ": " + std::strerror(number));
}

Error caught() {
    try {
        throw;
    } catch (const Error& error) {
        return error;
    } catch (const std::bad_alloc&) {
        return {tuttiSystemError, "out of memory"};
    } catch (const std::system_error& error) {
        return {tuttiSystemError, error.what()};
    } catch (const std::exception& error) {
        return {tuttiInternalError, error.what()};
    } catch (...) {
        return {tuttiInternalError, "an exception of an unknown kind"};
    }
}

void log_caught(const char* where) noexcept {
    try {
        log(Level::warn, "%s: %s", where, caught().what());
    } catch (...) {
        return;  // no memory for a text, and nobody else to tell
    }
}

tuttiResult_t keep(const Error& error) {
    error_text() = error.what();
    return error.code();
}

const std::string& last_error() {
    return error_text();
}

void assertion_failed(const char* expression, const char* file, int line) {
    std::fprintf(stderr, "tutti: internal error: %s does not hold at %s:%d\n", expression, file, line);
    std::abort();
}

}  // namespace tutti
