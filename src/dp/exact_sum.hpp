// Sums of squares that have the same bits whichever rank adds which part.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "base/types.hpp"
#include "kernels/exact.hpp"

namespace tutti::dp {

/// An exact sum of sums of a few squares of Ts (kernels/exact.hpp). It has the same bits in whatever order, and on
/// whatever ranks, they are added: two sums are added word by word, as int64.
template <class T>
class BasicExactSum {
  public:
    /// x: not negative.
    void add(double x);
    /// Adds the words of a sum that a GPU has made, and carries.
    void add(const std::int64_t* words);
    /// The most additions between two calls of carry(), or before the first.
    static constexpr std::int64_t additions = std::int64_t{1} << 30;
    /// Leaves less than 2^32 in each limb but the last, which sums do not reach.
    void carry();
    /// The sum; NaN if an infinity or a NaN was added.
    double value() const;

  private:
    using Limbs = ExactLimbs<T>;
    // An addition puts less than 1.5 * 2^32 into a limb: up to 32 bits of one half of a mantissa, and 31 of the other.
    static_assert(additions <= (std::numeric_limits<std::int64_t>::max() - UINT32_MAX) / (std::int64_t{3} << 31));
    std::array<std::int64_t, Limbs::words> words_{};
};

using ExactSum = BasicExactSum<float>;

/// The squares of floats of 16 and 32 bits, and of those of 64 bits.
struct Squares {
    ExactSum floats;
    BasicExactSum<double> doubles;
    double value() const { return floats.value() + doubles.value(); }
};
// They are summed over ranks as an array of int64.
inline constexpr std::size_t integers_of_squares = sizeof(Squares) / sizeof(std::int64_t);
static_assert(sizeof(Squares) % sizeof(std::int64_t) == 0);

/// Adds the squares of a piece of a parameter, which has parameter_count elements. type: a float of 16, 32 or 64 bits.
/// The piece begins at the parameter's first element, or where a shard does.
void add_squares(DataType type, const void* values, std::size_t count, std::size_t parameter_count, Squares& into);

}  // namespace tutti::dp
