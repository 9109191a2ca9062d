// Powers of two and what the algorithms of logarithmic depth count with them. 1 <= n <= 2^30.
#pragma once

#include <algorithm>
#include <bit>

namespace tutti {

constexpr int floor_log(int n) {
    return std::bit_width(static_cast<unsigned>(n)) - 1;
}
constexpr int ceil_log(int n) {
    return std::bit_width(static_cast<unsigned>(n - 1));
}
constexpr int floor_power(int n) {
    return static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
}
constexpr int ceil_power(int n) {
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(n)));
}
constexpr bool is_power(int n) {
    return std::has_single_bit(static_cast<unsigned>(n));
}

/// Rounds on a hypercube, of n that is no power of two as well: to the opposite corner, or from a remainder rank there,
/// or from one to another, whose partner may be nearer.
constexpr int once_through_the_cube(int n) {
    const int remainder = n - floor_power(n);
    return remainder == 0 ? floor_log(n) : std::max(1 + floor_log(n), 2 + ceil_log(remainder));
}

/// The largest min(d, n - d) of a power d < n: the ranks under a child of a binomial tree's root, and the chunks of the
/// largest message of bruck's all-gather.
constexpr int largest_subtree(int n) {
    int most = 1;
    for (int d = 1; d < n; d *= 2) most = std::max(most, std::min(d, n - d));
    return most;
}

/// How many of 0..n-1 have this bit.
constexpr int with_bit(int n, int bit) {
    return n / (2 * bit) * bit + std::max(0, n % (2 * bit) - bit);
}

}  // namespace tutti
