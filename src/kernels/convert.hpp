// One element of any type, to and from double: slow and plain. The definition that the fast conversions are tested against.
#pragma once

#include "base/types.hpp"

namespace tutti {

/// Exact for all types but int64 and uint64, which are rounded to nearest. No alignment needed.
double load_as_double(DataType type, const void* element);

/// Rounds to the nearest value, ties to even. Floats: overflow gives infinity (float8e4m3, which has none: NaN), NaN stays
/// NaN, zeros keep their sign. Integers: value must be within the type's range.
void store_from_double(DataType type, double value, void* element);

}  // namespace tutti
