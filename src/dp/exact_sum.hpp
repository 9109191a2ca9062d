// Sums of squares that have the same bits whichever rank adds which part.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "base/types.hpp"

namespace tutti::dp {

/// An exact sum of non-negative doubles, in limbs of 32 bits. It has the same bits in whatever order, and on whatever
/// ranks, they are added: two sums are added limb by limb, as int64. The doubles must be sums of a few squares of
/// floats: less than 2^260, and without bits below 2^-350.
class ExactSum {
  public:
    void add(double x);
    /// The most additions between two calls of carry(), or before the first.
    static constexpr std::int64_t additions = std::int64_t{1} << 30;
    /// Leaves less than 2^32 in each limb but the last, which sums do not reach.
    void carry();
    /// The sum; NaN if an infinity or a NaN was added.
    double value() const;

  private:
    static constexpr int limbs = 21, lowest = -352;  // lowest: exponent of the first limb's lowest bit
    // An addition puts less than 1.5 * 2^32 into a limb: up to 32 bits of one half of a mantissa, and 31 of the other.
    static_assert(additions <= (std::numeric_limits<std::int64_t>::max() - UINT32_MAX) / (std::int64_t{3} << 31));
    std::array<std::int64_t, limbs> limbs_{};
    std::int64_t not_finite_ = 0;
};

/// Adds the squares of a piece of a parameter, which has parameter_count elements. type: a float of 16 or 32 bits. The
/// piece begins at the parameter's first element, or where a shard does.
void add_squares(DataType type, const void* values, std::size_t count, std::size_t parameter_count, ExactSum& into);

}  // namespace tutti::dp
