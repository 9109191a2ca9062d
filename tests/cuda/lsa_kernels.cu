#include "lsa_kernels.hpp"

#include <cuda/atomic>

namespace tutti::lsa {
namespace {

template <class T>
__device__ T member(const void* of, std::size_t offset) {
    return *reinterpret_cast<const T*>(static_cast<const char*>(of) + offset);
}
/// Of what does not change while the kernel runs, and lies on the GPU.
template <class T>
__device__ T constant(const void* of, std::size_t offset) {
    return __ldg(reinterpret_cast<const T*>(static_cast<const char*>(of) + offset));
}

__device__ char* part(std::uint64_t first, std::uint32_t stride, int rank) {
    return reinterpret_cast<char*>(first + (std::uint64_t{stride} * rank << 32));
}
__device__ int* part_of_window(const void* window, int rank) {
    return reinterpret_cast<int*>(part(constant<std::uint64_t>(window, 8), constant<std::uint32_t>(window, 24), rank));
}
__device__ std::uint32_t* part_of_resource(const DevComm& comm, Resource resource, int rank) {
    return reinterpret_cast<std::uint32_t*>(part(member<std::uint64_t>(&comm, DevComm::resources),
                                                 member<std::uint32_t>(&comm, DevComm::resources_stride), rank) +
                                            std::size_t{128} * resource);
}

/// One barrier of the team, for a block. On each rank: how often it was passed, by barrier, behind as many words for
/// multicast; then, behind as many again, what each peer has written, by barrier and peer.
class Barrier {
  public:
    __device__ Barrier(const DevComm& comm, unsigned number)
        : comm_(comm),
          number_(number),
          resource_(member<Resource>(&comm, DevComm::barrier)),
          barriers_(member<int>(&comm, DevComm::barriers)),
          rank_(member<int>(&comm, DevComm::rank)),
          ranks_(member<int>(&comm, DevComm::ranks)),
          passed_(own()[barriers_ + number]) {}
    __device__ ~Barrier() {
        if (threadIdx.x == 0) own()[barriers_ + number_] = passed_;
        __syncthreads();
    }
    __device__ void pass() {
        __syncthreads();
        cuda::atomic_thread_fence(cuda::memory_order_release);
        for (int peer = threadIdx.x; peer < ranks_; peer += blockDim.x)
            if (peer != rank_) inbox(peer, rank_).store(passed_ + 1, cuda::memory_order_relaxed);
        for (int peer = threadIdx.x; peer < ranks_; peer += blockDim.x)
            while (peer != rank_ && inbox(rank_, peer).load(cuda::memory_order_acquire) - (passed_ + 1) > ~0u / 2) {
            }
        ++passed_;
        __syncthreads();
    }

  private:
    __device__ std::uint32_t* own() const { return part_of_resource(comm_, resource_, rank_); }
    __device__ cuda::atomic_ref<std::uint32_t> inbox(int owner, int peer) const {
        return cuda::atomic_ref<std::uint32_t>(
            part_of_resource(comm_, resource_, owner)[3 * barriers_ + number_ * ranks_ + peer]);
    }
    const DevComm& comm_;
    const unsigned number_;
    const Resource resource_;
    const int barriers_, rank_, ranks_;
    std::uint32_t passed_;
};

__global__ void all_reduce_kernel(const __grid_constant__ DevComm comm, const int* from, const void* in,
                                  const void* out, std::size_t count) {
    Barrier barrier(comm, blockIdx.x);
    const int rank = member<int>(&comm, DevComm::rank), ranks = member<int>(&comm, DevComm::ranks);
    const std::size_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (std::size_t i = first; i < count; i += step) part_of_window(in, rank)[i] = from[i];
    barrier.pass();
    for (std::size_t i = first; i < count; i += step) {
        int sum = 0;
        for (int r = 0; r < ranks; ++r) sum += part_of_window(in, r)[i];
        part_of_window(out, rank)[i] = sum;
    }
    barrier.pass();
}

__global__ void add_kernel(const __grid_constant__ DevComm comm, Resource resource, int value) {
    Barrier barrier(comm, 0);
    const int rank = member<int>(&comm, DevComm::rank), ranks = member<int>(&comm, DevComm::ranks);
    for (int r = threadIdx.x; r < ranks; r += blockDim.x) part_of_resource(comm, resource, r)[rank] += value;
    barrier.pass();
}

/// As NVIDIA's ncclFindWindow: a warp looks at 32 entries at once.
__global__ void find_kernel(const __grid_constant__ DevComm comm, const void* pointer, const void** found) {
    const auto at = reinterpret_cast<std::uint64_t>(pointer);
    const void* table = member<const void*>(&comm, DevComm::window_table);
    const void* window = nullptr;
    for (; table != nullptr; table = reinterpret_cast<const void*>(constant<std::uint64_t>(table, 768))) {
        const char* const entry = static_cast<const char*>(table) + 24 * threadIdx.x;
        const bool here = at - constant<std::uint64_t>(entry, 0) < constant<std::uint64_t>(entry, 8);
        const unsigned all = ~0u, lanes = __ballot_sync(all, here);
        if (lanes == 0) continue;
        const int lane = __shfl_sync(all, static_cast<int>(threadIdx.x), 31 - __clz(static_cast<int>(lanes)));
        window =
            reinterpret_cast<const void*>(constant<std::uint64_t>(static_cast<const char*>(table) + 24 * lane, 16));
    }
    if (threadIdx.x == 0) *found = window;
}

}  // namespace

void all_reduce(const DevComm& comm, const int* from, const void* in, const void* out, std::size_t count,
                unsigned blocks, cudaStream_t stream) {
    all_reduce_kernel<<<blocks, threads, 0, stream>>>(comm, from, in, out, count);
}
void add_everywhere(const DevComm& comm, Resource resource, int value, cudaStream_t stream) {
    add_kernel<<<1, threads, 0, stream>>>(comm, resource, value);
}
void find_window(const DevComm& comm, const void* pointer, const void** found, cudaStream_t stream) {
    find_kernel<<<1, 32, 0, stream>>>(comm, pointer, found);
}

}  // namespace tutti::lsa
