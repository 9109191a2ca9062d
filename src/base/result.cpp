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
#include "base/per_thread.hpp"

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

/// The calling thread's last error. last_text points into LastText or to a constant.
struct LastText {
    std::string text;
};
constinit thread_local const char* last_text = "";

const Error& no_memory = *new const Error(tuttiSystemError, "out of memory");  // made while there is memory

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

Error caught() noexcept {
    try {
        try {
            throw;
        } catch (const Error& error) {
            return error;
        } catch (const std::bad_alloc&) {
            return no_memory;
        } catch (const std::system_error& error) {
            return {tuttiSystemError, error.what()};
        } catch (const std::exception& error) {
            return {tuttiInternalError, error.what()};
        } catch (...) {
            return {tuttiInternalError, "an exception of an unknown kind"};
        }
    } catch (...) {  // no memory for the text
        return no_memory;
    }
}

void log_caught(const char* where) noexcept {
    try {
        log(Level::warn, "%s: %s", where, caught().what());
    } catch (...) {
        return;  // no memory for the text, and no other way to report
    }
}

tuttiResult_t keep(const Error& error) noexcept {
    try {
        std::string& text = of_this_thread<LastText>().text;
        text = error.what();
        last_text = text.c_str();
    } catch (const std::bad_alloc&) {
        last_text = "out of memory, also for the text of an error";
    }
    return error.code();
}

tuttiResult_t keep_caught() noexcept {
    return keep(caught());
}

const char* last_error() noexcept {
    return last_text;
}

void assertion_failed(const char* expression, const char* file, int line) {
    std::fprintf(stderr, "tutti: internal error: %s does not hold at %s:%d\n", expression, file, line);
    std::abort();
}

}  // namespace tutti
