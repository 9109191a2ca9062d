// Elements to reduce, and how results are compared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "harness/guarded.hpp"
#include "kernels/reduce.hpp"

namespace tutti::test {

inline constexpr auto all_types = [] {
    std::array<DataType, data_types> types{};
    for (std::size_t i = 0; i < types.size(); ++i) types[i] = static_cast<DataType>(i);
    return types;
}();
inline constexpr ReduceOp all_ops[reduce_ops] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min};

constexpr bool is_float(DataType type) {
    return !is_integer(type);
}

using harness::Guarded;

/// Elements `gap` elements behind a page without access, or before one.
class Buffer {
  public:
    Buffer(DataType type, std::size_t count, std::size_t gap, Guarded::At at = Guarded::At::back);
    void* data() { return memory_.data() + begin_; }
    const void* data() const { return memory_.data() + begin_; }
    std::size_t size() const { return size_; }
    bool guards_untouched() const { return memory_.untouched(begin_, size_); }

  private:
    std::size_t begin_, size_;
    Guarded memory_;
};

/// Random bits: all values, also subnormal, infinite and NaN ones. Floats: every other element is an ordinary number
/// instead, of which sums and products stay within the range.
void fill(Buffer& buffer, DataType type, std::mt19937_64& random);

/// Whether all elements have the same bits, or are both NaN. On failure *where says what differs.
bool same(DataType type, const Buffer& a, const Buffer& b, std::string* where);

}  // namespace tutti::test
