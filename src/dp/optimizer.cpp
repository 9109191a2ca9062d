#include "dp/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "base/result.hpp"
#include "dp/numbers.hpp"

namespace tutti::dp {
namespace {

constexpr std::size_t block = 1024;  // elements at a time: what is converted stays in the first cache

/// The numbers of one step, which all elements share.
template <class T>
struct Constants {
    T learning_rate, weight_decay, momentum, beta1, beta2, epsilon;
    T correction1, correction2;  // what the moments are divided by, for they began at zero

    explicit Constants(const Update& u)
        : learning_rate(static_cast<T>(u.learning_rate)),
          weight_decay(static_cast<T>(u.weight_decay)),
          momentum(static_cast<T>(u.optimizer->momentum)),
          beta1(static_cast<T>(u.optimizer->beta1)),
          beta2(static_cast<T>(u.optimizer->beta2)),
          epsilon(static_cast<T>(u.optimizer->epsilon)),
          correction1(static_cast<T>(1 - std::pow(u.optimizer->beta1, static_cast<double>(u.step)))),
          correction2(static_cast<T>(1 - std::pow(u.optimizer->beta2, static_cast<double>(u.step)))) {}
};

template <class T>
void sgd(const Constants<T>& c, T* __restrict w, const T* __restrict g, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) w[i] -= c.learning_rate * (g[i] + c.weight_decay * w[i]);
}

template <class T>
void momentum(const Constants<T>& c, T* __restrict w, const T* __restrict g, T* __restrict m, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        m[i] = c.momentum * m[i] + (g[i] + c.weight_decay * w[i]);
        w[i] -= c.learning_rate * m[i];
    }
}

/// coupled: weight decay as part of the gradient; decoupled: apart from it.
template <class T>
void adam(const Constants<T>& c, T coupled, T decoupled, T* __restrict w, const T* __restrict g, T* __restrict m,
          T* __restrict v, std::size_t n) {
    const T one = 1, shrink = one - c.learning_rate * decoupled;
    for (std::size_t i = 0; i < n; ++i) {
        const T gradient = g[i] + coupled * w[i];
        m[i] = c.beta1 * m[i] + (one - c.beta1) * gradient;
        v[i] = c.beta2 * v[i] + (one - c.beta2) * gradient * gradient;
        w[i] = shrink * w[i] - c.learning_rate * (m[i] / c.correction1) / (std::sqrt(v[i] / c.correction2) + c.epsilon);
    }
}

template <class T>
void call_back(const Update& u, const Piece& piece, std::size_t first, T* w, const T* g, T* s0, T* s1, std::size_t n) {
    if constexpr (std::is_same_v<T, float>) {
        const tuttiDpPiece_t p{piece.parameter, piece.first + first, n,     w, g, s0, s1,
                               u.learning_rate, u.weight_decay,      u.step};
        const tuttiResult_t result = u.optimizer->update(u.optimizer->user, &p);
        if (result != tuttiSuccess)
            fail(result, "the update callback returned %d for parameter %zu", static_cast<int>(result),
                 piece.parameter);
    } else {
        fail(tuttiInvalidUsage, "update callbacks are for parameters of at most 32 bits");
    }
}

template <class T>
void update_block(const Update& u, const Constants<T>& c, const Piece& piece, std::size_t first, T* w, const T* g,
                  T* s0, T* s1, std::size_t n) {
    switch (u.optimizer->kind) {
        case tuttiDpSgd:
            return sgd(c, w, g, n);
        case tuttiDpMomentum:
            return momentum(c, w, g, s0, n);
        case tuttiDpAdam:
            return adam(c, c.weight_decay, T{0}, w, g, s0, s1, n);
        case tuttiDpAdamW:
            return adam(c, T{0}, c.weight_decay, w, g, s0, s1, n);
        case tuttiDpCallback:
            return call_back(u, piece, first, w, g, s0, s1, n);
        default:
            TUTTI_ASSERT(!"an optimizer");
    }
}

template <class T>
T* at(std::vector<std::byte>& values, std::size_t element) {
    return values.empty() ? nullptr : reinterpret_cast<T*>(values.data()) + element;
}

template <class T>
void update_piece(const Update& u, const Piece& piece, DataType data_type, std::byte* weights, DataType grad_type,
                  const std::byte* gradients, States& states) {
    constexpr DataType own = std::is_same_v<T, double> ? DataType::float64 : DataType::float32;
    const Constants<T> constants(u);
    T converted[block];
    for (std::size_t i = 0; i < piece.count; i += block) {
        const std::size_t n = std::min(block, piece.count - i);
        const std::byte* given = gradients + i * size_of(grad_type);
        if (grad_type != own) convert(own, converted, grad_type, given, n);
        const T* g = grad_type == own ? reinterpret_cast<const T*>(given) : converted;
        std::byte* stored = weights + i * size_of(data_type);
        T* master = at<T>(states.master, piece.at + i);
        T* w = master != nullptr ? master : reinterpret_cast<T*>(stored);
        update_block(u, constants, piece, i, w, g, at<T>(states.state[0], piece.at + i),
                     at<T>(states.state[1], piece.at + i), n);
        if (master != nullptr) convert(data_type, stored, own, master, n);
    }
}

}  // namespace

DataType state_type(DataType data_type) {
    return data_type == DataType::float64 ? DataType::float64 : DataType::float32;
}

States make_states(tuttiDpOptimizerKind_t kind, DataType data_type, std::size_t elements) {
    States states;
    const std::size_t bytes = elements * size_of(state_type(data_type));
    if (kind != tuttiDpNoOptimizer && data_type != state_type(data_type)) states.master.resize(bytes);
    for (int i = 0; i < states_of(kind); ++i) states.state[i].resize(bytes);
    return states;
}

void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
            const void* gradients, States& states) {
    const auto run = data_type == DataType::float64 ? update_piece<double> : update_piece<float>;
    run(how, piece, data_type, static_cast<std::byte*>(weights), grad_type, static_cast<const std::byte*>(gradients),
        states);
}

}  // namespace tutti::dp
