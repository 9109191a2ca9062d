// One-sided operations between GPUs. The state of a rank is in its Board, on its own GPU. Peers raise its signals there
// and check that its windows are open. A get is like a put, with source and destination exchanged and without a signal:
//
//     origin (puts)                                     target (owns the window)
//     touching = 1   ------------------------------>
//     gate == key?   (a fence between the two)          deregisters: gate = 0
//     copies         ------------------------------>    until touching == 0   (a fence between the two)
//     raised += 1    ------------------------------>    or waits: until raised - taken >= count; taken += count
//     touching = 0   ------------------------------>
//
// All counters stay on the GPUs, so captured graphs continue where the last launch stopped. Only signal waits and
// closing gates wait for other ranks, so the blocks of a put or a get need not run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/plan.hpp"
#include "kernels/cuda/reduce.hpp"
#include "kernels/cuda/wait.hpp"

namespace tutti::gpu {

inline constexpr unsigned one_sided_threads = 512;
inline constexpr std::uint32_t put_blocks = 32;                      // most blocks of a put
inline constexpr std::size_t block_share = std::size_t{32} << 10;    // bytes of a put for each block
inline constexpr std::size_t abort_interval = std::size_t{1} << 20;  // bytes after which a block checks Control::abort

/// A rank's state, in its GPU's memory. Peers are numbered by their seats (gpu/places.hpp).
struct Board {
    static constexpr int seats = 32, signals = 8, gates = 512;
    // Written by peers, each in its own elements:
    std::uint64_t raised[seats][signals];        // signals for this rank so far
    std::uint32_t touching[seats * put_blocks];  // by peer's block: 1 while it may use a window of this rank
    // Written by this rank's kernels:
    std::uint32_t gate[gates];            // of this rank's parts of windows: the key while open, else 0
    std::uint64_t taken[seats][signals];  // signals consumed by waits so far
    std::uint64_t sent[seats][signals];   // signals raised for peers so far
    std::uint32_t ended[seats];           // by peer: blocks of the current put or get that have ended
};

/// A put, a signal (a put of 0 bytes), or a get.
struct Put {
    std::byte* to;
    const std::byte* from;
    std::uint64_t bytes;
    Board *mine, *theirs;
    Control* control;
    std::int32_t peer;
    std::uint32_t seat, peers_seat;  // this rank's; the peer's
    std::uint32_t signal;
    std::uint32_t gate, key;  // of the window: index of the gate, expected key
    std::uint32_t blocks;
    std::uint32_t gets;  // 1 for a get: `from` is in the peer's window, and no signal is raised
};

/// `count` signals of a peer.
struct Wanted {
    std::uint64_t count;
    std::int32_t peer;
    std::uint16_t peers_seat, signal;
};

inline constexpr int max_puts = 32, max_wanted = 200;

/// Puts and gets, each with another peer. blocks: those of the one that has most.
struct Puts {
    Put put[max_puts];
    std::uint32_t count, blocks;
};
/// A wait for signals. No signal may be in `wanted` twice.
struct SignalWait {
    Board* mine;
    Control* control;
    std::uint64_t timeout_ns;
    std::uint32_t count;
    Wanted wanted[max_wanted];
};
/// Sets gates to a key. Key 0 closes them, and the kernel then waits until no peer uses any window of this rank.
struct GateChange {
    Board* mine;
    std::uint32_t first, count, key;
    const std::uint32_t* abort;
    std::uint64_t timeout_ns;
    std::uint32_t* untouched;  // set to 1 at the end, but not if the wait was aborted or timed out
};

/// The argument of the kernel.
struct OneSidedTask {
    enum class Kind : std::uint32_t { puts, wait, gates } kind;
    union {
        Puts puts;
        SignalWait wait;
        GateChange gates;
    };
    std::uint32_t blocks() const { return kind == Kind::puts ? puts.blocks : 1; }
    std::uint32_t jobs() const { return kind == Kind::puts ? puts.count : 1; }
};
static_assert(std::is_trivially_copyable_v<OneSidedTask> && sizeof(OneSidedTask) <= 4096, "the arguments of a kernel");

namespace detail {

TUTTI_DEVICE void give_up(Control& control, Verdict::Cause cause, std::int32_t peer, std::uint32_t signal,
                          std::uint64_t expected, std::uint64_t seen, std::uint32_t source = 0) {
    Verdict& v = control.verdict;
    if (claim(&v.claimed)) {
        v.cause = cause;
        v.peer = peer;
        v.source = source;
        v.channel = signal;
        v.expected = expected;
        v.seen = seen;
        store_release(&v.done, 1);
    }
    store_release(&control.abort, 1);
}

template <std::size_t element>
TUTTI_DEVICE void copy_words(std::byte* to, const std::byte* from, std::size_t begin, std::size_t end) {
    for (std::size_t at = begin + 8 * thread(); at < end; at += 8 * threads()) {
        const std::size_t size = end - at < 8 ? end - at : 8;
        store_word<element>(to + at, load_word<element>(from + at, size), size);
    }
}

/// Copies by all threads of the block, in packs if both sides have the same alignment.
TUTTI_DEVICE void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (to == from) return;
    const Term source{const_cast<std::byte*>(from), 0}, sink{to, 0};
    const Terms t{&source, &sink, 1, 1, -1, 0, 0, false};
    std::size_t head = 0, body = 0;
    if (bytes >= 2 * sizeof(Pack) && packs_fit(t, head)) {
        const std::size_t packs = (bytes - head) / sizeof(Pack);
        body = head + packs * sizeof(Pack);
        copy_packs(t, head, packs);
    }
    const bool by_fours =
        (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes) % 4 == 0;
    for (int part = 0; part < 2; ++part) {  // before the packs, and after them
        const std::size_t begin = part == 0 ? 0 : body, end = part == 0 ? head : bytes;
        by_fours ? copy_words<4>(to, from, begin, end) : copy_words<1>(to, from, begin, end);
    }
}

/// Copies block `number`'s share of the bytes. False if the window is closed, or if the host has set abort. Ends with a
/// barrier.
TUTTI_DEVICE bool copy_share(const Put& p, std::uint32_t number) {
    constexpr std::size_t whole = sizeof(Pack);
    const std::size_t share = (p.bytes / p.blocks + whole - 1) / whole * whole;
    const std::size_t begin = share * number < p.bytes ? share * number : p.bytes;
    const std::size_t end = number + 1 == p.blocks || begin + share > p.bytes ? p.bytes : begin + share;
    bool good = true;
    if (thread() == 0 && load_acquire(&p.theirs->gate[p.gate]) != p.key) {
        give_up(*p.control, Verdict::closed_window, p.peer, p.signal, p.bytes, 0, p.gets);
        good = false;
    }
    for (std::size_t at = begin; !sync_or(!good); at += abort_interval) {
        if (at >= end) return true;
        copy(p.to + at, p.from + at, end - at < abort_interval ? end - at : abort_interval);
        good = thread() != 0 || at + abort_interval >= end || load_acquire(&p.control->abort) == 0;
    }
    return false;
}

}  // namespace detail

/// Called by all threads of block `number` of a put or a get.
TUTTI_DEVICE void run_put(const Put& p, std::uint32_t number) {
    std::uint32_t* const touching = &p.theirs->touching[p.seat * put_blocks + number];
    if (p.bytes > 0) {
        if (thread() == 0) {
            store_release(touching, 1);
            fence_system();
        }
        const bool copied = detail::copy_share(p, number);
        if (thread() == 0 && !copied) store_release(touching, 0);
        if (!copied) return;
    }
    if (thread() != 0) return;
    if (p.blocks == 1 || add(&p.mine->ended[p.peers_seat], 1) == p.blocks - 1) {
        p.mine->ended[p.peers_seat] = 0;
        if (p.gets == 0) store_release(&p.theirs->raised[p.seat][p.signal], ++p.mine->sent[p.peers_seat][p.signal]);
    }
    if (p.bytes > 0) store_release(touching, 0);
}

TUTTI_DEVICE void run_wait(const SignalWait& w) {
    bool met = true;
    for (std::uint32_t i = thread(); i < w.count && met; i += threads()) {
        const Wanted& wanted = w.wanted[i];
        const std::uint64_t taken = w.mine->taken[wanted.peers_seat][wanted.signal];
        std::uint64_t come = 0;
        const Outcome outcome = detail::until(
            [&] {
                come = load_acquire(&w.mine->raised[wanted.peers_seat][wanted.signal]) - taken;
                return come >= wanted.count;
            },
            {&w.control->abort, w.timeout_ns});
        if (outcome == Outcome::timed_out)
            detail::give_up(*w.control, Verdict::few_signals, wanted.peer, wanted.signal, wanted.count, come);
        met = outcome == Outcome::met;
    }
    if (sync_or(!met)) return;
    for (std::uint32_t i = thread(); i < w.count; i += threads())
        w.mine->taken[w.wanted[i].peers_seat][w.wanted[i].signal] += w.wanted[i].count;
}

TUTTI_DEVICE void run_gates(const GateChange& g) {
    for (std::uint32_t i = thread(); i < g.count; i += threads()) store_release(&g.mine->gate[g.first + i], g.key);
    sync();
    fence_system();
    bool met = true;
    for (std::uint32_t i = thread(); i < Board::seats * put_blocks && met && g.key == 0; i += threads())
        met = detail::until([&] { return load_acquire(&g.mine->touching[i]) == 0; }, {g.abort, g.timeout_ns}) ==
              Outcome::met;
    if (!sync_or(!met) && thread() == 0) store_release(g.untouched, 1);
}

/// Called by all threads of block `number` of job `job`.
TUTTI_DEVICE void run_one_sided(const OneSidedTask& task, std::uint32_t number, std::uint32_t job) {
    switch (task.kind) {
        case OneSidedTask::Kind::puts:
            if (number < task.puts.put[job].blocks) run_put(task.puts.put[job], number);
            break;
        case OneSidedTask::Kind::wait:
            run_wait(task.wait);
            break;
        case OneSidedTask::Kind::gates:
            run_gates(task.gates);
            break;
    }
}

}  // namespace tutti::gpu
