// What the host hands to the kernel, and what both look at while it runs. Plain data: no pointer here is followed by
// the side that does not own the memory, but through what the runtime has mapped for it.
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
inline constexpr std::uint32_t line_depth = 4;        // messages under way in lines
inline constexpr std::size_t line_bytes = 16 * 1024;  // of data in a message in lines; they occupy twice as much
inline constexpr std::size_t lines_per_message = line_bytes / 8;
inline constexpr int max_regions = 128;     // allocations of a peer that this rank can see at a time
inline constexpr int max_operands = 128;    // of a step
inline constexpr int max_connections = 64;  // of a program, in each direction
inline constexpr int max_jobs = 16;         // ranks that one launch serves

/// One end of one channel of a connection as the kernel sees it. It stays in device memory between launches.
struct End {
    Fifo* fifo = nullptr;
    std::byte* slots = nullptr;                 // slot_depth * slot_stride
    Line* lines = nullptr;                      // line_depth * lines_per_message; nullptr: the peer is no GPU
    const std::byte* const* regions = nullptr;  // a peer in another process: what it lends (gpu/lending.hpp)
    std::uint64_t slot_stride = 0;
    std::uint32_t in_process = 0;  // 1: an address of this rank is one for the peer, too
    std::uint32_t next = 0;        // as in Sender and Receiver
    std::uint32_t released = 0;
    std::uint32_t last_reference = 0;
    std::uint32_t refers = 0;  // 1: a message by reference may still be being read, the last one is last_reference - 1
    std::int32_t peer = -1;
    std::uint32_t under_way = 0;  // parts of the next message have been sent, or consumed
    std::uint32_t part = 0;       // bytes into it where the next one is
};

/// A plain receive into a slice, see BoundProgram.
struct Postable {
    std::int32_t from;
    std::uint32_t ahead;
    Operand slice;
    std::uint32_t column;
};

/// What a kernel that gives up has to say. The first one to claim it writes it; done tells the host.
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
    std::int32_t peer;     // -1: it can't be told
    std::uint32_t source;  // 1: it waited for, or got, a message; 0: it waited for space
    std::uint32_t call;    // Job::call
    std::uint32_t channel, tile, step;
    std::uint64_t expected, seen;
    std::uint32_t done;
};

/// In host memory that the GPU sees, one per communicator.
struct Control {
    alignas(64) std::uint32_t abort;  // != 0: every wait ends
    alignas(64) Verdict verdict;
};

/// A bound program in device memory.
struct Plan {
    const Step* steps = nullptr;
    const Operand* operands = nullptr;
    const Postable* postables = nullptr;
    End* const* to = nullptr;  // channel after channel, by connection; programs share them
    End* const* from = nullptr;
    Control* control = nullptr;
    std::byte* scratch = nullptr;  // scratch_chunks * scratch_stride per channel
    std::uint64_t scratch_stride = 0;
    std::uint32_t step_count = 0, operand_count = 0, postable_count = 0, to_count = 0, from_count = 0;
    std::uint32_t columns = 1, scratch_chunks = 0;
    std::uint32_t pull_safe = 0, push_safe = 0;
};

/// A buffer of the user: where it is, and in which of the allocations that this rank lends, which begins at `base`.
struct Buffer {
    std::byte* at = nullptr;
    const std::byte* base = nullptr;
    std::uint32_t region = 0;     // 0: in none that all peers see
    std::uint32_t shareable = 0;  // peers in this process may use it
};

/// One operation of one rank, cut for its program: see tutti::Job.
struct Job {
    Plan plan;
    Buffer input, output;
    std::uint64_t count = 0, block = 0, tile = 0;
    const void* scalar = nullptr;  // device memory; nullptr: `immediate` if scaled
    std::uint64_t immediate = 0;
    std::uint64_t timeout_ns = 0;
    std::uint32_t tiles = 0;
    std::uint32_t channels = 0;
    std::uint32_t signature = 0;
    std::uint32_t call = 0;  // its number among this rank's, for the verdict
    std::int32_t divide_by = 0;
    std::uint8_t op = 0;         // ReduceOp
    std::uint8_t is_signed = 0;  // of an integer type
    std::uint8_t scaled = 0;
    std::uint8_t by_reference = 0;
    std::uint8_t in_lines = 0;  // messages go in lines wherever both ends are GPUs
    std::uint8_t in_cells = 0;  // messages of several parts fit into a cell
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
