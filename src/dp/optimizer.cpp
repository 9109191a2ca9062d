#include "dp/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/result.hpp"
#include "dp/muon.hpp"
#include "dp/numbers.hpp"

namespace tutti::dp {
template <class T>
void follow_the_caller(DataType data_type, const std::byte* stored, T* master, std::byte* rounded, std::size_t n) {
    constexpr DataType own = std::is_same_v<T, double> ? DataType::float64 : DataType::float32;
    const std::size_t size = size_of(data_type);
    convert(data_type, rounded, own, master, n);
    if (std::memcmp(rounded, stored, n * size) == 0) return;
    for (std::size_t i = 0; i < n; ++i)
        if (std::memcmp(rounded + i * size, stored + i * size, size) != 0)
            convert(own, master + i, data_type, stored + i * size, 1);
}

template void follow_the_caller(DataType, const std::byte*, float*, std::byte*, std::size_t);

namespace {

constexpr std::size_t block = 1024;  // elements at a time, so that converted values stay in the L1 cache

template <class T>
void call_back(const Update& u, const Piece& piece, std::size_t first, T* w, const T* g, T* s0, T* s1, std::size_t n) {
    if constexpr (std::is_same_v<T, float>) {  // callbacks for others are refused by tuttiDpCreate
        const tuttiDpPiece_t p{piece.parameter, piece.first + first, n,     w, g, s0, s1,
                               u.learning_rate, u.weight_decay,      u.step};
        const tuttiResult_t result = u.optimizer->update(u.optimizer->user, &p);
        if (result != tuttiSuccess)
            fail(result, "the update callback returned %d for parameter %zu", static_cast<int>(result),
                 piece.parameter);
    }
}

template <class T>
void update_block(tuttiDpOptimizerKind_t kind, const UpdateConstants<T>& c, T* __restrict w, const T* __restrict g,
                  T* __restrict s0, T* __restrict s1, std::size_t n) {
    if (kind == tuttiDpSgd)
        for (std::size_t i = 0; i < n; ++i) sgd(c, w[i], g[i]);
    else if (kind == tuttiDpMomentum)
        for (std::size_t i = 0; i < n; ++i) momentum(c, w[i], g[i], s0[i]);
    else if (kind == tuttiDpNesterov)
        for (std::size_t i = 0; i < n; ++i) nesterov(c, w[i], g[i], s0[i]);
    else
        for (std::size_t i = 0; i < n; ++i) adam(c, w[i], g[i], s0[i], s1[i]);
}

template <class T>
void update_matrix(const UpdateConstants<T>& c, std::size_t rows, T* w, const T* g, T* m, std::size_t n) {
    if constexpr (std::is_same_v<T, float>) muon(c, {rows, n / rows}, w, g, m);  // others are refused
}

template <class T>
T* at(std::byte* values, std::size_t element) {
    return values == nullptr ? nullptr : reinterpret_cast<T*>(values) + element;
}

template <class T>
void update_piece(const Update& u, const Piece& piece, DataType data_type, std::byte* weights, DataType grad_type,
                  const std::byte* gradients, const States& states) {
    constexpr DataType own = std::is_same_v<T, double> ? DataType::float64 : DataType::float32;
    const UpdateConstants<T> constants(numbers_of(u));
    T few[block];
    alignas(T) std::byte few_rounded[block * sizeof(T)];
    std::vector<T> many(u.whole ? piece.count : 0), many_rounded(many.size());
    T* const converted = u.whole ? many.data() : few;
    std::byte* const rounded = u.whole ? reinterpret_cast<std::byte*>(many_rounded.data()) : few_rounded;
    const std::size_t most = u.whole ? piece.count : block;
    for (std::size_t i = 0; i < piece.count; i += most) {
        const std::size_t n = std::min(most, piece.count - i);
        const std::byte* given = gradients + i * size_of(grad_type);
        const bool calls = u.optimizer->kind == tuttiDpCallback,
                   as_given = grad_type == own && !(calls && u.unscale != 1);
        if (!as_given) convert(own, converted, grad_type, given, n);
        if (calls && u.unscale != 1) multiply(own, converted, n, u.unscale);
        const T* g = as_given ? reinterpret_cast<const T*>(given) : converted;
        std::byte* stored = weights + i * size_of(data_type);
        T* master = at<T>(states.master, piece.at + i);
        T* w = master != nullptr ? master : reinterpret_cast<T*>(stored);
        if (master != nullptr) follow_the_caller(data_type, stored, master, rounded, n);
        T *const s0 = at<T>(states.state[0], piece.at + i), *const s1 = at<T>(states.state[1], piece.at + i);
        if (calls)
            call_back(u, piece, i, w, g, s0, s1, n);
        else if (u.rows > 0)
            update_matrix(constants, u.rows, w, g, s0, n);
        else
            update_block(u.optimizer->kind, constants, w, g, s0, s1, n);
        if (master != nullptr) convert(data_type, stored, own, master, n);
    }
}

}  // namespace

DataType state_type(DataType data_type) {
    return data_type == DataType::float64 ? DataType::float64 : DataType::float32;
}

bool has_master(tuttiDpOptimizerKind_t kind, DataType data_type) {
    return kind != tuttiDpNoOptimizer && data_type != state_type(data_type);
}

UpdateNumbers numbers_of(const Update& how) {
    const tuttiDpOptimizer_t& o = *how.optimizer;
    UpdateNumbers n;
    n.learning_rate = how.learning_rate;
    n.momentum = o.momentum;
    n.beta1 = o.beta1;
    n.beta2 = o.beta2;
    n.epsilon = o.epsilon;
    (o.kind == tuttiDpAdamW || o.kind == tuttiDpMuon ? n.decoupled : n.coupled) = how.weight_decay;
    n.unscale = how.unscale;
    n.correction1 = 1 - std::pow(o.beta1, static_cast<double>(how.step));
    n.correction2 = 1 - std::pow(o.beta2, static_cast<double>(how.step));
    return n;
}

void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
            const void* gradients, const States& states) {
    const auto run = data_type == DataType::float64 ? update_piece<double> : update_piece<float>;
    run(how, piece, data_type, static_cast<std::byte*>(weights), grad_type, static_cast<const std::byte*>(gradients),
        states);
}

}  // namespace tutti::dp
