// What ranks put into collectives in tests, and what must come out.
//
// - Data that is only moved: any bits, the type's extremes among them.
// - Integers that are reduced: the same; sums and products wrap around, so every order gives the same result.
// - Floats of which the largest or smallest is taken: any bits but NaNs, so infinities, subnormals and both zeros too.
// - Floats that are added, averaged or multiplied: numbers of both signs and many exponents, such that the results of
//   up to 4 ranks (8 where the mantissa has 3 bits or more) are exact, whatever the order.
#pragma once

#include <cstddef>
#include <optional>

#include "tutti/tutti.h"

namespace tutti::harness {

/// The data of a call. op: nullopt where data is only moved.
struct Data {
    tuttiDataType_t type;
    std::optional<tuttiRedOp_t> op;

    /// Writes elements [first, first + count) of what the rank gives.
    void put_input(int rank, std::size_t first, std::size_t count, void* to) const;

    /// Writes elements [first, first + count) of the reduction over ranks 0 to ranks - 1, by reduce_reference().
    void put_result(int ranks, std::size_t first, std::size_t count, void* to) const;
};

}  // namespace tutti::harness
