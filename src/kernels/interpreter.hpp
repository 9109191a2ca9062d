// The step loop, written once. A Machine knows how to wait, load, store, reduce and publish: the host's is in
// host/executor.cpp; a GPU's is compiled from this same file.
//
// Machine:
//   tiles(), steps(), step(i), operand(i)        the bound program: a peer's index is that of its connection
//   begin_tile(t)                                once, before the first step of a tile
//   arrived(c), writable(c)                      a message is there / a cell is free; false: would block
//   load(operand), store(operand)                choose where sources and sinks lie
//   reduce(step)                                 sinks <- op(sources)
//   commit(c), release(c)                        publish a message / give the credit back
//   end_step(step)                               wake whoever waits for what was just published
#pragma once

#include <cstdint>

#include "schedule/program.hpp"

namespace tutti {

/// Where a lane stands in its work.
struct Cursor {
    std::uint32_t tile = 0;
    std::uint32_t step = 0;
    std::uint32_t operand = 0;  // the first one of the step that was not seen ready yet
    bool in_tile = false;
};

/// Runs until the work is done (true) or must wait for a peer (false); call it again then.
template <class Machine>
bool advance(Machine& machine, Cursor& at) {
    for (; at.tile < machine.tiles(); ++at.tile) {
        if (!at.in_tile) machine.begin_tile(at.tile);
        at.in_tile = true;
        for (; at.step < machine.steps(); ++at.step, at.operand = 0) {
            const Step& step = machine.step(at.step);
            for (; at.operand < step.sources + step.sinks; ++at.operand) {
                const Operand& o = machine.operand(step.first + at.operand);
                if (o.place != Place::peer) continue;
                const bool ready = at.operand < step.sources ? machine.arrived(o.index) : machine.writable(o.index);
                if (!ready) return false;
            }
            const std::uint32_t sinks = step.first + step.sources, end = sinks + step.sinks;
            machine.begin_step(step);
            for (std::uint32_t i = step.first; i < sinks; ++i) machine.load(machine.operand(i));
            for (std::uint32_t i = sinks; i < end; ++i) machine.store(machine.operand(i));
            machine.reduce(step);
            for (std::uint32_t i = sinks; i < end; ++i)
                if (machine.operand(i).place == Place::peer) machine.commit(machine.operand(i).index);
            for (std::uint32_t i = step.first; i < sinks; ++i)
                if (machine.operand(i).place == Place::peer) machine.release(machine.operand(i).index);
            machine.end_step(step);
        }
        at.step = 0;
        at.in_tile = false;
    }
    return true;
}

}  // namespace tutti
