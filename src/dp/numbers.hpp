// Arithmetic on plain arrays, written so that the compiler vectorises it.
#pragma once

#include <cstddef>

#include "base/types.hpp"

namespace tutti::dp {

/// Rounds to nearest, ties to even. `to` and `from` may be the same type; ranges are disjoint or equal in place and
/// type. float8e4m3 saturates to 448.
void convert(DataType to_type, void* to, DataType from_type, const void* from, std::size_t count);

/// into[i] += from[i], rounded to the type of `into`.
void add(DataType into_type, void* into, DataType from_type, const void* from, std::size_t count);

/// values[i] *= factor, values[i] /= divisor: in fp32 (float64: in fp64), rounded once.
void multiply(DataType type, void* values, std::size_t count, double factor);
void divide(DataType type, void* values, std::size_t count, int divisor);

/// No less than -limit, no more than limit, which is rounded to the type; NaNs stay.
void clamp(DataType type, void* values, std::size_t count, double limit);

/// The sum of squares, in fp64, in an order that depends on count alone.
double sum_of_squares(DataType type, const void* values, std::size_t count);

/// The first element that is a NaN or an infinity; count if there is none.
std::size_t first_bad(DataType type, const void* values, std::size_t count);

/// The least magnitude that is not less than any of values.
float largest_magnitude(const float* values, std::size_t count);

}  // namespace tutti::dp
