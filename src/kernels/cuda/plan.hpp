// The arguments of the kernel, and the state that host and kernel share while it runs. Plain data. A side follows a
// pointer only if the memory is its own or the CUDA runtime has mapped it there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/types.hpp"
#include "kernels/cuda/simt.hpp"
#include "schedule/program.hpp"
#include "transport/fifo.hpp"

namespace tutti::gpu {

inline constexpr unsigned block_threads = 384;
inline constexpr std::uint32_t line_depth = 4;  // messages in flight in lines, per end
inline constexpr int max_regions = 128;         // of a peer's lent allocations that are mapped at a time
inline constexpr int max_operands = 128;        // of a step
inline constexpr int max_connections = 64;      // of a program, in each direction
inline constexpr int max_jobs = 16;             // ranks that one launch serves

/// One end of one channel of a connection as the kernel sees it. It stays in device memory between launches.
struct End {
    Fifo* fifo = nullptr;
    std::byte* slots = nullptr;                 // slot_depth * slot_stride bytes
    Line* lines = nullptr;                      // line_depth * line_stride; nullptr if the peer is no GPU
    const std::byte* const* regions = nullptr;  // what a peer in another process lends (gpu/lending.hpp), by number
    std::uint64_t slot_stride = 0;
    std::uint32_t line_stride = 0;  // lines of a message
    std::uint32_t in_process = 0;   // 1 if addresses are valid on both ends
    std::uint32_t next = 0;         // number of the next message, as in Sender and Receiver
    std::uint32_t released = 0;
    std::uint32_t last_reference = 0;
    std::uint32_t refers = 0;  // 1 if messages by reference may still be being read, up to number last_reference - 1
    std::int32_t peer = -1;
    std::uint32_t under_way = 0;  // 1 if parts of message `next` have been written, or consumed
    std::uint32_t part = 0;       // offset of the next part, in bytes
};

/// As BoundProgram::Postable.
struct Postable {
    std::int32_t from;
    std::uint32_t ahead;
    Operand slice;
    std::uint32_t column;
};

/// Why a kernel gave up. The first thread that sets `claimed` writes the rest, then sets `done` for the host.
struct Verdict {
    std::uint32_t claimed;
    enum Cause : std::uint32_t {
        timed_out = 1,
        other_call,
        wrong_size,
        wrong_kind,
        few_signals,   // channel: the signal; expected and seen: how many
        closed_window  // expected: bytes of the put or, if source is 1, of the get
    } cause;
    std::int32_t peer;     // -1 if unknown
    std::uint32_t source;  // 1: the thread waited for, or got, a message; 0: it waited for room
    std::uint32_t call;    // Job::call
    std::uint32_t channel, tile, step;
    std::uint64_t expected, seen;
    std::uint32_t done;
};

/// One per communicator, in host memory that the GPU can access.
struct Control {
    alignas(64) std::uint32_t abort;  // not 0: all waits of kernels end
    alignas(64) Verdict verdict;
};

struct SmallPlan;

/// A bound program in device memory; tutti::gpu::Program owns it.
struct Plan {
    const Step* steps = nullptr;
    const Operand* operands = nullptr;
    const Postable* postables = nullptr;
    End* const* to = nullptr;  // [channel][connection], pointers because programs share ends
    End* const* from = nullptr;
    Control* control = nullptr;
    std::byte* scratch = nullptr;  // scratch_chunks * scratch_stride bytes per channel
    std::uint64_t scratch_stride = 0;
    std::uint32_t step_count = 0, operand_count = 0, postable_count = 0, to_count = 0, from_count = 0;
    std::uint32_t columns = 1, scratch_chunks = 0;
    std::uint32_t pull_safe = 0, push_safe = 0;
    const SmallPlan* small = nullptr;  // for the host: how small.hpp runs it; nullptr if it can't
};

/// A buffer of the user, and the allocation that contains it if this rank lends that to its peers.
struct Buffer {
    std::byte* at = nullptr;
    const std::byte* base = nullptr;  // of the lent allocation
    std::uint32_t region = 0;         // number of the lent allocation; 0 if not every peer can access one
    std::uint32_t shareable = 0;      // 1 if peers in this process may access it
};

/// One operation of one rank, tiled for its program; as tutti::Job.
struct Job {
    Plan plan;
    Buffer input, output;
    std::uint64_t count = 0, block = 0, tile = 0;
    const void* scalar = nullptr;  // in device memory; nullptr if the scalar is in `immediate`
    std::uint64_t immediate = 0;
    std::uint64_t timeout_ns = 0;
    std::uint32_t tiles = 0;
    std::uint32_t channels = 0;
    std::uint32_t signature = 0;
    std::uint32_t call = 0;  // number among this rank's calls, for the verdict
    std::int32_t divide_by = 0;
    std::uint8_t op = 0;         // ReduceOp
    std::uint8_t is_signed = 0;  // of integer types
    std::uint8_t scaled = 0;     // 1 if inputs are multiplied by the scalar
    std::uint8_t by_reference = 0;
    std::uint8_t in_lines = 0;  // 1 if messages go in lines where both ends are GPUs
    std::uint8_t in_cells = 0;  // 1 if messages of several parts fit into a cell
};

struct Launch {
    Job jobs[max_jobs];
};

static_assert(std::is_trivially_copyable_v<Job> && std::is_trivially_copyable_v<End>);
static_assert(sizeof(Launch) <= 4096, "the arguments of a kernel");
static_assert(std::is_standard_layout_v<Fifo> && offsetof(Fifo, posted_receives) == fifo_depth * sizeof(Cell) &&
                  offsetof(Fifo, released) == 2 * fifo_depth * sizeof(Cell),
              "kernels and hosts use the same FIFOs, whichever compiler made them");

}  // namespace tutti::gpu
