// The kernels: one per type, a block per rank and channel. The operation is chosen inside, outside of the loops over
// data.
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
    switch (type) {
        case DataType::int8:
        case DataType::uint8:
            return reinterpret_cast<const void*>(interpret<Bytes>);
        case DataType::int32:
        case DataType::uint32:
            return reinterpret_cast<const void*>(interpret<Integer<std::uint32_t>>);
        case DataType::int64:
        case DataType::uint64:
            return reinterpret_cast<const void*>(interpret<Integer<std::uint64_t>>);
        case DataType::float16:
            return reinterpret_cast<const void*>(interpret<Float16>);
        case DataType::float32:
            return reinterpret_cast<const void*>(interpret<Native<float>>);
        case DataType::float64:
            return reinterpret_cast<const void*>(interpret<Native<double>>);
        case DataType::bfloat16:
            return reinterpret_cast<const void*>(interpret<Bfloat16>);
        case DataType::float8e4m3:
            return reinterpret_cast<const void*>(interpret<Float8<false>>);
        case DataType::float8e5m2:
            return reinterpret_cast<const void*>(interpret<Float8<true>>);
    }
    return nullptr;
}

}  // namespace tutti::gpu
