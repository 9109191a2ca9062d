// Sizes as users write them on the command lines of benchmarks and tools.
#pragma once

#include <cctype>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace perf {

inline constexpr const char* what_sizes_are = "sizes look like 8, 4K, 1.5M, 2G, and are 1e15 at most";

/// In bytes; nullopt: it is none.
inline std::optional<std::size_t> size_of_text(const std::string& text) {
    std::size_t used = 0, unit = 0;
    double value = -1;
    try {
        value = std::stod(text, &used);
    } catch (const std::exception&) {
    }
    constexpr std::string_view units = "BKMG";
    constexpr double most = 1e15;
    if (used + 1 == text.size())
        unit = units.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text[used]))));
    if (unit != std::string_view::npos) value *= static_cast<double>(std::size_t{1} << (10 * unit));
    if (used == 0 || text.size() > used + 1 || unit == std::string_view::npos || !(value >= 0) || value > most)
        return std::nullopt;
    return static_cast<std::size_t>(value);
}

}  // namespace perf
