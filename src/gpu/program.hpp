// A bound program in device memory, with its connections' ends on all channels that it may use.
#pragma once

#include "gpu/arena.hpp"
#include "kernels/host/executor.hpp"

namespace tutti::gpu {

/// Whether every message of the program is in the user's buffers after the step that sends it. Peers can then read it
/// there, so messages need no slots and may be longer than one. altered: whether inputs are scaled, or results divided.
bool sends_slices(const tutti::Program& program, bool altered);

/// One thread at a time.
class Program {
  public:
    /// Uploads the program for channels first_channel to first_channel + channels - 1 of each connection. pool, control
    /// and ends must outlive it. Throws tuttiInvalidUsage if a step has more operands, or the program more connections,
    /// than a block has room for.
    Program(Pool& pool, BoundProgram bound, const Ends& ends, int first_channel, int channels, Control* control);

    const BoundProgram& bound() const { return bound_; }
    int channels() const { return channels_; }
    /// Whether any step reads or writes that buffer. In a reduce to another rank, for example, none writes the output.
    bool uses(Place place) const;

    /// The plan for tiles of so many bytes. Allocates larger scratch chunks if the present ones are too small.
    Plan plan(std::size_t tile_bytes);

  private:
    Pool& pool_;
    const BoundProgram bound_;
    const int channels_;
    Memory memory_;
    std::vector<Memory> scratch_;  // the last is current; running kernels and graphs may still use earlier ones
    std::size_t scratch_stride_ = 0;
    Plan plan_;
};

}  // namespace tutti::gpu
