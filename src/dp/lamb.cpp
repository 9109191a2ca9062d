#include "dp/lamb.hpp"

#include <algorithm>
#include <cmath>

#include "dp/numbers.hpp"

namespace tutti::dp {
namespace {

constexpr std::size_t rows = 1024;  // elements at a time, so that converted values stay in the L1 cache
static_assert(rows <= ExactSum::additions);
constexpr std::size_t together = 8;  // squares that are first added as doubles; no shard ends between them ...
constexpr std::size_t several = 64;  // ... in parameters of this many elements, which begin in cache lines of their own

/// One element's new moments, and its step before it is scaled by the trust ratio.
struct Step {
    float m, v, direction;
};
Step step_of(const UpdateConstants<float>& c, float w, float gradient, float m, float v) {
    const float g = c.unscale * gradient;
    Step s;
    s.m = c.beta1 * m + c.rest1 * g;
    s.v = c.beta2 * v + c.rest2 * g * g;
    s.direction = (s.m / c.correction1) / (std::sqrt(s.v / c.correction2) + c.epsilon) + c.coupled * w;
    return s;
}

/// Calls body(first, count, weights, gradients, m, v) for blocks of elements, all as floats. stores: rounds the weights
/// from the master afterwards.
template <class Body>
void each_row(const Piece& piece, DataType data_type, void* values, DataType grad_type, const void* gradients,
              const States& states, bool stores, Body body) {
    float g[rows], w_here[rows];
    const std::size_t size = size_of(data_type), grad_size = size_of(grad_type);
    auto* const m = reinterpret_cast<float*>(states.state[0]) + piece.at;
    auto* const v = reinterpret_cast<float*>(states.state[1]) + piece.at;
    for (std::size_t i = 0; i < piece.count; i += rows) {
        const std::size_t n = std::min(rows, piece.count - i);
        std::byte* const stored = static_cast<std::byte*>(values) + i * size;
        convert(DataType::float32, g, grad_type, static_cast<const std::byte*>(gradients) + i * grad_size, n);
        float* w = reinterpret_cast<float*>(stored);
        if (states.master != nullptr) {
            w = reinterpret_cast<float*>(states.master) + piece.at + i;
            follow_the_caller(data_type, stored, w, reinterpret_cast<std::byte*>(w_here), n);
        }
        body(i, n, w, g, m + i, v + i);
        if (stores && states.master != nullptr) convert(data_type, stored, DataType::float32, w, n);
    }
}

}  // namespace

void measure(const Update& how, const Piece& piece, std::size_t parameter_count, DataType data_type, void* weights,
             DataType grad_type, const void* gradients, const States& states, Norms& into) {
    const UpdateConstants<float> c(numbers_of(how));
    const std::size_t stretch = parameter_count < several ? 1 : together;
    each_row(piece, data_type, weights, grad_type, gradients, states, false,
             [&](std::size_t, std::size_t n, const float* w, const float* g, const float* m, const float* v) {
                 for (std::size_t i = 0; i < n; i += stretch) {
                     double of_weights = 0, of_step = 0;
                     for (std::size_t k = i; k < std::min(i + stretch, n); ++k) {
                         const double step = step_of(c, w[k], g[k], m[k], v[k]).direction, weight = w[k];
                         of_weights += weight * weight;
                         of_step += step * step;
                     }
                     into.weights.add(of_weights);
                     into.step.add(of_step);
                 }
                 into.weights.carry();
                 into.step.carry();
             });
}

float trust_ratio(const Norms& norms) {
    const double weights = norms.weights.value(), step = norms.step.value();
    return weights == 0 || step == 0 ? 1.0f : static_cast<float>(std::sqrt(weights) / std::sqrt(step));
}

void apply(const Update& how, float ratio, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
           const void* gradients, const States& states) {
    const UpdateConstants<float> c(numbers_of(how));
    const float rate = c.learning_rate * ratio;
    each_row(piece, data_type, weights, grad_type, gradients, states, true,
             [&](std::size_t, std::size_t n, float* w, const float* g, float* m, float* v) {
                 for (std::size_t i = 0; i < n; ++i) {
                     const Step step = step_of(c, w[i], g[i], m[i], v[i]);
                     m[i] = step.m;
                     v[i] = step.v;
                     w[i] -= rate * step.direction;
                 }
             });
}

}  // namespace tutti::dp
