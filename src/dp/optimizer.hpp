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
/// parameter has the same bits however it is cut into pieces; but for whole ones.
struct Update {
    const tuttiDpOptimizer_t* optimizer;
    double learning_rate, weight_decay;  // the group's
    long long step;                      // 1 at the first
    double unscale = 1;                  // what gradients are multiplied by first
    bool whole = false;                  // the piece is a whole parameter, updated at once
    std::size_t rows = 0;                // tuttiDpMuon: of the matrix that it is; 0: it is updated as tuttiDpAdamW does
};
void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
            const void* gradients, const States& states);

/// The values that a master is rounded to, and those that lie there: where they differ the caller has written since the
/// last update, and the master follows. `rounded` is room for them.
template <class T>
void follow_the_caller(DataType data_type, const std::byte* stored, T* master, std::byte* rounded, std::size_t n);

/// What the arithmetic of kernels/update.hpp needs of it.
UpdateNumbers numbers_of(const Update& how);

}  // namespace tutti::dp
