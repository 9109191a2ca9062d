// LAMB: Adam's step, scaled for each parameter by the ratio of the norms of its weights and of the step. These are
// norms of whole parameters, so a step passes over the owned elements twice: measure(), and then apply().
//
//     Y. You et al.: Large batch optimization for deep learning: training BERT in 76 minutes. ICLR 2020, algorithm 2.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "dp/optimizer.hpp"

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

/// The squared 2-norms of a parameter's weights and of its step.
struct Norms {
    ExactSum weights, step;
};
// Norms are summed over ranks as an array of int64.
static_assert(sizeof(Norms) % sizeof(std::int64_t) == 0);
inline constexpr std::size_t integers_of_norms = sizeof(Norms) / sizeof(std::int64_t);

/// Adds a piece's contribution to the norms of its parameter. parameter_count: elements of the parameter; the other
/// arguments are as for update(). Changes nothing but masters, which follow what the caller has written.
void measure(const Update& how, const Piece& piece, std::size_t parameter_count, DataType data_type, void* weights,
             DataType grad_type, const void* gradients, const States& states, Norms& into);

/// The factor of the step: the norm of the weights over the norm of the step; 1 if either is zero.
float trust_ratio(const Norms& norms);

/// Makes the step of a piece. ratio: the trust_ratio() of its parameter; the other arguments are as for update().
void apply(const Update& how, float ratio, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
           const void* gradients, const States& states);

}  // namespace tutti::dp
