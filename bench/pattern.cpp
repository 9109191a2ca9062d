#include "pattern.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace perf {

namespace {

/// splitmix64's finalizer: every bit of the arguments reaches every bit of the result.
std::uint64_t hash(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu + 0x2545f4914f6cdd1du;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

int premul_of(tuttiDataType_t type, int rank) {
    return is_float(type) ? 1 + rank % 2 : 1 + rank % 5;
}

// -------------------------------------------------------------------------------------------------------- integers
// wrap

std::uint64_t narrow(tuttiDataType_t type, std::uint64_t value) {
    const int shift = 64 - 8 * static_cast<int>(size_of(type));
    if (is_signed(type)) return static_cast<std::uint64_t>(static_cast<std::int64_t>(value << shift) >> shift);
    return value << shift >> shift;
}

std::uint64_t integer_input(const DataKind& kind, int rank, std::size_t index) {
    const std::uint64_t bits = hash(kind.seed, index, static_cast<std::uint64_t>(rank) + 1);
    return narrow(kind.type, kind.op == Op::prod ? bits | 1 : bits);  // a few even factors would make all products 0
}

std::uint64_t integer_result(const DataKind& kind, std::size_t index) {
    std::uint64_t value = 0;
    for (int rank = 0; rank < kind.ranks; ++rank) {
        const std::uint64_t x = integer_input(kind, rank, index);
        const bool less =
            is_signed(kind.type) ? static_cast<std::int64_t>(x) < static_cast<std::int64_t>(value) : x < value;
        if (kind.op == Op::mulsum)
            value += x * static_cast<std::uint64_t>(premul_of(kind.type, rank));
        else if (rank == 0)
            value = x;
        else if (kind.op == Op::prod)
            value *= x;
        else if (kind.op == Op::max)
            value = less ? value : x;
        else if (kind.op == Op::min)
            value = less ? x : value;
        else
            value += x;
    }
    value = narrow(kind.type, value);
    if (kind.op != Op::avg) return value;
    if (!is_signed(kind.type)) return value / static_cast<std::uint64_t>(kind.ranks);
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value) / kind.ranks);
}

// ------------------------------------------------------------------------------------------------------ floats are
// exact

/// A float type with d digits holds all integers up to 2^d. What the ranks add to one element stays within that,
/// whatever the order: many ranks get small numbers, and where even those are too many (fp8: 2^3 or 2^4), all but some
/// get 0.
double exact_summand(const DataKind& kind, int rank, std::uint64_t shared, std::uint64_t own) {
    std::uint64_t budget = std::uint64_t{1} << std::min(digits_of(kind.type), 40);
    if (kind.op == Op::mulsum) budget /= 2;  // scalars go up to 2
    const auto ranks = static_cast<std::uint64_t>(kind.ranks);
    const std::uint64_t largest = std::max<std::uint64_t>(1, budget / ranks);
    const std::uint64_t place = (static_cast<std::uint64_t>(rank) + shared) % ranks;
    if (place >= budget / largest) return 0;
    return static_cast<double>(own % (2 * largest + 1)) - static_cast<double>(largest);
}

/// Powers of two, so few that no product leaves the range, and a single 1.5, which needs one digit.
double exact_factor(const DataKind& kind, int rank, std::uint64_t shared, std::uint64_t own) {
    const auto place = (static_cast<std::uint64_t>(rank) + shared) % static_cast<std::uint64_t>(kind.ranks);
    const double sign = own & 1 ? -1 : 1;
    if (place == 0) return 1.5 * sign;
    if (place <= 4) return own & 2 ? 2 * sign : 0.5 * sign;
    return sign;
}

double float_input(const DataKind& kind, int rank, std::size_t index) {
    const std::uint64_t shared = hash(kind.seed, index) >> 8;
    const std::uint64_t own = hash(kind.seed, index, static_cast<std::uint64_t>(rank) + 1) >> 8;
    if (kind.real) {
        const double uniform = std::ldexp(static_cast<double>(own), -55) - 1;  // [-1, 1)
        return decode(kind.type, encode(kind.type, kind.op == Op::prod ? 1 + uniform / 4 : uniform));
    }
    if (kind.op == Op::prod) return exact_factor(kind, rank, shared, own);
    const double unit = std::ldexp(1.0, -static_cast<int>(shared >> 40 & 3));
    if (kind.op == Op::max || kind.op == Op::min) {
        const std::uint64_t largest = std::uint64_t{1} << std::min(digits_of(kind.type), 40);
        const auto magnitude = static_cast<double>(1 + own / 2 % largest);  // no zeros: either sign would be right
        return (own & 1 ? -magnitude : magnitude) * unit;
    }
    return exact_summand(kind, rank, shared, own) * unit;
}

double float_result(const DataKind& kind, std::size_t index) {
    double value = 0;
    for (int rank = 0; rank < kind.ranks; ++rank) {
        const double x = float_input(kind, rank, index);
        if (kind.op == Op::mulsum)
            value += x * premul_of(kind.type, rank);
        else if (rank == 0)
            value = x;
        else if (kind.op == Op::prod)
            value *= x;
        else if (kind.op == Op::max)
            value = std::max(value, x);
        else if (kind.op == Op::min)
            value = std::min(value, x);
        else
            value += x;
    }
    return kind.op == Op::avg ? value / kind.ranks : value;
}

template <typename Element>
Pattern build(const DataKind& kind, std::size_t needed, Element element) {
    const std::size_t size = size_of(kind.type);
    std::vector<std::byte> table(std::min(needed, Pattern::period) * size);
    for (std::size_t i = 0; i * size < table.size(); ++i) store(&table[i * size], size, element(i));
    return Pattern(size, kind.seed, std::move(table));
}

}  // namespace

// -------------------------------------------------------------------------------------------------------------
// sequence

Pattern::Pattern(std::size_t element, std::uint64_t seed, std::vector<std::byte> table)
    : element_(element), elements_(table.size() / element), seed_(seed), table_(std::move(table)) {}

std::size_t position_in_period(std::uint64_t seed, std::size_t index, std::size_t needed) {
    if (needed < Pattern::period) return index;  // a single, incomplete period
    const std::size_t rotation = hash(seed, index / Pattern::period) % Pattern::period;
    return (index + rotation) % Pattern::period;
}

std::size_t Pattern::position(std::size_t index) const {
    return position_in_period(seed_, index, elements_);
}

const std::byte* Pattern::element(std::size_t index) const {
    return &table_[position(index) * element_];
}

void Pattern::write(std::byte* to, std::size_t first, std::size_t count) const {
    while (count > 0) {
        // Up to the end of the period or to where its rotation wraps.
        const std::size_t from = position(first);
        const std::size_t run = std::min({count, elements_ - from, period - first % period});
        std::memcpy(to, &table_[from * element_], run * element_);
        to += run * element_;
        first += run;
        count -= run;
    }
}

Pattern input_pattern(const DataKind& kind, int rank, std::size_t needed) {
    return build(kind, needed, [&](std::size_t i) {
        if (kind.op == Op::none) return hash(kind.seed, i, static_cast<std::uint64_t>(rank) + 1);
        if (!is_float(kind.type)) return integer_input(kind, rank, i);
        return encode(kind.type, float_input(kind, rank, i));
    });
}

Pattern result_pattern(const DataKind& kind, std::size_t needed) {
    return build(kind, needed, [&](std::size_t i) {
        return is_float(kind.type) ? encode(kind.type, float_result(kind, i)) : integer_result(kind, i);
    });
}

std::vector<double> result_in_fp64(const DataKind& kind, std::size_t needed) {
    std::vector<double> results(std::min(needed, Pattern::period));
    for (std::size_t i = 0; i < results.size(); ++i)
        results[i] = is_float(kind.type) ? float_result(kind, i) : decode(kind.type, integer_result(kind, i));
    return results;
}

std::uint64_t tolerance(const DataKind& kind) {
    const bool exact = std::has_single_bit(static_cast<unsigned>(kind.ranks));
    return kind.op == Op::avg && is_float(kind.type) && !exact ? 2 : 0;
}

std::uint64_t premul_scalar(tuttiDataType_t type, int rank) {
    const int scalar = premul_of(type, rank);
    return is_float(type) ? encode(type, scalar) : static_cast<std::uint64_t>(scalar);
}

}  // namespace perf
