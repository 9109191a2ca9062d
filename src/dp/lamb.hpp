// LAMB: Adam's step, scaled for each parameter by the ratio of the norms of its weights and of the step. These are
// norms of whole parameters, so a step passes over the owned elements twice: measure(), and then apply().
//
//     Y. You et al.: Large batch optimization for deep learning: training BERT in 76 minutes. ICLR 2020, algorithm 2.
#pragma once

#include <cstdint>

#include "dp/exact_sum.hpp"
#include "dp/optimizer.hpp"

namespace tutti::dp {

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
