#include "dp/exact_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "dp/numbers.hpp"

namespace tutti::dp {
namespace {

constexpr std::size_t row = 1024;  // elements at a time, so that converted values stay in the L1 cache

/// Up to `together` squares, always in the same order.
template <class T>
double few_squares(const T* x, std::size_t count) {
    constexpr std::size_t together = ExactLimbs<T>::together;
    double lanes[4] = {};
    if (count == together)
        for (std::size_t i = 0; i < together; i += 4)
            for (std::size_t k = 0; k < 4; ++k) lanes[k] += static_cast<double>(x[i + k]) * x[i + k];
    else
        for (std::size_t i = 0; i < count; ++i) lanes[i % 4] += static_cast<double>(x[i]) * x[i];
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

template <class T>
void add_row(const T* x, std::size_t count, std::size_t stretch, BasicExactSum<T>& into) {
    for (std::size_t k = 0; k < count; k += stretch) into.add(few_squares(x + k, std::min(stretch, count - k)));
    into.carry();
}

}  // namespace

template <class T>
void BasicExactSum<T>::add(double x) {
    if (x == 0) return;
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const int exponent = static_cast<int>(bits >> 52 & 2047);
    if (exponent == 2047) {
        ++words_[Limbs::limbs];
        return;
    }
    const int limb = (std::max(exponent, 1) - 1023 - 52 - Limbs::lowest) / 32;
    for (int word = limb; word < limb + 3; ++word) words_[static_cast<std::size_t>(word)] += part_of<T>(x, word);
}

template <class T>
void BasicExactSum<T>::add(const std::int64_t* words) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] += words[i];
    carry();
}

template <class T>
void BasicExactSum<T>::carry() {
    for (std::size_t i = 0; i + 1 < Limbs::limbs; ++i) {
        words_[i + 1] += words_[i] >> 32;
        words_[i] &= UINT32_MAX;
    }
}

template <class T>
double BasicExactSum<T>::value() const {
    if (words_[Limbs::limbs] != 0) return std::numeric_limits<double>::quiet_NaN();
    BasicExactSum carried = *this;
    carried.carry();
    double sum = 0;
    for (std::size_t i = Limbs::limbs; i-- > 0;)
        sum += std::ldexp(static_cast<double>(carried.words_[i]), static_cast<int>(i) * 32 + Limbs::lowest);
    return sum;
}

template class BasicExactSum<float>;
template class BasicExactSum<double>;

void add_squares(DataType type, const void* values, std::size_t count, std::size_t parameter_count, Squares& into) {
    const auto stretch = [&](int together) {
        return parameter_count < least_together ? 1 : static_cast<std::size_t>(together);
    };
    float converted[row];
    for (std::size_t i = 0; i < count; i += row) {
        const std::size_t n = std::min(row, count - i);
        const std::byte* const given = static_cast<const std::byte*>(values) + i * size_of(type);
        if (type == DataType::float64) {
            add_row(reinterpret_cast<const double*>(given), n, stretch(ExactLimbs<double>::together), into.doubles);
            continue;
        }
        if (type != DataType::float32) convert(DataType::float32, converted, type, given, n);
        const float* const x = type == DataType::float32 ? reinterpret_cast<const float*>(given) : converted;
        add_row(x, n, stretch(ExactLimbs<float>::together), into.floats);
    }
}

}  // namespace tutti::dp
