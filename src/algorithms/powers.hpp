// Powers of two, and closed forms of algorithms of logarithmic depth. 1 <= n <= 2^30.
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

/// Rounds on a hypercube, also if n is no power of two. The longest chain goes from a rank to the opposite corner, from
/// a remainder rank to there, or from one remainder rank to another, whose partners may be nearer.
constexpr int once_through_the_cube(int n) {
    const int remainder = n - floor_power(n);
    return remainder == 0 ? floor_log(n) : std::max(1 + floor_log(n), 2 + ceil_log(remainder));
}

/// The largest min(d, n - d) over powers of two d < n. It is the largest number of ranks below a child of a binomial
/// tree's root, and the number of chunks of the largest message of bruck's all-gather.
constexpr int largest_subtree(int n) {
    int most = 1;
    for (int d = 1; d < n; d *= 2) most = std::max(most, std::min(d, n - d));
    return most;
}

/// How many of 0..n-1 have this bit (a power of two) set.
constexpr int with_bit(int n, int bit) {
    return n / (2 * bit) * bit + std::max(0, n % (2 * bit) - bit);
}

}  // namespace tutti
