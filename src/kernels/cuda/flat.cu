// The kernel of flat arrays. Compiled with -fmad=false: a fused multiplication rounds once where the host rounds twice.
#include "kernels/cuda/flat.hpp"
#include "kernels/cuda/interpret.hpp"

namespace tutti::gpu {
namespace {

__global__ void __launch_bounds__(flat_threads) flat(const __grid_constant__ Flat task) {
    __shared__ FlatShared shared;
    run_flat(task, blockIdx.x, gridDim.x, shared);
}

}  // namespace

const void* flat_kernel() {
    return reinterpret_cast<const void*>(flat);
}

}  // namespace tutti::gpu
