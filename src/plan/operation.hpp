// A call that has passed its checks, ready to run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "schedule/rows.hpp"

namespace tutti {

struct OneSided;

struct Operation {
    Collective collective{};
    DataType type{};
    ReduceOp op = ReduceOp::sum;
    std::uint8_t call_op = 0;  // as the user named it: tuttiRedOp_t, 5 for every pre-multiplied sum
    bool average = false;
    bool premultiply = false;
    Rank root = 0;          // of collectives that have one; send and recv: the peer
    std::size_t count = 0;  // uneven: of the longest row; 0 for a barrier and uneven calls only
    const void* input = nullptr;
    void* output = nullptr;
    const void* scalar = nullptr;         // pre-multiplied sum: read when it runs; nullptr: immediate
    std::uint64_t immediate = 0;          // pre-multiplied sum: the bytes of one element
    const Rows* rows = nullptr;           // of an uneven call; its Batch keeps them
    const OneSided* one_sided = nullptr;  // what it is instead, with nothing of the above; its Batch keeps it

    bool is_pair() const {
        return one_sided == nullptr && (collective == Collective::send || collective == Collective::recv);
    }
    /// Whether it has anything to do. Without elements a barrier has, and an uneven call, where other ranks may have
    /// some.
    bool moves() const {
        return count > 0 || collective == Collective::barrier || rows != nullptr || one_sided != nullptr;
    }
};

}  // namespace tutti
