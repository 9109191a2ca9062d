// Reads and fills structs of programs that were built with another version of dp.h, whose structs end with fewer or
// more fields. See dp.h, (8).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/result.hpp"
#include "tutti/dp.h"

namespace tutti::dp {

/// The size of a struct in the first version, where this was its last field.
template <class Struct, class Field>
constexpr std::size_t end_of(std::size_t offset, Field Struct::*) {
    return (offset + sizeof(Field) + alignof(Struct) - 1) / alignof(Struct) * alignof(Struct);
}
template <class Struct>
inline constexpr std::size_t first_size = 0;
#define TUTTI_FIRST_SIZE(type, field) \
    template <>                       \
    inline constexpr std::size_t first_size<type> = end_of(offsetof(type, field), &type::field)
TUTTI_FIRST_SIZE(tuttiDpParameter_t, unit);
TUTTI_FIRST_SIZE(tuttiDpGroup_t, weightDecay);
TUTTI_FIRST_SIZE(tuttiDpMemory_t, host);
TUTTI_FIRST_SIZE(tuttiDpStatistics_t, staleness);
TUTTI_FIRST_SIZE(tuttiDpBucketStatistics_t, exposedUs);
TUTTI_FIRST_SIZE(tuttiDpSampler_t, epoch);
TUTTI_FIRST_SIZE(tuttiDpBatch_t, outputBytes);
#undef TUTTI_FIRST_SIZE

template <class Struct>
void check_size(const char* function, std::size_t size) {
    if (size < first_size<Struct> || size > 4096)
        fail(tuttiInvalidArgument,
             "%s: the caller's struct has %zu bytes; %zu or more was expected: was it built with "
             "another dp.h?",
             function, size, first_size<Struct>);
}

/// Copies `count` structs of `size` bytes each from the caller. Fields that the caller does not have are 0; fields that
/// this library does not have must be 0. Throws tuttiInvalidArgument. Returns none if `given` is nullptr.
template <class Struct>
std::vector<Struct> read_sized(const char* function, const Struct* given, std::size_t count, std::size_t size) {
    check_size<Struct>(function, size);
    std::vector<Struct> all(given == nullptr ? 0 : count);
    const auto* at = reinterpret_cast<const std::byte*>(given);
    for (Struct& one : all) {
        std::memcpy(&one, at, std::min(size, sizeof one));
        if (std::any_of(at + std::min(size, sizeof one), at + size, [](std::byte b) { return b != std::byte{0}; }))
            fail(
                tuttiInvalidArgument,
                "%s: a field is set that this library, of version %d, does not know: the caller was built with a newer "
                "dp.h",
                function, TUTTI_VERSION_CODE);
        at += size;
    }
    return all;
}

/// The caller's config: the fields that both sides know, and those of `known` for the rest. first: the offset of the
/// field after the header. Throws tuttiInvalidArgument if the config has not been initialized.
template <class Config>
Config known_part(const char* function, const Config* given, Config known, std::size_t first, const char* initializer) {
    if (given == nullptr) return known;
    if (given->magic != known.magic || given->size < first)
        fail(tuttiInvalidArgument, "%s: the config was not initialized with %s", function, initializer);
    std::memcpy(&known, given, std::min(given->size, sizeof known));
    return known;
}

/// Copies value to the caller's struct of `size` bytes. Fields that this library does not have become 0.
template <class Struct>
void fill_sized(const char* function, Struct* into, std::size_t size, const Struct& value) {
    check_size<Struct>(function, size);
    auto* const at = reinterpret_cast<std::byte*>(into);
    std::memcpy(at, &value, std::min(size, sizeof value));
    std::fill(at + std::min(size, sizeof value), at + size, std::byte{0});
}

}  // namespace tutti::dp
