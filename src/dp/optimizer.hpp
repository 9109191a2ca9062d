// Updates of flat memory.
#pragma once

#include "dp/layout.hpp"
#include "kernels/update.hpp"

namespace tutti::dp {

/// What a rank keeps for the elements that it owns of a bucket. In fp32, for parameters of float64 in fp64.
struct States {
    std::byte* master = nullptr;               // of 16-bit parameters, else nullptr
    std::byte* state[2] = {nullptr, nullptr};  // momentum; or the two moments
};

/// fp64 for parameters of float64, else fp32.
DataType state_type(DataType data_type);

bool has_master(tuttiDpOptimizerKind_t kind, DataType data_type);

/// One piece's update. weights: the piece's first value, of the parameter's type; gradients: its first gradient, of
/// grad_type; states: those of the range that piece.at counts in. Elements depend on nothing but themselves, so a
/// parameter has the same bits however it is cut into pieces.
struct Update {
    const tuttiDpOptimizer_t* optimizer;
    double learning_rate, weight_decay;  // the group's
    long long step;                      // 1 at the first
    double unscale = 1;                  // what gradients are multiplied by first
};
void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
            const void* gradients, const States& states);

/// What the arithmetic of kernels/update.hpp needs of it.
UpdateNumbers numbers_of(const Update& how);

}  // namespace tutti::dp
