#include "comm/symmetric.hpp"

#include <algorithm>

namespace tutti {

void SymmetricWindows::add(const Window& window, std::span<const std::byte> mine) {
    all_.push_back({&window, mine});
}

void SymmetricWindows::remove(const Window& window) {
    std::erase_if(all_, [&](const One& one) { return one.window == &window; });
}

bool SymmetricWindows::any_holds(const void* buffer, std::size_t bytes) const {
    const auto* const at = static_cast<const std::byte*>(buffer);
    return std::ranges::any_of(all_, [&](const One& one) {
        const auto begin = static_cast<std::size_t>(at - one.mine.data());  // huge if `at` is before it
        return begin <= one.mine.size() && bytes <= one.mine.size() - begin;
    });
}

bool SymmetricWindows::hold(const Operation& o) const {
    if (all_.empty() || o.one_sided != nullptr || o.rows != nullptr) return false;
    const std::size_t row = o.count * size_of(o.type), all = row * static_cast<std::size_t>(ranks_);
    const auto both = [&](std::size_t in, std::size_t out) {
        return any_holds(o.input, in) && any_holds(o.output, out);
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
            return false;
    }
}

}  // namespace tutti
