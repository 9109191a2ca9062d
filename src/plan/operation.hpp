// What the user asked for: a call that has passed its checks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/one_sided.hpp"
#include "schedule/rows.hpp"

namespace tutti {

/// Plain data; its Batch keeps what it points to.
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
    const Rows* rows = nullptr;           // of an uneven call
    bool symmetric = false;               // on GPUs: kernels of all ranks can use the buffers of all (SymmetricWindows)
    const OneSided* one_sided = nullptr;  // what it is instead, with nothing of the above

    bool is_pair() const {
        return one_sided == nullptr && (collective == Collective::send || collective == Collective::recv);
    }
    /// Whether it has anything to do. Without elements a barrier has, and an uneven call, where other ranks may have
    /// some.
    bool moves() const {
        return count > 0 || collective == Collective::barrier || rows != nullptr || one_sided != nullptr;
    }
    /// Operations of one queue run one after the other: all collectives (0); the sends to one peer; the receives from
    /// one peer; the puts, gets and signals to one peer; the waits for signals.
    int queue() const {
        if (one_sided != nullptr) return one_sided->kind == OneSided::Kind::wait ? -1 : -2 - one_sided->peer;
        if (collective == Collective::send) return 1 + 2 * root;
        if (collective == Collective::recv) return 2 + 2 * root;
        return 0;
    }
};

}  // namespace tutti
