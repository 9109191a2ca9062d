// Converts one element of any type to and from double. Slow and plain: the reference for tests of the fast conversions.
#pragma once

#include "base/types.hpp"

namespace tutti {

/// Exact except for int64 and uint64, which are rounded to nearest. `element` may be unaligned.
double load_as_double(DataType type, const void* element);

/// Rounds to nearest, ties to even. Floats: overflow gives infinity (NaN in float8e4m3, which has no infinity), NaN
/// stays NaN, zeros keep their sign. Integers: value must be within the type's range.
void store_from_double(DataType type, double value, void* element);

}  // namespace tutti
