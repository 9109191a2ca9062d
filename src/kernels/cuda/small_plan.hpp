// The arguments of the kernel of small messages (small.hpp), and how the host makes them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/plan.hpp"

namespace tutti::gpu {

inline constexpr std::uint32_t small_connections = 8;  // of a program, in each direction
inline constexpr std::uint32_t small_steps = 16, small_operands = 48;
inline constexpr unsigned small_jobs = 8;

/// As Operand, for the host.
struct SmallOperand {
    Place place;
    std::uint8_t message;     // of a peer: how many messages of the same connection the program has before it
    std::uint8_t index, row;  // of a peer: the index into numbers; of scratch: the chunk; else the column and the row
};

/// As Step.
struct SmallStep {
    std::uint8_t first, sources, sinks;
    std::uint8_t column : 7, completes : 1;
};

/// A program that can run here, and its connections. No connection has more messages than line_depth, so the credits of
/// a call are those of earlier calls. The first step's operands come first.
struct SmallPlan {
    SmallOperand operands[small_operands] = {};
    SmallStep steps[small_steps] = {};
    std::uint16_t numbers[2 * small_connections] = {};  // of ends of the first channel: those that it sends by first
    std::uint8_t messages[2 * small_connections] = {};
    std::uint8_t step_count = 0, operand_count = 0, to_count = 0, from_count = 0;
    std::uint32_t stride = 0;  // from the number of an end to that of the same connection's next channel
    End* ends = nullptr;       // by number
};

/// One operation of one rank; as Job. The kernel waits once for all of it.
struct SmallJob {
    std::uint64_t at[small_operands];   // of operands: in memory, the address in the first channel; the end's number
    std::uint8_t kind[small_operands];  // of operands: 0: memory; 1 + message: of a peer
    struct {
        std::uint8_t first, sources, sinks, completes;
        std::uint32_t bytes;  // of all channels
    } steps[small_steps];
    std::uint16_t numbers[2 * small_connections];  // these as in SmallPlan
    std::uint8_t messages[2 * small_connections];
    std::uint8_t step_count, operand_count, to_count, from_count;
    std::uint32_t stride;
    End* ends;
    Control* control;
    std::uint32_t tile;  // from one channel to the next, in bytes
    std::uint32_t call, timeout_ms;
    std::int32_t divide_by;
    std::uint8_t channels, op, is_signed;
    std::uint8_t in_words;  // 1: every operand of memory begins at a multiple of 8 bytes
};

/// The argument of the kernel.
struct SmallLaunch {
    SmallJob jobs[small_jobs];
};
static_assert(std::is_trivially_copyable_v<SmallLaunch>);
static_assert(sizeof(SmallLaunch) <= 32764, "the arguments of a kernel since CUDA 12.1");

/// Whether the job can run here: it has a tile for each channel, all its messages go in lines, and its numbers fit.
inline bool is_small(const Job& job) {
    return job.plan.small != nullptr && job.in_lines != 0 && job.tiles <= job.channels && job.channels <= UINT8_MAX &&
           job.scaled == 0 && job.block <= INT32_MAX / 8;
}

/// element: its size in bytes.
inline SmallJob small_job(const Job& job, std::size_t element) {
    const Plan& p = job.plan;
    const SmallPlan& small = *p.small;
    SmallJob made{};
    std::uint64_t starts = job.channels > 1 ? job.tile * element : 0;  // a multiple of 8 if all operands are
    for (std::uint32_t i = 0; i < small.operand_count; ++i) {
        const SmallOperand o = small.operands[i];
        if (o.place == Place::peer) {
            made.at[i] = small.numbers[o.index];
            made.kind[i] = static_cast<std::uint8_t>(1 + o.message);
        } else if (o.place == Place::scratch) {
            made.at[i] = reinterpret_cast<std::uint64_t>(p.scratch) + o.index * job.channels * p.scratch_stride;
        } else {
            made.at[i] = reinterpret_cast<std::uint64_t>(o.place == Place::input ? job.input.at : job.output.at) +
                         (o.row * job.count + o.index * job.block) * element;
            starts |= made.at[i];
        }
    }
    for (std::uint32_t i = 0; i < small.step_count; ++i) {
        const SmallStep s = small.steps[i];
        const std::uint64_t begin = s.column * job.block, left = begin < job.count ? job.count - begin : 0;
        made.steps[i] = {s.first, s.sources, s.sinks, s.completes,
                         static_cast<std::uint32_t>((left < job.block ? left : job.block) * element)};
    }
    for (std::uint32_t i = 0; i < 2 * small_connections; ++i) {
        made.numbers[i] = small.numbers[i];
        made.messages[i] = small.messages[i];
    }
    made.step_count = small.step_count;
    made.operand_count = small.operand_count;
    made.to_count = small.to_count;
    made.from_count = small.from_count;
    made.stride = small.stride;
    made.ends = small.ends;
    made.control = p.control;
    made.tile = static_cast<std::uint32_t>(job.tile * element);
    made.call = job.call;
    const std::uint64_t timeout_ms = job.timeout_ns / 1'000'000;
    made.timeout_ms = static_cast<std::uint32_t>(timeout_ms < UINT32_MAX ? timeout_ms : UINT32_MAX);
    made.divide_by = job.divide_by;
    made.channels = static_cast<std::uint8_t>(job.channels);
    made.op = job.op;
    made.is_signed = job.is_signed;
    made.in_words = starts % 8 == 0;
    return made;
}

}  // namespace tutti::gpu
