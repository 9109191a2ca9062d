// The step loop, written once. A Machine knows how to wait, load, store, reduce and publish: the host's is HostChannel,
// one thread; the GPU's is cuda/machine.hpp, the threads of a block, all of which run this loop side by side.
//
// Machine:
//   tiles(), steps(), step(i)     the bound program: a peer's index is that of its connection
//   begin_tile(t)                 once, before the first step of a tile
//   skips(step)                   this tile has no such step: an uneven call has no data for it
//   ready(step, seen)             what the step receives is there, and there is room for what it sends; false: would
//                                 block. seen: messages that need not be looked at again
//   begin_step(step)
//   load(step), store(step)       choose where sources and sinks lie
//   reduce(step)                  sinks <- op(sources)
//   commit(step), release(step)   publish messages / give credits back, where an operand is a peer and not a part of a
//                                 message that goes on
//   end_step(step)                wake whoever waits for what was just published
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device.hpp"
#include "schedule/program.hpp"

namespace tutti {

/// Where the part after one of `bytes` bytes at `offset` begins in its message. Both ends know the lengths of all
/// parts, so a message says nothing about its layout: in slots parts begin on cache lines, in the cell they follow each
/// other.
TUTTI_HOST_DEVICE constexpr std::size_t next_part(std::size_t offset, std::size_t bytes, bool in_slot) {
    return offset + (in_slot ? (bytes + 63) / 64 * 64 : bytes);
}

/// The signature of a message of a row of so many elements, where ranks do not know all counts: two that disagree about
/// those of their pair find it out with the first message.
TUTTI_HOST_DEVICE constexpr std::uint32_t row_signature(std::uint32_t call, std::uint64_t elements) {
    const std::uint64_t mixed = (elements + 1) * 0x9e3779b97f4a7c15u;
    return call ^ static_cast<std::uint32_t>(mixed >> 32);
}

/// Where a channel stands in its work.
struct Cursor {
    std::uint32_t tile = 0;
    std::uint32_t step = 0;
    std::uint32_t message = 0;  // the first one of the step that was not seen ready yet
    bool in_tile = false;
};

/// Runs until the work is done (true) or must wait for a peer (false); call it again then.
template <class Machine>
TUTTI_HOST_DEVICE bool advance(Machine& machine, Cursor& at) {
    for (; at.tile < machine.tiles(); ++at.tile) {
        if (!at.in_tile) machine.begin_tile(at.tile);
        at.in_tile = true;
        for (; at.step < machine.steps(); ++at.step, at.message = 0) {
            const Step& step = machine.step(at.step);
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
