// Copies of a few bytes: for these, a call of the C library's memcpy() takes longer than the copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/fifo.hpp"

namespace tutti {

/// memcpy() of at most inline_bytes bytes, without a call. Both may be the same memory, and of 0 bytes be invalid.
inline void copy_few(std::byte* to, const std::byte* from, std::size_t bytes) {
    // A word at the beginning and one at the end; they may overlap.
    const auto ends = [&]<class Word>(Word first, Word last) {
        std::memcpy(&first, from, sizeof first);
        std::memcpy(&last, from + bytes - sizeof last, sizeof last);
        std::memcpy(to, &first, sizeof first);
        std::memcpy(to + bytes - sizeof last, &last, sizeof last);
    };
    struct Words {
        std::uint64_t two[2];
    };
    static_assert(inline_bytes <= 3 * sizeof(Words));
    if (bytes >= sizeof(Words)) {
        Words middle{};
        const std::size_t at = bytes > 2 * sizeof middle ? sizeof middle : 0;
        std::memcpy(&middle, from + at, sizeof middle);
        std::memcpy(to + at, &middle, sizeof middle);
        ends(Words{}, Words{});
    } else if (bytes >= 8) {
        ends(std::uint64_t{}, std::uint64_t{});
    } else if (bytes >= 4) {
        ends(std::uint32_t{}, std::uint32_t{});
    } else {
        for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
    }
}

/// memcpy() that takes a short way for few bytes. Both may be the same memory.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes <= inline_bytes)
        copy_few(to, from, bytes);
    else if (to != from)
        std::memcpy(to, from, bytes);
}

}  // namespace tutti
