#include "dp/muon.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tutti::dp {
namespace {

// Jordan's coefficients: five steps bring singular values from 0 to 1 to between 0.7 and 1.2.
constexpr float a = 3.4445f, b = -4.7750f, c = 2.0315f;
constexpr int steps = 5;

using Values = std::vector<float>;  // row-major

/// into = x y, of n x k and k x m. The inner loop runs along rows, so that it is vectorised.
void multiply(const Values& x, const Values& y, Values& into, std::size_t n, std::size_t k, std::size_t m) {
    std::ranges::fill(into, 0.0f);
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t l = 0; l < k; ++l) {
            const float factor = x[i * k + l];
            const float* const from = &y[l * m];
            float* const to = &into[i * m];
            for (std::size_t j = 0; j < m; ++j) to[j] += factor * from[j];
        }
}

Values transposed(const Values& x, std::size_t rows, std::size_t columns) {
    Values t(x.size());
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) t[j * rows + i] = x[i * columns + j];
    return t;
}

/// Replaces x, of n rows, n <= columns, by about the nearest matrix with orthonormal rows.
void orthogonalize(Values& x, std::size_t n, std::size_t columns) {
    double squares = 0;
    for (const float each : x) squares += static_cast<double>(each) * each;
    const auto norm = static_cast<float>(std::sqrt(squares)) + 1e-7f;
    for (float& each : x) each /= norm;
    Values gram(n * n), square(n * n), next(x.size());
    for (int step = 0; step < steps; ++step) {
        multiply(x, transposed(x, n, columns), gram, n, columns, n);
        multiply(gram, gram, square, n, n, n);
        for (std::size_t i = 0; i < gram.size(); ++i) gram[i] = b * gram[i] + c * square[i];
        multiply(gram, x, next, n, n, columns);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = a * x[i] + next[i];
    }
}

}  // namespace

void muon(const UpdateConstants<float>& constants, MatrixShape shape, float* w, const float* g, float* m) {
    const auto [rows, columns] = shape;
    Values u(rows * columns);
    for (std::size_t i = 0; i < u.size(); ++i) {
        const float gradient = constants.unscale * g[i];
        m[i] = constants.momentum * m[i] + gradient;
        u[i] = gradient + constants.momentum * m[i];
    }
    const bool tall = rows > columns;
    if (tall) u = transposed(u, rows, columns);
    orthogonalize(u, std::min(rows, columns), std::max(rows, columns));
    if (tall) u = transposed(u, columns, rows);
    const float longer = std::sqrt(std::max(1.0f, static_cast<float>(rows) / static_cast<float>(columns)));
    const float rate = constants.learning_rate * longer;
    for (std::size_t i = 0; i < u.size(); ++i) w[i] = constants.shrink * w[i] - rate * u[i];
}

}  // namespace tutti::dp
