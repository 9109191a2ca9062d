// A bound program in device memory, with the ends of its connections on every channel that it may use.
#pragma once

#include "gpu/arena.hpp"
#include "kernels/host/executor.hpp"

namespace tutti::gpu {

/// Whether each of its messages is, after the step that sends it, in the user's buffers, where a peer can read it: then
/// none needs a slot, nor has to fit into one. altered: inputs are multiplied on their way, or results divided.
bool sends_slices(const tutti::Program& program, bool altered);

class Program {
  public:
    /// Channels first_channel to first_channel + channels - 1 of each connection. pool, control and ends outlive it.
    /// Throws tuttiInternalError if a step has more operands, or the program more connections, than a block has room
    /// for.
    Program(Pool& pool, BoundProgram bound, const Ends& ends, int first_channel, int channels, Control* control);

    const BoundProgram& bound() const { return bound_; }
    int channels() const { return channels_; }
    /// Whether any step reads or writes such a buffer; of reductions to another rank, say, none writes the output.
    bool uses(Place place) const;

    /// For tiles of so many bytes: room for its scratch chunks is made where there was too little.
    Plan plan(std::size_t tile_bytes);

  private:
    Pool& pool_;
    const BoundProgram bound_;
    const int channels_;
    Memory memory_;
    std::vector<Memory> scratch_;  // the last one is in use; kernels under way, and graphs, may use those before
    std::size_t scratch_stride_ = 0;
    Plan plan_;
};

}  // namespace tutti::gpu
