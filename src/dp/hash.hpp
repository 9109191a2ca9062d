// A hash for comparing memory and files. Against accidents, not against malice.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

namespace tutti::dp {

inline std::uint64_t hash(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    std::uint64_t h[4] = {bytes, 1, 2, 3};
    const auto mix = [](std::uint64_t x, std::uint64_t word) {
        x = (x ^ word) * 0x9e3779b97f4a7c15u;
        return x ^ std::rotr(x, 29);
    };
    for (; bytes >= 32; at += 32, bytes -= 32)
        for (std::size_t k = 0; k < 4; ++k) {  // four chains, so that multiplications overlap
            std::uint64_t word;
            std::memcpy(&word, at + 8 * k, 8);
            h[k] = mix(h[k], word);
        }
    for (; bytes > 0; ++at, --bytes) h[0] = mix(h[0], *at);
    return mix(mix(mix(h[0], h[1]), h[2]), h[3]);
}

inline std::uint64_t hash(const std::string& text) {
    return hash(text.data(), text.size());
}

}  // namespace tutti::dp
