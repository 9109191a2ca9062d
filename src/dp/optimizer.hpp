// Optimizer updates of arrays on the host.
#pragma once

#include "dp/layout.hpp"
#include "kernels/update.hpp"

namespace tutti::dp {

/// What the optimizer keeps for the owned elements of a bucket, an array each. In fp32; in fp64 for parameters of
/// float64.
struct States {
    std::byte* master = nullptr;               // values in full precision; nullptr unless parameters have 16 bits
    std::byte* state[2] = {nullptr, nullptr};  // the momentum, or the two moments; nullptr where not used
};

/// fp64 for parameters of float64, else fp32.
DataType state_type(DataType data_type);

bool has_master(tuttiDpOptimizerKind_t kind, DataType data_type);

struct Update {
    const tuttiDpOptimizer_t* optimizer;
    double learning_rate, weight_decay;  // of the parameter's group
    long long step;                      // updates of the parameter, with this one: 1 at the first
    double unscale = 1;                  // gradients are multiplied by this first
    bool whole = false;                  // the piece is a whole parameter, to be updated at once
    std::size_t rows = 0;                // tuttiDpMuon: rows of the matrix; 0 to update as tuttiDpAdamW does
};
/// Updates one piece. weights: its first value, of data_type; gradients: its first gradient, of grad_type; states: the
/// start of the arrays, of which the piece begins at element piece.at. Unless `whole`, each element is updated by
/// itself, so a parameter gets the same bits however it is cut into pieces.
void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
            const void* gradients, const States& states);

/// Compares n stored values with the master rounded to their type. Where they differ the caller has written since the
/// last update, and the master takes the stored value. rounded: scratch memory for n elements of data_type.
template <class T>
void follow_the_caller(DataType data_type, const std::byte* stored, T* master, std::byte* rounded, std::size_t n);

/// The constants of the update for kernels/update.hpp.
UpdateNumbers numbers_of(const Update& how);

}  // namespace tutti::dp
