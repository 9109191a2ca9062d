// Muon: momentum whose step is made orthogonal. For matrices; a step needs the whole matrix.
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

/// m = momentum * m + g;  u = g + momentum * m, whose singular values five Newton-Schulz steps bring to about 1;
/// w -= learning rate * sqrt(max(1, rows / columns)) * u, after the decoupled weight decay. Matrices are row-major; g
/// is not unscaled yet. The result depends on this matrix alone, so it has the same bits on whatever rank it is
/// updated.
void muon(const UpdateConstants<float>& c, MatrixShape shape, float* w, const float* g, float* m);

}  // namespace tutti::dp
