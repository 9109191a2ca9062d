// Where a FIFO's messages lie in its slots.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr std::uint32_t fifo_depth =
    16;  // messages in flight at most; enough that writers of short ones rarely read credits
inline constexpr std::uint16_t depth_to_all =
    64;  // the same, of messages to all: their writer often waits for nobody, so ranks that share cores switch less
inline constexpr std::uint32_t slot_depth = 4;  // of these, the ones that can lie in slots of their own
inline constexpr std::size_t slot_bytes = 256 * 1024;
inline constexpr std::size_t longest_slot_bytes = 2 * 1024 * 1024;  // on long paths
constexpr std::size_t slot_stride_of(std::size_t slot) {
    return slot + 4096 + 64;  // so that slots do not compete for the same cache sets
}
inline constexpr std::size_t slot_stride = slot_stride_of(slot_bytes);

/// Where messages of a length lie in slots: message n in slot n % slot_depth. A slot has room for several short ones,
/// so more than slot_depth of them can be under way. That also makes them faster: what one core has just read costs
/// another one more to write again. Between far cores, messages that take turns in 256 KiB take two thirds of the time
/// that they take in 128 (docs/performance-cpu.md).
struct SlotPlaces {
    std::uint32_t count = slot_depth;  // messages in a row that do not overlap; a power of two
    std::size_t bytes = 0;             // from one to the next in a slot

    friend bool operator==(const SlotPlaces&, const SlotPlaces&) = default;
    /// From the first slot on. stride: from one slot to the next, in bytes.
    std::size_t offset_of(std::uint32_t message, std::size_t stride) const {
        return message % slot_depth * stride + (message & (count - 1)) / slot_depth * bytes;
    }
};

inline constexpr std::size_t least_place = 1024;
/// bytes: of the longest message. depth: messages in flight at most. room: of all places together, at most that of the
/// slots.
constexpr SlotPlaces places_for(std::size_t bytes, std::size_t stride, std::uint32_t depth, std::size_t room) {
    const std::size_t place = std::max(std::bit_ceil(bytes), least_place);
    std::uint32_t count = depth;
    while (count > slot_depth && (bytes * count > room || place * count > slot_depth * stride)) count /= 2;
    return {count, count == slot_depth ? 0 : place};
}

}  // namespace tutti
