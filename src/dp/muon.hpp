// Muon: momentum whose step is made orthogonal. Of matrices; a step needs the whole one.
//
//     K. Jordan et al.: Muon: an optimizer for hidden layers in neural networks. 2024,
//     kellerjordan.github.io/posts/muon
#pragma once

#include <cstddef>

#include "dp/optimizer.hpp"

namespace tutti::dp {

struct MatrixShape {
    std::size_t rows, columns;
};

/// m = momentum * m + g;  u = g + momentum * m, all of whose singular values become about 1 by five steps of Newton and
/// Schulz;  w -= learning rate * sqrt(max(1, rows / columns)) * u, after the decay apart from it. Row by row, g as in
/// update(). A matrix depends on nothing but itself, so it has the same bits wherever it is updated.
void muon(const UpdateConstants<float>& c, MatrixShape shape, float* w, const float* g, float* m);

}  // namespace tutti::dp
