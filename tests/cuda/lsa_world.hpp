// Ranks that one thread drives, their windows, and communicators for kernels on them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "harness/started.hpp"
#include "lsa_kernels.hpp"
#include "nccl/layouts.hpp"
#include "tutti/tutti.h"

extern "C" {
ncclResult_t ncclCommQueryProperties(ncclComm_t, ncclCommProperties*);
ncclResult_t ncclDevCommCreate(ncclComm_t, const ncclDevCommRequirements*, ncclDevComm*);
ncclResult_t ncclDevCommDestroy(ncclComm_t, const ncclDevComm*);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t, size_t, int, void**);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, size_t, void**);
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam, int, ncclLsaBarrierHandle*, ncclDevResourceRequirements*);
ncclTeam ncclTeamLsa(ncclComm_t);
ncclTeam ncclTeamRail(ncclComm_t);
int ncclTeamRankToLsa(ncclComm_t, ncclTeam, int);
}

namespace tutti::lsa {

inline constexpr std::size_t elements = 3000, bytes = elements * sizeof(int);
inline constexpr int blocks = 3;

/// Before anything is called. A kernel that is loaded late could wait for one that waits for a peer.
inline const int set =
    setenv("TUTTI_TEST_GPUS", "3", 1) + setenv("TUTTI_GPU_VIRTUAL", "1", 1) + setenv("CUDA_MODULE_LOADING", "EAGER", 1);

#define OK(call) REQUIRE((call) == cudaSuccess)
#define DONE(call)                                                                                    \
    do {                                                                                              \
        const ncclResult_t result_ = (call);                                                          \
        if (result_ != ncclSuccess) FAIL(#call ": " << result_ << ": " << ncclGetLastError(nullptr)); \
    } while (false)

#define TUTTI(call)                                                                                     \
    do {                                                                                                \
        const tuttiResult_t result_ = (call);                                                           \
        if (result_ != tuttiSuccess) FAIL(#call ": " << result_ << ": " << tuttiGetLastError(nullptr)); \
    } while (false)

inline bool says(const std::string& part, std::string text = ncclGetLastError(nullptr)) {
    UNSCOPED_INFO("the text: " << text);
    return text.find(part) != std::string::npos;
}

inline bool says_of_tutti(const std::string& part) {
    return says(part, tuttiGetLastError(nullptr));
}

inline ncclDevCommRequirements requirements(int barriers = 0, unsigned version = TUTTI_NCCL_INTERFACE) {
    ncclDevCommRequirements wanted{};
    wanted.size = sizeof wanted;
    wanted.magic = 0xcafebeef;
    wanted.version = version;
    wanted.lsa_barriers = barriers;
    wanted.gin_contexts = 4;  // a hint, as the initializer says
    wanted.gin_class = NCCL_CONFIG_UNDEF_INT;
    wanted.gin_strong_signals = wanted.gin_address_signals = true;
    return wanted;
}

inline DevComm bytes_of(const ncclDevComm& comm) {
    DevComm same;
    static_assert(sizeof same == sizeof comm);
    std::memcpy(&same, &comm, sizeof same);
    return same;
}

inline int value(std::size_t rank, std::size_t i, int round) {
    return static_cast<int>(i % 1009 * (rank + 1)) + round * 7919;
}

/// These devices, or others where a machine has fewer.
inline std::vector<int> on_devices(std::vector<int> wanted) {
    int count = 0;
    OK(cudaGetDeviceCount(&count));
    for (int& device : wanted) device %= count;
    return wanted;
}

inline void write(int* to, const std::vector<int>& from) {
    TUTTI(tuttiMemWrite(to, from.data(), from.size() * sizeof(int)));
}
inline std::vector<int> read(const void* from, std::size_t count) {
    std::vector<int> out(count);
    OK(cudaMemcpy(out.data(), from, count * sizeof(int), cudaMemcpyDefault));
    return out;
}
inline int read(const void* from) {
    return read(from, 1).front();
}

/// Writes a rank's input.
inline void fill(int* input, std::size_t rank, int round) {
    std::vector<int> values(elements);
    for (std::size_t i = 0; i < elements; ++i) values[i] = value(rank, i, round);
    write(input, values);
}
/// How many of a rank's sums are wrong.
inline std::size_t wrong(const int* output, std::size_t ranks, int round) {
    const std::vector<int> sums = read(output, elements);
    std::size_t count = 0;
    for (std::size_t i = 0; i < elements; ++i) {
        int sum = 0;
        for (std::size_t q = 0; q < ranks; ++q) sum += value(q, i, round);
        count += sums[i] != sum;
    }
    return count;
}

/// Ranks of this thread, each with a stream and two windows.
class World {
  public:
    explicit World(std::vector<int> on, std::size_t offset = 0) : on_(on_devices(std::move(on))), ranks_(on_.size()) {
        comms.resize(ranks_), streams.resize(ranks_), memory_.resize(ranks_);
        from.resize(ranks_), in.resize(ranks_), out.resize(ranks_), input.resize(ranks_), output.resize(ranks_),
            made.resize(ranks_);
        DONE(ncclCommInitAll(comms.data(), static_cast<int>(ranks_), on_.data()));
        for (std::size_t r = 0; r < ranks_; ++r) {
            OK(cudaSetDevice(on_[r]));
            OK(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
            OK(cudaMalloc(&from[r], bytes));
            DONE(ncclMemAlloc(&memory_[r], 2 * bytes + 8192));
            input[r] = reinterpret_cast<int*>(static_cast<std::byte*>(memory_[r]) + offset);
            DONE(ncclMemAlloc(reinterpret_cast<void**>(&output[r]), bytes));
        }
        DONE(ncclGroupStart());
        for (std::size_t r = 0; r < ranks_; ++r) {
            DONE(ncclCommWindowRegister(comms[r], input[r], bytes, &in[r], NCCL_WIN_COLL_SYMMETRIC));
            DONE(ncclCommWindowRegister(comms[r], output[r], bytes, &out[r], NCCL_WIN_DEFAULT));
        }
        DONE(ncclGroupEnd());
    }
    ~World() {
        for (std::size_t r = 0; r < ranks_; ++r) {
            if (made[r].magic != 0) ncclDevCommDestroy(comms[r], &made[r]);
            ncclCommWindowDeregister(comms[r], in[r]);
            ncclCommWindowDeregister(comms[r], out[r]);
            ncclCommDestroy(comms[r]);
            ncclMemFree(memory_[r]);
            ncclMemFree(output[r]);
            cudaFree(from[r]);
            cudaStreamDestroy(streams[r]);
        }
    }
    World(const World&) = delete;

    /// A communicator for kernels on each rank.
    ncclResult_t make(const ncclDevCommRequirements& wanted) {
        DONE(ncclGroupStart());
        for (std::size_t r = 0; r < ranks_; ++r) ncclDevCommCreate(comms[r], &wanted, &made[r]);
        return ncclGroupEnd();
    }
    std::size_t ranks() const { return ranks_; }
    /// Launches a kernel of one rank.
    template <class Launch, class... Arguments>
    void launch(std::size_t rank, Launch what, Arguments... arguments) const {
        OK(cudaSetDevice(on_[rank]));
        what(bytes_of(made[rank]), arguments..., streams[rank]);
        OK(cudaGetLastError());
    }
    void synchronize() const {
        for (const cudaStream_t stream : streams) OK(cudaStreamSynchronize(stream));
    }

    std::vector<ncclComm_t> comms;
    std::vector<cudaStream_t> streams;
    std::vector<ncclWindow_t> in, out;
    std::vector<int*> from, input, output;  // the latter two in the windows
    std::vector<ncclDevComm> made;

  private:
    const std::vector<int> on_;
    const std::size_t ranks_;
    std::vector<void*> memory_;
};

using harness::started;
inline bool ends_well(pid_t pid) {
    return harness::status_of(pid) == 0;
}

}  // namespace tutti::lsa
