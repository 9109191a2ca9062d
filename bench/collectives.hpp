// The collectives that are measured, one row each: everything that distinguishes all_reduce_perf from broadcast_perf.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <vector>

#include "library.hpp"

namespace perf {

/// Elements, for a row of a given size.
struct Shape {
    std::size_t send;           // what a rank's send buffer holds
    std::size_t receive;        // what its receive buffer holds
    std::size_t count;          // the call's argument
    std::size_t send_in_place;  // where rank r's part begins when both buffers are one: r times this
    std::size_t receive_in_place;
};

struct Call {
    const Library* library;
    const void* send;
    void* receive;
    std::size_t count;
    tuttiDataType_t type;
    tuttiRedOp_t op;
    int root;
    int rank;
    int ranks;
    tuttiComm_t comm;
    tuttiStream_t stream;
};

/// A part of the receive buffer and what must be there: elements first.. of rank `from`'s input, or of the reduction.
struct Piece {
    static constexpr int reduction = -1;
    std::size_t at;
    std::size_t count;
    std::size_t first;
    int from;
};

struct Collective {
    const char* name;
    bool reduces;
    bool has_root;
    bool has_in_place;
    Shape (*shape)(std::size_t elements, int ranks);
    tuttiResult_t (*call)(const Call&);
    std::vector<Piece> (*result)(const Shape&, int rank, int ranks, int root);
    bool (*sends)(int rank, int root);  // or the send buffer is not read
    double (*bus_factor)(int ranks);    // nccl-tests' "bus bandwidth" over "algorithm bandwidth"
    bool in_rounds = false;  // groups one after the other among pairs of a power of two of ranks: not inside a group
};

/// nullptr if there is none of that name.
const Collective* collective_named(const char* name);

}  // namespace perf
