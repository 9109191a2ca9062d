// The kernel of puts, gets, signals, signal waits and gates.
#include "kernels/cuda/interpret.hpp"
#include "kernels/cuda/one_sided.hpp"

namespace tutti::gpu {
namespace {

__global__ void __launch_bounds__(one_sided_threads, 1) one_sided(const __grid_constant__ OneSidedTask task) {
    run_one_sided(task, blockIdx.x, blockIdx.y);
}

}  // namespace

const void* one_sided_kernel() {
    return reinterpret_cast<const void*>(one_sided);
}

}  // namespace tutti::gpu
