// The kernel of flat arrays. Compiled with -fmad=false, because fused multiply-add rounds once where the host rounds
// twice.
#include "kernels/cuda/flat.hpp"
#include "kernels/cuda/interpret.hpp"

namespace tutti::gpu {
namespace {

// Three blocks per multiprocessor: without this bound ptxas of CUDA 13.0 spills registers for sm_100.
__global__ void __launch_bounds__(flat_threads, 3) flat(const __grid_constant__ Flat task) {
    __shared__ FlatShared shared;
    run_flat(task, blockIdx.x, gridDim.x, shared);
}

}  // namespace

const void* flat_kernel() {
    return reinterpret_cast<const void*>(flat);
}

}  // namespace tutti::gpu
