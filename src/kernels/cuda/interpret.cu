// The interpreter kernels: one per type, with a block per rank and channel. The reduction operation is selected at run
// time, outside of the loops over data.
#include "kernels/cuda/interpret.hpp"
#include "kernels/cuda/machine.hpp"

namespace tutti::gpu {
namespace {

template <class F>
__global__ void __launch_bounds__(block_threads, 1) interpret(const __grid_constant__ Launch launch) {
    __shared__ Shared shared;
    const Job& job = launch.jobs[blockIdx.y];
    if (blockIdx.x >= job.channels) return;
    Machine<F>(job, blockIdx.x, shared).run();
}

}  // namespace

const void* interpreter_of(DataType type) {
    return with_lanes_of(type, [](auto lanes) { return reinterpret_cast<const void*>(interpret<decltype(lanes)>); });
}

}  // namespace tutti::gpu
