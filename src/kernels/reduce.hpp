// k sources to m sinks in one pass: the arithmetic of every step. A copy is one source.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/types.hpp"

namespace tutti {

struct Reduction {
    DataType type;
    ReduceOp op;
    std::size_t count = 0;                 // elements
    const void* const* sources = nullptr;  // combined in this order
    int source_count = 0;                  // >= 1
    void* const* sinks = nullptr;  // all receive the same result; a sink may equal a source, or be disjoint from it
    int sink_count = 0;            // >= 1
    int scaled_source = -1;        // this source is multiplied by *scalar first, and rounded; -1: none
    const void* scalar = nullptr;  // one element of type
    int divide_by = 0;             // the result is divided by this; 0: it is not
    bool streaming = false;        // the sinks will not be read soon: store around the cache where that is faster
};

/// 16- and 8-bit floats: everything in fp32, rounded once at the end. Any alignment of the element type's size. NaN in,
/// NaN out, though not its payload; for max and min +0 is larger than -0. One source that is neither scaled nor divided
/// is copied bit by bit. Uses the widest instructions that this machine has.
void reduce(const Reduction& reduction);

/// The same in plain C++ and in the order written, for comparison: the definition of what reduce() computes.
void reduce_reference(const Reduction& reduction);

/// One set of instructions and its reduce().
struct ReduceVariant {
    std::string_view name;  // "avx512", "avx2", "plain"
    bool (*usable)();       // on this machine
    void (*reduce)(const Reduction&);
};

/// All that were compiled in, widest first; the last is "plain" and always usable.
struct ReduceVariants {
    const ReduceVariant* begin;
    const ReduceVariant* end;
};
ReduceVariants reduce_variants();

}  // namespace tutti
