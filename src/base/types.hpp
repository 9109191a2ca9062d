// The vocabulary that every room shares: ranks, element types, reduction operations, collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti {

using Rank = int;

/// Time of a message of b bytes: alpha_us + b * us_per_byte, and what its sender's core and its receiver's are busy
/// with it, beside the bytes.
struct Line {
    double alpha_us;
    double us_per_byte;
    double handling_us = 0;  // of each of both
};

// Values are those of tuttiDataType_t.
enum class DataType : std::uint8_t {
    int8,
    uint8,
    int32,
    uint32,
    int64,
    uint64,
    float16,
    float32,
    float64,
    bfloat16,
    float8e4m3,
    float8e5m2
};
inline constexpr int data_types = 12;

// What a step's reduction does to two elements. avg and pre-multiplied sum are `sum` plus a scale: see Scaling.
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

constexpr std::size_t size_of(DataType type) {
    constexpr std::uint8_t sizes[data_types] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return sizes[static_cast<int>(type)];
}

/// Of integers: whether there are negative ones.
constexpr bool has_sign(DataType type) {
    return type == DataType::int8 || type == DataType::int32 || type == DataType::int64;
}

constexpr std::string_view name_of(DataType type) {
    constexpr std::string_view names[data_types] = {"int8",    "uint8",   "int32",   "uint32",   "int64",  "uint64",
                                                    "float16", "float32", "float64", "bfloat16", "f8e4m3", "f8e5m2"};
    return names[static_cast<int>(type)];
}

constexpr std::string_view name_of(ReduceOp op) {
    constexpr std::string_view names[reduce_ops] = {"sum", "prod", "max", "min"};
    return names[static_cast<int>(op)];
}

constexpr std::string_view name_of(Collective collective) {
    constexpr std::string_view names[collectives] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                                     "reduce",     "send",           "recv",       "all_to_all",
                                                     "gather",     "scatter",        "barrier"};
    return names[static_cast<int>(collective)];
}

constexpr bool has_root(Collective c) {
    return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather || c == Collective::scatter;
}
/// Where one of the buffers has `count` elements for each rank.
constexpr bool row_per_rank(Collective c) {
    return c == Collective::all_gather || c == Collective::reduce_scatter || c == Collective::all_to_all ||
           c == Collective::gather || c == Collective::scatter;
}
/// Where the counts of an uneven call are arguments on every rank; elsewhere a rank knows those of its own pairs.
constexpr bool counts_known_to_all(Collective c) {
    return c == Collective::all_gather || c == Collective::reduce_scatter;
}
constexpr bool reduces(Collective c) {
    return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}

}  // namespace tutti
