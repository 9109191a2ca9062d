// The vocabulary that every room shares: ranks, reduction operations, collectives, and (data_type.hpp)
// element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/data_type.hpp"

namespace tutti {

using Rank = int;

/// The cost of messages between two ranks. A message of b bytes arrives after alpha_us + b * us_per_byte;
/// handling_us is the time that it takes both cores, beside the bytes.
struct Line {
    double alpha_us;
    double us_per_byte;
    double handling_us = 0;  // of the sender's core, and the same of the receiver's
};

// How a step combines two elements. avg and pre-multiplied sum are `sum` with a scale (Job::divide_by, Job::scalar).
enum class ReduceOp : std::uint8_t { sum, prod, max, min };
inline constexpr int reduce_ops = 4;

enum class Collective : std::uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    reduce,
    send,
    recv,
    all_to_all,
    gather,
    scatter,
    barrier
};
inline constexpr int collectives = 11;

constexpr std::string_view name_of(ReduceOp op) {
    constexpr std::string_view names[] = {"sum", "prod", "max", "min"};
    static_assert(sizeof names / sizeof *names == reduce_ops);
    return names[static_cast<int>(op)];
}

constexpr std::string_view name_of(Collective collective) {
    constexpr std::string_view names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "send",
                                          "recv",       "all_to_all",     "gather",     "scatter",   "barrier"};
    static_assert(sizeof names / sizeof *names == collectives);
    return names[static_cast<int>(collective)];
}

constexpr bool has_root(Collective c) {
    return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather || c == Collective::scatter;
}
/// True if one of the buffers has `count` elements for each rank.
constexpr bool row_per_rank(Collective c) {
    return c == Collective::all_gather || c == Collective::reduce_scatter || c == Collective::all_to_all ||
           c == Collective::gather || c == Collective::scatter;
}
/// True if every rank passes all counts of an uneven call. Otherwise a rank knows only those that concern itself.
constexpr bool counts_known_to_all(Collective c) {
    return c == Collective::all_gather || c == Collective::reduce_scatter;
}
constexpr bool reduces(Collective c) {
    return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}

}  // namespace tutti
