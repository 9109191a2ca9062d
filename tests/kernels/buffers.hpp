// Elements to reduce, and how results are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "kernels/reduce.hpp"

namespace tutti::test {

inline constexpr DataType all_types[data_types] = {
    DataType::int8,    DataType::uint8,   DataType::int32,   DataType::uint32,   DataType::int64,      DataType::uint64,
    DataType::float16, DataType::float32, DataType::float64, DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2};
inline constexpr ReduceOp all_ops[reduce_ops] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min};

constexpr bool is_float(DataType type) { return type >= DataType::float16; }

/// Elements `offset` elements off the alignment of a vector, between bytes that must not change. It ends where its memory ends,
/// so that a sanitizer sees a read beyond.
class Buffer {
  public:
    Buffer(DataType type, std::size_t count, std::size_t offset);
    void* data() { return memory_.get() + begin_; }
    const void* data() const { return memory_.get() + begin_; }
    std::size_t size() const { return size_; }
    bool guards_untouched() const;

  private:
    struct Free {
        void operator()(unsigned char* memory) const { std::free(memory); }
    };
    std::size_t begin_, size_;
    std::unique_ptr<unsigned char, Free> memory_;
};

/// Random bits: all values, also subnormal, infinite and NaN ones. Floats: every other element is an ordinary number instead,
/// of which sums and products stay within the range.
void fill(Buffer& buffer, DataType type, std::mt19937_64& random);

/// Whether all elements have the same bits, or are both NaN. On failure *where says what differs.
bool same(DataType type, const Buffer& a, const Buffer& b, std::string* where);

}  // namespace tutti::test
