// What an optimizer makes of one element, and by what fp8 is scaled. Host and GPU compile the same text, without fused
// multiplications, so both give the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define TUTTI_EVERYWHERE __host__ __device__ __forceinline__
#else
#define TUTTI_EVERYWHERE inline
#endif

namespace tutti {

/// The numbers of one step.
struct UpdateNumbers {
    double learning_rate = 0, momentum = 0, beta1 = 0, beta2 = 0, epsilon = 0;
    double coupled = 0, decoupled = 0;        // weight decay as part of the gradient, or apart from it
    double correction1 = 1, correction2 = 1;  // what Adam's moments are divided by, for they began at zero
    double unscale = 1;                       // what gradients are multiplied by first
};

/// The same, in the type that is computed in: float or double.
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

/// w: the value; g: its gradient; m, v: its momentum, or its two moments.
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

/// From -limit to limit; a NaN stays one.
template <class T>
TUTTI_EVERYWHERE T clamped(T value, T limit) {
    return value > limit ? limit : value < -limit ? -limit : value;
}

/// What values are multiplied by before they are sent as float8e4m3 and added up by `ranks` ranks, `largest` being the
/// greatest magnitude of them all: the sum stays below 448. A power of two, so that neither it nor its inverse rounds.
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
