// Updates of flat memory.
#pragma once

#include <vector>

#include "dp/layout.hpp"

namespace tutti::dp {

/// What a rank keeps for the elements that it owns of a bucket. In fp32, for parameters of float64 in fp64.
struct States {
    std::vector<std::byte> master;    // of 16-bit parameters
    std::vector<std::byte> state[2];  // momentum; or the two moments
    std::size_t bytes() const { return master.size() + state[0].size() + state[1].size(); }
};

/// fp64 for parameters of float64, else fp32.
DataType state_type(DataType data_type);

States make_states(tuttiDpOptimizerKind_t kind, DataType data_type, std::size_t elements);

/// One piece's update. weights: the piece's first value, of the parameter's type; gradients: its first gradient, of
/// grad_type; states: those of the range that piece.at counts in. Elements depend on nothing but themselves, so a
/// parameter has the same bits however it is cut into pieces.
struct Update {
    const tuttiDpOptimizer_t* optimizer;
    double learning_rate, weight_decay;  // the group's
    long long step;                      // 1 at the first
};
void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
            const void* gradients, States& states);

}  // namespace tutti::dp
