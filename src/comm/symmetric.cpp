#include "comm/symmetric.hpp"

#include <algorithm>

#include "base/os.hpp"

namespace tutti {

void SymmetricWindows::add(const Window& window, std::span<const std::byte> mine) {
    all_.push_back({&window, mine});
}

void SymmetricWindows::remove(const Window& window) {
    std::erase_if(all_, [&](const One& one) { return one.window == &window; });
}

std::uint32_t SymmetricWindows::signature_of(std::span<const std::uint64_t> facts) {
    const std::uint64_t hash = fnv({reinterpret_cast<const char*>(facts.data()), facts.size_bytes()});
    return static_cast<std::uint32_t>(hash ^ hash >> 32);
}

std::optional<SymmetricWindows::Place> SymmetricWindows::find(const void* buffer, std::size_t bytes) const {
    const auto* const at = static_cast<const std::byte*>(buffer);
    for (const One& one : all_) {
        const auto begin = static_cast<std::size_t>(at - one.mine.data());  // huge if `at` is before it
        if (begin <= one.mine.size() && bytes <= one.mine.size() - begin) return Place{one.window, begin};
    }
    return std::nullopt;
}

std::optional<std::pair<SymmetricWindows::Place, SymmetricWindows::Place>> SymmetricWindows::find(
    const Operation& o) const {
    if (all_.empty() || o.one_sided != nullptr || o.rows != nullptr) return std::nullopt;
    const std::size_t row = o.count * size_of(o.type), all = row * static_cast<std::size_t>(ranks_);
    const auto both = [&](std::size_t in, std::size_t out) -> std::optional<std::pair<Place, Place>> {
        const std::optional<Place> input = find(o.input, in), output = find(o.output, out);
        if (!input || !output) return std::nullopt;
        return std::pair(*input, *output);
    };
    switch (o.collective) {
        case Collective::all_reduce:
            return both(row, row);
        case Collective::reduce_scatter:
            return both(all, row);
        case Collective::all_gather:
            return both(row, all);
        case Collective::all_to_all:
            return both(all, all);
        default:  // not all ranks have both buffers
            return std::nullopt;
    }
}

}  // namespace tutti
