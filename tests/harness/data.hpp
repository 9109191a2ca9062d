// Input data of collectives in tests, and the expected results.
//
// - Data that is only moved: any bits, including the type's extremes.
// - Integers that are reduced: the same. Sums and products wrap around, so every order gives the same result.
// - Floats for max and min: any bits except NaNs, so also infinities, subnormals and both zeros.
// - Floats that are added, averaged or multiplied: numbers of both signs and many exponents, chosen so that results of
//   up to 4 ranks (8 if the mantissa has 3 bits or more) are exact in any order.
#pragma once

#include <cstddef>
#include <optional>

#include "tutti/tutti.h"

namespace tutti::harness {

/// The data of a call. op: nullopt if data is only moved.
struct Data {
    tuttiDataType_t type;
    std::optional<tuttiRedOp_t> op;

    /// Writes elements [first, first + count) of a rank's input.
    void put_input(int rank, std::size_t first, std::size_t count, void* to) const;

    /// Writes elements [first, first + count) of the reduction over ranks 0 to ranks - 1, by reduce_reference().
    void put_result(int ranks, std::size_t first, std::size_t count, void* to) const;
};

}  // namespace tutti::harness
