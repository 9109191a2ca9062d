// LAMB: Adam's step, made as long for each parameter as the parameter is. It needs two norms of whole parameters, so a
// step goes over the owned elements twice: measure() changes nothing, and apply() makes the step.
//
//     Y. You et al.: Large batch optimization for deep learning: training BERT in 76 minutes. ICLR 2020, algorithm 2.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "dp/optimizer.hpp"

namespace tutti::dp {

/// A sum of doubles of 0 or more, as a number of 32 bits a limb: exact, so it has the same bits in whatever order and
/// parts they are added. Two are added limb by limb, and so are those of ranks, as int64. The doubles are sums of a few
/// squares of floats: less than 2^260, and nothing below 2^-350.
class ExactSum {
  public:
    void add(double x);
    /// At most so many between two calls of carry(), or before the first.
    static constexpr std::int64_t additions = std::int64_t{1} << 30;
    /// Leaves less than 2^32 in each limb but the last, which the sum does not reach.
    void carry();
    /// Not a number if something that was added is not finite.
    double value() const;

  private:
    static constexpr int limbs = 21, lowest = -352;  // exponent of the first limb's first bit
    // Each puts less than 1.5 * 2^32 into a limb: up to 32 bits of one half of a mantissa, and 31 of the other one.
    static_assert(additions <= (std::numeric_limits<std::int64_t>::max() - UINT32_MAX) / (std::int64_t{3} << 31));
    std::array<std::int64_t, limbs> limbs_{};
    std::int64_t not_finite_ = 0;
};

/// Of a parameter, squared.
struct Norms {
    ExactSum weights, step;
};
/// Norms as a row of integers, to be added up over ranks.
static_assert(sizeof(Norms) % sizeof(std::int64_t) == 0);
inline constexpr std::size_t integers_of_norms = sizeof(Norms) / sizeof(std::int64_t);

/// A piece's part, of a parameter of so many elements; other arguments as update() has them. Masters follow the caller.
void measure(const Update& how, const Piece& piece, std::size_t parameter_count, DataType data_type, void* weights,
             DataType grad_type, const void* gradients, const States& states, Norms& into);

/// What the step is multiplied by: the norm of the weights over that of the step, 1 if one of them is zero.
float trust_ratio(const Norms& norms);

void apply(const Update& how, float ratio, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
           const void* gradients, const States& states);

}  // namespace tutti::dp
