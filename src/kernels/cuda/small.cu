// The kernels of small messages: one per type, with a block per rank and channel.
#include "kernels/cuda/interpret.hpp"
#include "kernels/cuda/small.hpp"

namespace tutti::gpu {
namespace {

template <class F>
__global__ void __launch_bounds__(block_threads, 1) small(const __grid_constant__ SmallLaunch launch) {
    __shared__ SmallShared shared;
    Small<F>(launch.jobs[blockIdx.y], blockIdx.x, shared).run();
}

}  // namespace

const void* small_kernel_of(DataType type) {
    return with_lanes_of(type, [](auto lanes) { return reinterpret_cast<const void*>(small<decltype(lanes)>); });
}

}  // namespace tutti::gpu
