// What the user asked for: a call that has passed its checks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/one_sided.hpp"
#include "schedule/rows.hpp"

namespace tutti {

/// Plain data. It does not own what it points to; its Batch keeps that alive.
struct Operation {
    Collective collective{};
    DataType type{};
    ReduceOp op = ReduceOp::sum;
    std::uint8_t call_op = 0;  // as the user gave it: tuttiRedOp_t, 5 for every pre-multiplied sum
    bool average = false;
    bool premultiply = false;
    Rank root = 0;          // the collective's root, if it has one; send and recv: the peer
    std::size_t count = 0;  // elements; uneven: of the longest row; 0 for a barrier
    const void* input = nullptr;
    void* output = nullptr;
    const void* scalar = nullptr;         // pre-multiplied sum: read when it runs; nullptr: use immediate
    std::uint64_t immediate = 0;          // pre-multiplied sum: the scalar's bytes
    const Rows* rows = nullptr;           // the rows of an uneven call; else nullptr
    bool symmetric = false;               // on GPUs: all ranks' kernels can use all ranks' buffers (SymmetricWindows)
    const OneSided* one_sided = nullptr;  // not null: a one-sided operation, and the above is unused

    bool is_pair() const {
        return one_sided == nullptr && (collective == Collective::send || collective == Collective::recv);
    }
    /// Whether it has anything to do. A barrier always has, and so has an uneven call, since other ranks may have
    /// elements.
    bool moves() const {
        return count > 0 || collective == Collective::barrier || rows != nullptr || one_sided != nullptr;
    }
    /// The queue that it belongs to. Operations of one queue run one after the other: all collectives (0); the sends to
    /// one peer; the receives from one peer; the puts, gets and signals to one peer; the waits for signals.
    int queue() const {
        if (one_sided != nullptr) return one_sided->kind == OneSided::Kind::wait ? -1 : -2 - one_sided->peer;
        if (collective == Collective::send) return 1 + 2 * root;
        if (collective == Collective::recv) return 2 + 2 * root;
        return 0;
    }
};

}  // namespace tutti
