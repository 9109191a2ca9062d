// A bound program in device memory, with the ends of its connections on every channel that it may use.
#pragma once

#include "gpu/arena.hpp"
#include "kernels/cuda/small_plan.hpp"
#include "kernels/host/executor.hpp"

namespace tutti::gpu {

/// Whether every message of the program lies in the user's buffers after the step that sends it. A peer can read it
/// there, so it needs no slot and may be longer than one. altered: inputs are multiplied on their way, or results
/// divided.
bool sends_slices(const tutti::Program& program, bool altered);

/// Owned by a plan of its communicator. One thread at a time uses it.
class Program {
  public:
    /// Uploads the program. It may use channels first_channel to first_channel + channels - 1 of each connection. pool,
    /// control and ends outlive it. Throws tuttiInvalidUsage if a step has more operands, or the program more
    /// connections, than a block has room for.
    Program(Pool& pool, BoundProgram bound, const Ends& ends, int first_channel, int channels, Control* control);
    Program(const Program&) = delete;

    const BoundProgram& bound() const { return bound_; }
    int channels() const { return channels_; }
    /// Whether any step reads or writes that buffer. In a reduction to another rank, for example, none writes the
    /// output.
    bool uses(Place place) const;

    /// What kernels need to run it with tiles of `tile_bytes`. Allocates scratch if there was too little.
    Plan plan(std::size_t tile_bytes);

  private:
    Pool& pool_;
    const BoundProgram bound_;
    const int channels_;
    Memory memory_;
    std::vector<Memory> scratch_;     // new launches use the last; earlier kernels and graphs may use the others
    std::size_t scratch_stride_ = 0;  // bytes from one scratch chunk to the next
    SmallPlan small_;                 // plan_.small, unless that is nullptr
    Plan plan_;
};

}  // namespace tutti::gpu
