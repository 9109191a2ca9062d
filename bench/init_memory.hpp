// Whether a row of init_bench fits into memory. What does not fit is not begun: the kernel would end processes, of this
// program or others.
#pragma once

#include <cstddef>

namespace init_bench {

/// What a rank holds, in KiB: its own memory and its part of what is shared with others, and what the kernel has for
/// it.
struct Held {
    int ranks;
    double joined, called;  // once it has joined; after the calls, with its links
};

/// Figures of 2026-11-24 (bench/results), for when there are no rows yet.
constexpr Held known_small{256, 800, 1500}, known_large{1024, 1300, 2700};

enum class Extent { whole, join_only, nothing };

struct Affordable {
    Extent extent;
    double joined, called;  // bytes, of all ranks together
};

/// What of a row with so many ranks fits into that much memory, a tenth of which stays free. Each rank's costs are on
/// the line through two smaller rows.
constexpr Affordable affordable(int ranks, const Held& small, const Held& large, std::size_t available) {
    const auto of_all = [&](double Held::*what) {
        const double slope = (large.*what - small.*what) / (large.ranks - small.ranks);
        return (large.*what + (slope > 0 ? slope : 0) * (ranks - large.ranks)) * 1024 * ranks;
    };
    const double joined = of_all(&Held::joined), called = of_all(&Held::called);
    const double most = static_cast<double>(available) * 0.9;
    return {called <= most ? Extent::whole : joined <= most ? Extent::join_only : Extent::nothing, joined, called};
}

}  // namespace init_bench
