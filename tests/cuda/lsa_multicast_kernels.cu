#include <cuda/atomic>

#include "lsa_multicast_kernels.hpp"

namespace tutti::lsa {
namespace {

template <class T>
__device__ T at(const void* of, std::size_t offset) {
    return *reinterpret_cast<const T*>(static_cast<const char*>(of) + offset);
}
/// Of a window or, by the communicator's own members, of its resources.
__device__ char* multicast(const DevComm& comm, std::uint32_t pages) {
    return at<char*>(&comm, 120) + (std::uint64_t{pages} << 12);
}
__device__ char* own_part(const DevComm& comm, std::uint64_t first, std::uint32_t stride) {
    return reinterpret_cast<char*>(first + (std::uint64_t{stride} * at<int>(&comm, DevComm::rank) << 32));
}
__device__ char* own_part(const DevComm& comm, const void* window) {
    return own_part(comm, at<std::uint64_t>(window, 8), at<std::uint32_t>(window, 24));
}
__device__ void between_addresses() {
    asm volatile("fence.proxy.alias;" ::: "memory");
}

/// Behind the words that say how often each barrier was passed, and as many again, are counters to which each rank adds
/// one by multicast.
class MulticastBarrier {
  public:
    __device__ MulticastBarrier(const DevComm& comm, unsigned number)
        : ranks_(at<int>(&comm, DevComm::ranks)),
          own_(reinterpret_cast<std::uint32_t*>(own_part(comm, at<std::uint64_t>(&comm, DevComm::resources),
                                                         at<std::uint32_t>(&comm, DevComm::resources_stride)) +
                                                std::size_t{128} * at<Resource>(&comm, DevComm::barrier)) +
               number),
          barriers_(at<int>(&comm, DevComm::barriers)),
          all_(multicast(comm, at<std::uint32_t>(&comm, 76)) +
               std::size_t{128} * at<Resource>(&comm, DevComm::barrier) + 4 * (2 * barriers_ + number)),
          come_(*own_) {}
    __device__ ~MulticastBarrier() {
        if (threadIdx.x == 0) *own_ = come_;
        __syncthreads();
    }
    __device__ void pass() {
        between_addresses();
        __syncthreads();
        come_ += ranks_;
        if (threadIdx.x == 0) {
            asm volatile("multimem.red.release.sys.global.add.u32 [%0], 1;" ::"l"(all_) : "memory");
            cuda::atomic_ref<std::uint32_t> inbox(own_[2 * barriers_]);
            while (inbox.load(cuda::memory_order_acquire) - come_ > ~0u / 2) {
            }
        }
        __syncthreads();
        between_addresses();
    }

  private:
    const std::uint32_t ranks_;
    std::uint32_t* const own_;
    const std::uint32_t barriers_;
    char* const all_;
    std::uint32_t come_;
};

__global__ void all_reduce_kernel(const __grid_constant__ DevComm comm, const int* from, const void* in,
                                  const void* out, std::size_t count) {
    MulticastBarrier barrier(comm, blockIdx.x);
    const std::size_t rank = at<int>(&comm, DevComm::rank), ranks = at<int>(&comm, DevComm::ranks);
    const std::size_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    int* const own = reinterpret_cast<int*>(own_part(comm, in));
    for (std::size_t i = first; i < count; i += step) own[i] = from[i];
    barrier.pass();
    char* const all_in = multicast(comm, at<std::uint32_t>(in, 28));
    char* const all_out = multicast(comm, at<std::uint32_t>(out, 28));
    for (std::size_t i = first; i < count; i += step) {
        if (i / step % ranks != rank) continue;  // that rank's block of the same number has waited for what it needs
        int sum;
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.s32 %0, [%1];"
                     : "=r"(sum)
                     : "l"(all_in + 4 * i)
                     : "memory");
        asm volatile("multimem.st.relaxed.sys.global.s32 [%0], %1;" ::"l"(all_out + 4 * i), "r"(sum) : "memory");
    }
    barrier.pass();
}

}  // namespace

void all_reduce_by_multicast(const DevComm& comm, const int* from, const void* in, const void* out, std::size_t count,
                             unsigned blocks, cudaStream_t stream) {
    all_reduce_kernel<<<blocks, threads, 0, stream>>>(comm, from, in, out, count);
}

}  // namespace tutti::lsa
