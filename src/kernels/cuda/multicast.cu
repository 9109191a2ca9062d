// The kernel of collectives by multicast, which GPUs before sm_90 do not have.
#include "kernels/cuda/interpret.hpp"
#include "kernels/cuda/multicast_plan.hpp"
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#include "kernels/cuda/multicast.hpp"
#endif

namespace tutti::gpu {
namespace {

__global__ void __launch_bounds__(multicast_threads, 1) multicast(const __grid_constant__ MulticastJob job) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    run_multicast(job, blockIdx.x);
#else
    __trap();
#endif
}

}  // namespace

const void* multicast_kernel() {
    return reinterpret_cast<const void*>(multicast);
}

}  // namespace tutti::gpu
