// A hash for comparing memory and files. Against accidents, not against malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::dp {

std::uint64_t hash(const void* data, std::size_t bytes);

inline std::uint64_t hash(const std::string& text) {
    return hash(text.data(), text.size());
}

}  // namespace tutti::dp
