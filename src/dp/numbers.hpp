// Arithmetic on plain arrays, written so that the compiler vectorises it.
#pragma once

#include <cstddef>

#include "base/types.hpp"

namespace tutti::dp {

/// Rounds to nearest, ties to even; float8e4m3 saturates to 448. The ranges must be disjoint, or the same with the same
/// type.
void convert(DataType to_type, void* to, DataType from_type, const void* from, std::size_t count);

/// into[i] += from[i], rounded to the type of `into`.
void add(DataType into_type, void* into, DataType from_type, const void* from, std::size_t count);

/// values[i] *= factor, values[i] /= divisor. Computed in fp32 (float64: in fp64) and rounded once.
void multiply(DataType type, void* values, std::size_t count, double factor);
void divide(DataType type, void* values, std::size_t count, int divisor);

/// Clamps values to [-limit, limit], with limit rounded to the type. NaNs stay.
void clamp(DataType type, void* values, std::size_t count, double limit);

/// The index of the first NaN or infinity; count if there is none.
std::size_t first_bad(DataType type, const void* values, std::size_t count);

/// The greatest magnitude, without NaNs; 0 if count is 0.
float largest_magnitude(const float* values, std::size_t count);

}  // namespace tutti::dp
