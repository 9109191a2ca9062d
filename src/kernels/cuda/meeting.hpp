// A meeting: none of the ranks passes before all have come. Ranks meet before copy engines copy from rank to rank, and
// after it (comm/copy_engine.hpp). Each rank sends an empty message to every other one, on channel 0 and with the
// call's signature. So a rank that calls something else is found as in all collectives. A block has a single warp, so
// that it finds room beside kernels that fill the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/one_sided.hpp"
#include "kernels/cuda/plan.hpp"
#include "kernels/cuda/wait.hpp"

namespace tutti::gpu {

inline constexpr unsigned meeting_threads = 32;

/// One rank's part.
struct Meeting {
    static constexpr std::uint32_t channels = 1;  // blocks

    End* ends;             // to rank 0; the one from it is next
    std::uint32_t stride;  // to the ends of the next rank
    std::int32_t ranks, self;
    std::uint32_t seat;   // this rank's
    std::uint64_t board;  // of a peer: so many bytes behind the FIFO to it, in its arena
    Control* control;
    std::uint64_t timeout_ns;
    std::uint32_t signature, call;  // as in Job
    std::uint32_t begins;           // 1: peers' memory is copied from now on; 0: that has ended
};

struct MeetingLaunch {
    Meeting jobs[max_jobs];
    std::uint32_t count;
};
static_assert(std::is_trivially_copyable_v<MeetingLaunch> && sizeof(MeetingLaunch) <= 4096,
              "the arguments of a kernel");

namespace detail {

/// Sends an empty message.
TUTTI_DEVICE void announce(const Meeting& m, End& to, const Limits& limits) {
    auto* const released = reinterpret_cast<std::uint32_t*>(&to.fifo->released);
    if (static_cast<std::int32_t>(to.next - to.released) >= static_cast<std::int32_t>(fifo_depth)) {
        const WordSeen seen = wait_for_word(released, to.next - fifo_depth + 1, 1u << 31, limits);
        if (seen.outcome == Outcome::timed_out)
            give_up(*m.control, {0, Verdict::timed_out, to.peer, 0, m.call, 0, 0, 1 - m.begins, 0, 0, 0});
        if (seen.outcome != Outcome::met) return;
        to.released = seen.value;
    }
    Cell& cell = to.fifo->cells[to.next % fifo_depth];
    cell.signature = m.signature;
    cell.bytes = 0;
    cell.kind = Kind::inlined;
    store_release(reinterpret_cast<std::uint32_t*>(&cell.turn), ++to.next);
}

/// Waits for the peer's message and compares its signature.
TUTTI_DEVICE void hear(const Meeting& m, End& from, const Limits& limits) {
    Cell& cell = from.fifo->cells[from.next % fifo_depth];
    const WordSeen seen = wait_for_word(reinterpret_cast<std::uint32_t*>(&cell.turn), from.next + 1, 1, limits);
    if (seen.outcome == Outcome::timed_out)
        give_up(*m.control, {0, Verdict::timed_out, from.peer, 1, m.call, 0, 0, 1 - m.begins, 0, 0, 0});
    if (seen.outcome != Outcome::met) return;
    if (cell.signature != m.signature)
        return give_up(*m.control, {0, Verdict::other_call, from.peer, 1, m.call, 0, 0, 1 - m.begins, m.signature,
                                    cell.signature, 0});
    store_release(reinterpret_cast<std::uint32_t*>(&from.fifo->released), ++from.next);
}

}  // namespace detail

/// Called by all threads of a block.
TUTTI_DEVICE void run_meeting(const Meeting& m) {
    const Limits limits{&m.control->abort, m.timeout_ns};
    const bool goes_on = load_acquire(limits.abort) == 0;  // else nobody must believe that the copies have gone well
    for (auto p = static_cast<std::int32_t>(thread()); p < m.ranks; p += static_cast<std::int32_t>(threads())) {
        if (p == m.self) continue;
        End& to = m.ends[static_cast<std::uint32_t>(p) * m.stride];
        auto* const board = reinterpret_cast<Board*>(reinterpret_cast<std::byte*>(to.fifo) + m.board);
        store_release(&board->touching[m.seat * put_blocks], m.begins);
        if (goes_on) detail::announce(m, to, limits);
    }
    for (auto p = static_cast<std::int32_t>(thread()); p < m.ranks && goes_on;
         p += static_cast<std::int32_t>(threads()))
        if (p != m.self) detail::hear(m, m.ends[static_cast<std::uint32_t>(p) * m.stride + 1], limits);
}

}  // namespace tutti::gpu
