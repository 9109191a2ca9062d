// Optimizer updates of one element, and the scale of fp8 gradients. Host and GPU compile this same source without fused
// multiply-add, so both give the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define TUTTI_EVERYWHERE __host__ __device__ __forceinline__
#else
#define TUTTI_EVERYWHERE inline
#endif

namespace tutti {

/// The hyperparameters of one optimizer step.
struct UpdateNumbers {
    double learning_rate = 0, momentum = 0, beta1 = 0, beta2 = 0, epsilon = 0;
    double coupled = 0, decoupled = 0;        // weight decay: L2 in the gradient; decoupled as in AdamW
    double correction1 = 1, correction2 = 1;  // Adam's bias corrections, by which its moments are divided
    double unscale = 1;                       // a factor that gradients are multiplied by first
};

/// UpdateNumbers converted to the type of the computation, float or double, with derived constants.
template <class T>
struct UpdateConstants {
    T learning_rate, momentum, beta1, beta2, rest1, rest2, epsilon, coupled, shrink, correction1, correction2, unscale;

    TUTTI_EVERYWHERE explicit UpdateConstants(const UpdateNumbers& n)
        : learning_rate(static_cast<T>(n.learning_rate)),
          momentum(static_cast<T>(n.momentum)),
          beta1(static_cast<T>(n.beta1)),
          beta2(static_cast<T>(n.beta2)),
          rest1(T{1} - beta1),
          rest2(T{1} - beta2),
          epsilon(static_cast<T>(n.epsilon)),
          coupled(static_cast<T>(n.coupled)),
          shrink(T{1} - learning_rate * static_cast<T>(n.decoupled)),
          correction1(static_cast<T>(n.correction1)),
          correction2(static_cast<T>(n.correction2)),
          unscale(static_cast<T>(n.unscale)) {}
};

/// The updates. w: the value; g: its gradient; m: its momentum or first moment; v: its second moment.
template <class T>
TUTTI_EVERYWHERE void sgd(const UpdateConstants<T>& c, T& w, T g) {
    w -= c.learning_rate * (c.unscale * g + c.coupled * w);
}

template <class T>
TUTTI_EVERYWHERE void momentum(const UpdateConstants<T>& c, T& w, T g, T& m) {
    m = c.momentum * m + (c.unscale * g + c.coupled * w);
    w -= c.learning_rate * m;
}

/// Nesterov's momentum as Sutskever et al. 2013 and PyTorch have it: a step ahead of the momentum.
template <class T>
TUTTI_EVERYWHERE void nesterov(const UpdateConstants<T>& c, T& w, T g, T& m) {
    const T gradient = c.unscale * g + c.coupled * w;
    m = c.momentum * m + gradient;
    w -= c.learning_rate * (gradient + c.momentum * m);
}

/// Adam, and with decoupled decay AdamW.
template <class T>
TUTTI_EVERYWHERE void adam(const UpdateConstants<T>& c, T& w, T g, T& m, T& v) {
    const T gradient = c.unscale * g + c.coupled * w;
    m = c.beta1 * m + c.rest1 * gradient;
    v = c.beta2 * v + c.rest2 * gradient * gradient;
    w = c.shrink * w - c.learning_rate * (m / c.correction1) / (std::sqrt(v / c.correction2) + c.epsilon);
}

/// The value limited to [-limit, limit]; NaN stays NaN.
template <class T>
TUTTI_EVERYWHERE T clamped(T value, T limit) {
    return value > limit ? limit : value < -limit ? -limit : value;
}

/// The scale of values that are sent as float8e4m3 and added by `ranks` ranks. largest: the greatest magnitude of all
/// values. The sum of the scaled values does not exceed 448. A power of two, so that scaling back does not round.
TUTTI_EVERYWHERE float fp8_scale(float largest, int ranks) {
    if (largest == 0) return 1;
    const float most = 448.0f / (largest * static_cast<float>(ranks));
    std::uint32_t bits;
    __builtin_memcpy(&bits, &most, sizeof bits);
    int exponent = static_cast<int>(bits >> 23 & 255) - 127;
    exponent = exponent < -120 ? -120 : exponent > 120 ? 120 : exponent;
    bits = static_cast<std::uint32_t>(exponent + 127) << 23;
    float scale;
    __builtin_memcpy(&scale, &bits, sizeof scale);
    return scale;
}

}  // namespace tutti
