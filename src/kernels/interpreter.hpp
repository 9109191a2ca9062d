// The step loop for hosts and GPUs. A Machine implements waiting, loads, stores, reductions and messages. The host's is
// HostChannel, run by one thread; the GPU's is in cuda/machine.hpp, where all threads of a block run this loop
// together.
//
// Machine:
//   tiles(), steps(), step(i)     the bound program: the index of a peer operand is its connection's. Machines have
//                                 types of their own for steps
//   begin_tile(t)                 once, before the first step of a tile
//   shortcut(i, seen)             may do all of the following at once for a step that only copies
//   skips(step)                   true if this tile of an uneven call has no data for the step
//   ready(step, seen)             true if all messages that the step receives have arrived and there is room for those
//                                 that it sends. seen: how many messages were ready in earlier calls; updated
//   begin_step(step)
//   load(step), store(step)       determine the addresses of sources and sinks
//   reduce(step)                  sinks <- op(sources)
//   commit(step), release(step)   publish the messages / return the credits of peer operands, except for parts that
//                                 are not the last of their message
//   end_step(step)                wakes peers that sleep until these messages or credits come
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device.hpp"
#include "schedule/program.hpp"

namespace tutti {

/// The offset in its message of the part that follows a part of `bytes` bytes at `offset`. In slots parts begin on
/// cache lines; in cells they are packed. Both ends know the lengths of all parts, so messages do not carry their
/// layout.
TUTTI_HOST_DEVICE constexpr std::size_t next_part(std::size_t offset, std::size_t bytes, bool in_slot) {
    return offset + (in_slot ? (bytes + 63) / 64 * 64 : bytes);
}

/// The signature of the messages of a row of `elements` elements, for uneven calls in which ranks do not know all
/// counts. If the two ranks of a pair disagree about its count, the first message reveals it.
TUTTI_HOST_DEVICE constexpr std::uint32_t row_signature(std::uint32_t call, std::uint64_t elements) {
    const std::uint64_t mixed = (elements + 1) * 0x9e3779b97f4a7c15u;
    return call ^ static_cast<std::uint32_t>(mixed >> 32);
}

/// How far a channel has come.
struct Cursor {
    std::uint32_t tile = 0;
    std::uint32_t step = 0;
    std::uint32_t message = 0;  // the first message of the step that was not ready when last checked
    bool in_tile = false;
};

/// What Machine::shortcut() has done: nothing; found a message that is not ready; the whole step.
enum class Shortcut { none, waits, done };

/// Runs steps from `at` on. Returns true when all tiles are done; false if a step has to wait for a peer, and the
/// caller then calls again. On a GPU ready() itself waits, so false means that the kernel gave up.
template <class Machine>
[[gnu::hot]] TUTTI_HOST_DEVICE bool advance(Machine& machine, Cursor& at) {
    for (; at.tile < machine.tiles(); ++at.tile) {
        if (!at.in_tile) machine.begin_tile(at.tile);
        at.in_tile = true;
        for (; at.step < machine.steps(); ++at.step, at.message = 0) {
            const Shortcut shortcut = machine.shortcut(at.step, at.message);
            if (shortcut == Shortcut::done) continue;
            if (shortcut == Shortcut::waits) return false;
            const auto& step = machine.step(at.step);
            if (machine.skips(step)) continue;
            if (!machine.ready(step, at.message)) return false;
            machine.begin_step(step);
            machine.load(step);
            machine.store(step);
            machine.reduce(step);
            machine.commit(step);
            machine.release(step);
            machine.end_step(step);
        }
        at.step = 0;
        at.in_tile = false;
    }
    return true;
}

}  // namespace tutti
