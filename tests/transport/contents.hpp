// What messages between tests hold: looked up and compared as a whole, since sanitizers look at every access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/transport.hpp"

namespace tutti::harness {

/// What message m of a channel holds, up to slot_bytes: it differs from that of the messages and channels beside it.
inline const std::byte* contents(std::uint32_t m, int channel) {
    constexpr std::size_t starts = 251;
    static const std::vector<std::byte> all = [] {
        std::vector<std::byte> bytes(starts + slot_bytes);
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / starts);
        return bytes;
    }();
    return &all[(m * 7 + static_cast<unsigned>(channel) * 3) % starts];
}

}  // namespace tutti::harness
