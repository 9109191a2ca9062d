#include "dp/exact_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "dp/numbers.hpp"

namespace tutti::dp {
namespace {

constexpr std::size_t row = 1024;     // elements at a time, so that converted values stay in the L1 cache
constexpr std::size_t together = 16;  // squares that are first added as doubles; no shard ends between them ...
constexpr std::size_t several = 64;  // ... in parameters of this many elements, which begin in cache lines of their own

/// Up to `together` squares, always in the same order.
double few_squares(const float* x, std::size_t count) {
    double lanes[4] = {};
    if (count == together)
        for (std::size_t i = 0; i < together; i += 4)
            for (std::size_t k = 0; k < 4; ++k) lanes[k] += static_cast<double>(x[i + k]) * x[i + k];
    else
        for (std::size_t i = 0; i < count; ++i) lanes[i % 4] += static_cast<double>(x[i]) * x[i];
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

}  // namespace

void ExactSum::add(double x) {
    if (!std::isfinite(x)) ++not_finite_;
    if (!std::isfinite(x) || x == 0) return;
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
    const int at = static_cast<int>(bits >> 52) - 1023 - 52 - lowest;
    const auto limb = static_cast<std::size_t>(at / 32);
    const std::uint64_t low = (mantissa & UINT32_MAX) << (at % 32), high = (mantissa >> 32) << (at % 32);
    limbs_[limb] += static_cast<std::int64_t>(low & UINT32_MAX);
    limbs_[limb + 1] += static_cast<std::int64_t>((low >> 32) + (high & UINT32_MAX));
    limbs_[limb + 2] += static_cast<std::int64_t>(high >> 32);
}

void ExactSum::carry() {
    for (std::size_t i = 0; i + 1 < limbs_.size(); ++i) {
        limbs_[i + 1] += limbs_[i] >> 32;
        limbs_[i] &= UINT32_MAX;
    }
}

double ExactSum::value() const {
    if (not_finite_ != 0) return std::numeric_limits<double>::quiet_NaN();
    ExactSum carried = *this;
    carried.carry();
    double sum = 0;
    for (std::size_t i = limbs_.size(); i-- > 0;)
        sum += std::ldexp(static_cast<double>(carried.limbs_[i]), static_cast<int>(i) * 32 + lowest);
    return sum;
}

void add_squares(DataType type, const void* values, std::size_t count, std::size_t parameter_count, ExactSum& into) {
    const std::size_t stretch = parameter_count < several ? 1 : together;
    float converted[row];
    for (std::size_t i = 0; i < count; i += row) {
        const std::size_t n = std::min(row, count - i);
        const std::byte* const given = static_cast<const std::byte*>(values) + i * size_of(type);
        const bool as_given = type == DataType::float32;
        if (!as_given) convert(DataType::float32, converted, type, given, n);
        const float* const x = as_given ? reinterpret_cast<const float*>(given) : converted;
        for (std::size_t k = 0; k < n; k += stretch) into.add(few_squares(x + k, std::min(stretch, n - k)));
        into.carry();
    }
}

}  // namespace tutti::dp
