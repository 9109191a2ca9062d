// The data: what every rank sends, and what must come out, known in advance and exact in any order of reduction.
//
// A message is a periodic sequence whose period is built element by element from a hash of (seed, rank, index) and then
// copied; each further period is rotated by an amount of its own, so that misplaced pieces are seen. All ranks rotate
// alike, hence the result of a reduction is periodic in the same way, and checking a buffer costs little more than a
// memcmp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "numbers.hpp"

namespace perf {

struct DataKind {
    tuttiDataType_t type;
    Op op;  // none: arbitrary bits
    int ranks;
    bool real;  // random numbers with rounding, for --error; otherwise exact ones
    std::uint64_t seed;
};

class Pattern {
  public:
    static constexpr std::size_t period = 4099;  // a prime, so that no power of two fits into it

    Pattern() = default;
    Pattern(std::size_t element, std::uint64_t seed, std::vector<std::byte> table);

    /// Elements first .. first + count of the sequence.
    void write(std::byte* to, std::size_t first, std::size_t count) const;
    const std::byte* element(std::size_t index) const;

  private:
    std::size_t position(std::size_t index) const;

    std::size_t element_ = 1;
    std::size_t elements_ = 0;  // in the table: min(period, what is needed)
    std::uint64_t seed_ = 0;
    std::vector<std::byte> table_;
};

/// What `rank` sends. `needed`: no element from there on will be asked for.
Pattern input_pattern(const DataKind& kind, int rank, std::size_t needed);

/// What a reduction over all ranks gives.
Pattern result_pattern(const DataKind& kind, std::size_t needed);

/// The result in fp64, without the rounding to the type, at element `index` of result_pattern.
std::vector<double> result_in_fp64(const DataKind& kind, std::size_t needed);
std::size_t position_in_period(std::uint64_t seed, std::size_t index, std::size_t needed);

/// Units in the last place by which a correct result may differ: 0 except for quotients that are not exact.
std::uint64_t tolerance(const DataKind& kind);

/// The scalar of `rank` for a pre-multiplied sum, as bits of the type.
std::uint64_t premul_scalar(tuttiDataType_t type, int rank);

}  // namespace perf
