// Elementwise operations on flat arrays, in one pass by many blocks. The data-parallel layer uses them on gradients and
// parameters. The results have the same bits as those of dp/numbers.cpp and dp/optimizer.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "kernels/cuda/formats.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/exact.hpp"
#include "kernels/update.hpp"

namespace tutti::gpu {

enum class FlatOp : std::uint8_t {
    zero,      // to = 0
    convert,   // to = from
    add,       // to += from
    multiply,  // to *= number
    divide,    // to /= number
    scale,     // to *= fp8_scale(the float at from, number)
    unscale,   // to /= fp8_scale(the float at from, number)
    clamp,     // to, limited to [-number, number]; NaNs stay
    squares,   // result = the exact sum of squares of `from`, as words: see flat_sums()
    bad,       // result[t] = the index of the first NaN or infinity of tile t of from; count if there is none
    largest,   // result[t] = {the greatest magnitude of tile t of from, in fp32; 0}
    sgd,       // to = the value after an optimizer step, with from as gradients
    momentum,
    nesterov,
    adam
};

inline constexpr unsigned flat_threads = 256;
inline constexpr std::uint64_t flat_tile = 1024;  // elements: a block of dp/numbers.cpp

/// The argument of the kernel; plain data. Types are floats of 16, 32 and 64 bits, and float8e4m3, which saturates.
/// Computed in fp32, or in fp64 if `to` (`from` for results by tile) is of 64 bits. Arrays are aligned to their
/// elements.
struct Flat {
    FlatOp op = FlatOp::zero;
    DataType to_type = DataType::float32, from_type = DataType::float32;
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::uint64_t count = 0;
    std::byte* result = nullptr;  // 8 bytes for each tile, see FlatOp; those of flat_sums() for `squares`
    double number = 0;            // squares: how many are added as doubles (kernels/exact.hpp)
    // Of optimizers; master and state are fp32 or fp64 as the computation.
    std::byte* master = nullptr;  // the values that are updated and then rounded to `to`; nullptr if `to` is updated
    std::byte* state[2] = {nullptr, nullptr};  // moments
    UpdateNumbers update;
};

inline std::uint64_t flat_tiles(std::uint64_t count) {
    return (count + flat_tile - 1) / flat_tile;
}

inline constexpr int flat_team = 16;  // threads that share a tile
inline constexpr int flat_teams = 16;

inline constexpr unsigned flat_doubles = 1024;  // of squares, in one sum
inline constexpr unsigned flat_lanes = 4;       // sums of which such a double is made

/// FlatOp::squares makes so many sums, each of ExactLimbs::words integers of 64 bits. They are to be added up.
inline std::uint64_t flat_sums(std::uint64_t count, int together) {
    const std::uint64_t each = flat_doubles * static_cast<std::uint64_t>(together);
    return (count + each - 1) / each;
}

/// The shared memory of a block.
struct FlatShared {
    std::uint64_t word[flat_team * flat_teams];
    double few[flat_doubles], lane[flat_threads * flat_lanes];
};

namespace detail {

/// Loads n <= 4 elements at `at` and converts them to T.
template <class F, class T>
TUTTI_DEVICE void load_as(const std::byte* at, int n, T (&v)[4]) {
    constexpr int words = 4 / F::lanes;
    std::uint64_t word[words] = {};
    if (n == 4 && reinterpret_cast<std::uintptr_t>(at) % 8 == 0) {
        for (int w = 0; w < words; ++w) __builtin_memcpy(&word[w], __builtin_assume_aligned(at + 8 * w, 8), 8);
    } else {
        for (int k = 0; k < n; ++k)
            __builtin_memcpy(reinterpret_cast<std::byte*>(&word[k / F::lanes]) + k % F::lanes * F::element,
                             __builtin_assume_aligned(at + k * F::element, F::element), F::element);
    }
    for (int w = 0; w < words; ++w) {
        typename F::Lane lane[F::lanes];
        F::unpack(word[w], lane);
        for (int i = 0; i < F::lanes; ++i) v[w * F::lanes + i] = static_cast<T>(lane[i]);
    }
}

template <class F, class T>
TUTTI_DEVICE void store_as(std::byte* at, int n, const T (&v)[4]) {
    constexpr int words = 4 / F::lanes;
    std::uint64_t word[words];
    for (int w = 0; w < words; ++w) {
        typename F::Lane lane[F::lanes];
        for (int i = 0; i < F::lanes; ++i) lane[i] = static_cast<typename F::Lane>(v[w * F::lanes + i]);
        word[w] = F::pack(lane);
    }
    if (n == 4 && reinterpret_cast<std::uintptr_t>(at) % 8 == 0) {
        for (int w = 0; w < words; ++w) __builtin_memcpy(__builtin_assume_aligned(at + 8 * w, 8), &word[w], 8);
    } else {
        for (int k = 0; k < n; ++k)
            __builtin_memcpy(__builtin_assume_aligned(at + k * F::element, F::element),
                             reinterpret_cast<const std::byte*>(&word[k / F::lanes]) + k % F::lanes * F::element,
                             F::element);
    }
}

/// Rounds to a format of 16 bits and back.
template <class F, class T>
TUTTI_DEVICE void round_as(const T (&v)[4], T (&rounded)[4]) {
    typename F::Lane lane[F::lanes];
    static_assert(F::lanes == 4);
    for (int k = 0; k < 4; ++k) lane[k] = static_cast<typename F::Lane>(v[k]);
    const std::uint64_t word = F::pack(lane);
    F::unpack(word, lane);
    for (int k = 0; k < 4; ++k) rounded[k] = static_cast<T>(lane[k]);
}

/// Elements of 8 bits, one at a time because few arrays have this type.
template <class T>
TUTTI_DEVICE void load_eighths(const std::byte* at, int n, T (&v)[4]) {
    for (int k = 0; k < n; ++k) v[k] = static_cast<T>(Float8<false>::Small::decode(static_cast<std::uint32_t>(at[k])));
}

template <class T>
TUTTI_DEVICE void store_eighths(std::byte* at, int n, const T (&v)[4]) {
    TUTTI_UNROLL
    for (int k = 0; k < 4; ++k) {
        const T within = v[k] > T{448} ? T{448} : v[k] < T{-448} ? T{-448} : v[k];
        if (k < n) at[k] = static_cast<std::byte>(Float8<false>::Small::encode(static_cast<float>(within)));
    }
}

template <class T>
TUTTI_DEVICE void load(DataType type, const std::byte* base, std::uint64_t i, int n, T (&v)[4]) {
    switch (type) {
        case DataType::float16:
            return load_as<Float16>(base + 2 * i, n, v);
        case DataType::bfloat16:
            return load_as<Bfloat16>(base + 2 * i, n, v);
        case DataType::float64:
            return load_as<Native<double>>(base + 8 * i, n, v);
        case DataType::float8e4m3:
            return load_eighths(base + i, n, v);
        default:
            return load_as<Native<float>>(base + 4 * i, n, v);
    }
}

template <class T>
TUTTI_DEVICE void store(DataType type, std::byte* base, std::uint64_t i, int n, const T (&v)[4]) {
    switch (type) {
        case DataType::float16:
            return store_as<Float16>(base + 2 * i, n, v);
        case DataType::bfloat16:
            return store_as<Bfloat16>(base + 2 * i, n, v);
        case DataType::float64:
            return store_as<Native<double>>(base + 8 * i, n, v);
        case DataType::float8e4m3:
            return store_eighths(base + i, n, v);
        default:
            return store_as<Native<float>>(base + 4 * i, n, v);
    }
}

template <class T>
TUTTI_DEVICE void update(const Flat& f, const UpdateConstants<T>& c, std::uint64_t i, int n) {
    constexpr DataType own = sizeof(T) == 8 ? DataType::float64 : DataType::float32;
    std::byte* const weights = f.master != nullptr ? f.master : f.to;
    T w[4], g[4], m[4] = {}, v[4] = {};
    load(own, weights, i, n, w);
    load(f.from_type, f.from, i, n, g);
    if (f.op != FlatOp::sgd) load(own, f.state[0], i, n, m);
    if (f.op == FlatOp::adam) load(own, f.state[1], i, n, v);
    if (f.master != nullptr) {  // `to` is not the rounded master if the user has written there: take it over
        T stored[4], rounded[4];
        load(f.to_type, f.to, i, n, stored);
        f.to_type == DataType::float16 ? round_as<Float16>(w, rounded) : round_as<Bfloat16>(w, rounded);
        for (int k = 0; k < n; ++k)
            if (stored[k] != rounded[k] && (stored[k] == stored[k] || rounded[k] == rounded[k])) w[k] = stored[k];
    }
    for (int k = 0; k < n; ++k) {
        if (f.op == FlatOp::sgd) sgd(c, w[k], g[k]);
        if (f.op == FlatOp::momentum) momentum(c, w[k], g[k], m[k]);
        if (f.op == FlatOp::nesterov) nesterov(c, w[k], g[k], m[k]);
        if (f.op == FlatOp::adam) adam(c, w[k], g[k], m[k], v[k]);
    }
    store(own, weights, i, n, w);
    if (f.op != FlatOp::sgd) store(own, f.state[0], i, n, m);
    if (f.op == FlatOp::adam) store(own, f.state[1], i, n, v);
    if (f.master != nullptr) store(f.to_type, f.to, i, n, w);
}

/// The number by which `to` is multiplied or divided.
TUTTI_DEVICE double number_of(const Flat& f) {
    if (f.op != FlatOp::scale && f.op != FlatOp::unscale) return f.number;
    float largest;
    __builtin_memcpy(&largest, __builtin_assume_aligned(f.from, 4), sizeof largest);
    return fp8_scale(largest, static_cast<int>(f.number));
}

template <class T>
TUTTI_DEVICE void elements(const Flat& f, unsigned block_number, unsigned blocks) {
    const UpdateConstants<T> constants(f.update);
    const T number = static_cast<T>(number_of(f));
    const std::uint64_t step = 4 * static_cast<std::uint64_t>(blocks) * threads();
    for (std::uint64_t i = 4 * (static_cast<std::uint64_t>(block_number) * threads() + thread()); i < f.count;
         i += step) {
        const int n = f.count - i < 4 ? static_cast<int>(f.count - i) : 4;
        if (f.op >= FlatOp::sgd) {
            update<T>(f, constants, i, n);
            continue;
        }
        T to[4] = {}, from[4] = {};
        if (f.op == FlatOp::convert || f.op == FlatOp::add) load(f.from_type, f.from, i, n, from);
        if (f.op != FlatOp::zero && f.op != FlatOp::convert) load(f.to_type, f.to, i, n, to);
        for (int k = 0; k < n; ++k) {
            if (f.op == FlatOp::convert) to[k] = from[k];
            if (f.op == FlatOp::add) to[k] += from[k];
            if (f.op == FlatOp::multiply || f.op == FlatOp::scale) to[k] *= number;
            if (f.op == FlatOp::divide || f.op == FlatOp::unscale) to[k] /= number;
            if (f.op == FlatOp::clamp) to[k] = clamped(to[k], number);
        }
        store(f.to_type, f.to, i, n, to);
    }
}

/// One thread's partial result: that of every flat_team-th element of a tile, from `first` on.
template <class T>
TUTTI_DEVICE std::uint64_t strided(const Flat& f, std::uint64_t tile, int first) {
    const std::uint64_t begin = tile * flat_tile;
    const std::uint64_t end = f.count - begin < flat_tile ? f.count : begin + flat_tile;
    float most = 0;
    for (std::uint64_t i = begin + static_cast<std::uint64_t>(first); i < end; i += flat_team) {
        T v[4];
        load(f.from_type, f.from, i, 1, v);
        const float magnitude = static_cast<float>(v[0] < 0 ? -v[0] : v[0]);
        if (f.op == FlatOp::largest)
            most = magnitude > most ? magnitude : most;
        else if (!(v[0] - v[0] == 0))  // true for finite numbers only
            return i;
    }
    return f.op == FlatOp::largest ? bits<std::uint32_t>(most) : f.count;
}

/// Joins the partial results of a team: the least index, or the greatest magnitude (the bits of floats that are not
/// negative are in the order of their values).
TUTTI_DEVICE std::uint64_t joined(const Flat& f, const std::uint64_t* found) {
    std::uint64_t least = f.count, most = 0;
    for (int k = 0; k < flat_team; ++k) {
        if (f.op == FlatOp::bad && found[k] < least) least = found[k];
        if (f.op == FlatOp::largest && found[k] > most) most = found[k];
    }
    return f.op == FlatOp::largest ? most : least;
}

/// The sum of the squares of every fourth element from `begin` on, before `end`.
template <class T>
TUTTI_DEVICE double lane_of(const Flat& f, std::uint64_t begin, std::uint64_t end) {
    double sum = 0;
    for (std::uint64_t i = begin; i < end; i += flat_lanes) {
        T v[4];
        load(f.from_type, f.from, i, 1, v);
        sum += static_cast<double>(v[0]) * static_cast<double>(v[0]);
    }
    return sum;
}

/// Makes `count` doubles of squares, the first of which begins at element `first` of the array: each in four lanes, as
/// dp/exact_sum.cpp does. Threads side by side read elements side by side.
template <class T>
TUTTI_DEVICE void few_squares(const Flat& f, std::uint64_t first, unsigned count, FlatShared& shared) {
    const std::uint64_t together = static_cast<std::uint64_t>(f.number);
    for (unsigned done = 0; done < count; done += flat_threads) {
        const unsigned here = count - done < flat_threads ? count - done : flat_threads;
        for (unsigned item = thread(); item < here * flat_lanes; item += threads()) {
            const std::uint64_t begin = first + (done + item / flat_lanes) * together;
            const std::uint64_t end = begin + together < f.count ? begin + together : f.count;
            shared.lane[item] = lane_of<T>(f, begin + item % flat_lanes, end);
        }
        sync();
        for (unsigned i = thread(); i < here; i += threads()) {
            const double* const lane = shared.lane + i * flat_lanes;
            shared.few[done + i] = (lane[0] + lane[1]) + (lane[2] + lane[3]);
        }
        sync();
    }
}

/// The block makes doubles of squares; then its threads share the words of their sum, and the doubles.
template <class T>
TUTTI_DEVICE void sums(const Flat& f, unsigned block_number, unsigned blocks, FlatShared& shared) {
    constexpr unsigned words = ExactLimbs<T>::words, parts = flat_team * flat_teams / words;
    const std::uint64_t together = static_cast<std::uint64_t>(f.number), all = (f.count + together - 1) / together;
    for (std::uint64_t sum = block_number; sum * flat_doubles < all; sum += blocks) {
        const std::uint64_t first = sum * flat_doubles;
        const unsigned here = static_cast<unsigned>(all - first < flat_doubles ? all - first : flat_doubles);
        few_squares<T>(f, first * together, here, shared);
        for (unsigned item = thread(); item < words * parts; item += threads()) {
            std::int64_t word = 0;
            for (unsigned i = item / words; i < here; i += parts)
                word += part_of<T>(shared.few[i], static_cast<int>(item % words));
            shared.word[item] = static_cast<std::uint64_t>(word);
        }
        sync();
        for (unsigned word = thread(); word < words; word += threads()) {
            std::uint64_t result = 0;
            for (unsigned part = 0; part < parts; ++part) result += shared.word[part * words + word];
            __builtin_memcpy(__builtin_assume_aligned(f.result + 8 * (sum * words + word), 8), &result, 8);
        }
        sync();
    }
}

template <class T>
TUTTI_DEVICE void tiles(const Flat& f, unsigned block_number, unsigned blocks, FlatShared& shared) {
    const std::uint64_t all = (f.count + flat_tile - 1) / flat_tile;
    for (std::uint64_t first = static_cast<std::uint64_t>(block_number) * flat_teams; first < all;
         first += static_cast<std::uint64_t>(blocks) * flat_teams) {
        for (unsigned item = thread(); item < flat_team * flat_teams; item += threads()) {
            const std::uint64_t tile = first + item / flat_team;
            if (tile < all) shared.word[item] = strided<T>(f, tile, static_cast<int>(item % flat_team));
        }
        sync();
        for (unsigned t = thread(); t < flat_teams && first + t < all; t += threads()) {
            const std::uint64_t result = joined(f, shared.word + t * flat_team);
            __builtin_memcpy(__builtin_assume_aligned(f.result + 8 * (first + t), 8), &result, 8);
        }
        sync();
    }
}

}  // namespace detail

/// Called by all threads of block `block_number` of `blocks`.
TUTTI_DEVICE void run_flat(const Flat& f, unsigned block_number, unsigned blocks, FlatShared& shared) {
    const bool by_tiles = f.op == FlatOp::bad || f.op == FlatOp::largest, adds_up = f.op == FlatOp::squares;
    const bool wide = (by_tiles || adds_up ? f.from_type : f.to_type) == DataType::float64;
    if (adds_up)
        wide ? detail::sums<double>(f, block_number, blocks, shared)
             : detail::sums<float>(f, block_number, blocks, shared);
    else if (by_tiles)
        wide ? detail::tiles<double>(f, block_number, blocks, shared)
             : detail::tiles<float>(f, block_number, blocks, shared);
    else
        wide ? detail::elements<double>(f, block_number, blocks) : detail::elements<float>(f, block_number, blocks);
}

}  // namespace tutti::gpu
