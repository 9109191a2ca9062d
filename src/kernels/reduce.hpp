// The arithmetic of a step: combines k sources and stores the result to m sinks in one pass. With one source, a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/types.hpp"

namespace tutti {

struct Reduction {
    DataType type;
    ReduceOp op;
    std::size_t count = 0;                 // elements
    const void* const* sources = nullptr;  // combined in this order
    int source_count = 0;                  // >= 1
    void* const* sinks = nullptr;          // all get the same result; a sink must equal a source or not overlap it
    int sink_count = 0;                    // >= 1
    int scaled_source = -1;                // this source is first multiplied by *scalar and rounded; -1 if none
    const void* scalar = nullptr;          // one element of type
    int divide_by = 0;                     // the result is divided by this; 0 if it is not divided
    std::uint16_t streaming = 0;           // bit(m): this core will not read sink m soon: stores bypass its caches
    std::uint16_t fetching = 0;            // bit(k): source k is in none of its caches: it is fetched ahead

    /// Of the sink or source of that number; 0 beyond the 16th.
    static std::uint16_t bit(std::ptrdiff_t number) {
        return static_cast<std::uint16_t>(number < 16 ? 1 << number : 0);
    }

    bool bypasses() const { return (streaming | fetching) != 0; }
    bool copies() const { return source_count == 1 && scaled_source < 0 && divide_by == 0; }
};

/// Computes a reduction with the widest instructions of this machine. 16- and 8-bit floats are computed in fp32 and
/// rounded once at the end. NaN in gives NaN out, but not the same payload. For max and min +0 is larger than -0. A
/// single source that is neither scaled nor divided is copied bit by bit. Addresses must be aligned to the element
/// size.
void reduce(const Reduction& reduction);

/// The same in plain C++, one element at a time, in the order of sources: the definition of what reduce() computes.
void reduce_reference(const Reduction& reduction);

/// An implementation of reduce() for one instruction set.
struct ReduceVariant {
    std::string_view name;  // "avx512", "avx2", "plain"
    bool (*usable)();       // on this machine
    void (*reduce)(const Reduction&);
};

/// All variants that were compiled in, widest first. The last is "plain", which is always usable.
struct ReduceVariants {
    const ReduceVariant* begin;
    const ReduceVariant* end;
};
ReduceVariants reduce_variants();

}  // namespace tutti
