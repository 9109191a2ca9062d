// Ranks on GPUs that one thread drives, each on a GPU of its own with two symmetric windows, whose calls go by
// multicast. By CUDA's interface and tutti.h alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "harness/started.hpp"
#include "kernels/convert.hpp"
#include "multicast_gpus.hpp"
#include "tutti/tutti.h"

namespace tutti::by_multicast {

/// Before anything is called. A kernel that is loaded late could wait for one that waits for a peer.
inline const int set =
    setenv("TUTTI_TEST_GPUS", "3", 1) + setenv("TUTTI_GPU_VIRTUAL", "1", 1) + setenv("CUDA_MODULE_LOADING", "EAGER", 1);

inline void require(cudaError_t result) {
    INFO(cudaGetErrorName(result));
    REQUIRE(result == cudaSuccess);
}
inline void require(tuttiResult_t result) {
    if (result != tuttiSuccess) FAIL(tuttiGetLastError(nullptr));
}
inline bool says(const std::string& part, tuttiComm_t comm = nullptr) {
    const std::string text = tuttiGetLastError(comm);
    UNSCOPED_INFO("the text: " << text);
    return text.find(part) != std::string::npos;
}
inline tuttiConfig_t by_nvls(int timeout_ms = 60'000) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.algorithm = "nvls";
    config.timeoutMs = timeout_ms;
    return config;
}

/// Bytes that kernels have read since it was called last; nullptr where nobody counts.
inline std::size_t (*bytes_read)() = nullptr;
inline std::size_t read_since() {
    return bytes_read == nullptr ? 0 : bytes_read();
}

class World {
  public:
    static constexpr std::size_t bytes = std::size_t{1} << 20;  // of a window

    explicit World(int ranks, tuttiConfig_t config = by_nvls(), int flags = TUTTI_WIN_COLL_SYMMETRIC)
        : comms(static_cast<std::size_t>(ranks)) {
        tuttiUniqueId id;
        require(tuttiGetUniqueId(&id));
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < comms.size(); ++r) {
            config.device = static_cast<int>(r);
            require(tuttiCommInitRankConfig(&comms[r], ranks, id, static_cast<int>(r), &config));
        }
        require(tuttiGroupEnd());
        windows.resize(2 * comms.size());
        for (std::size_t r = 0; r < comms.size(); ++r) {
            on(r);
            streams.emplace_back();
            require(cudaStreamCreateWithFlags(&streams.back(), cudaStreamNonBlocking));
            for (std::vector<std::byte*>* side : {&in, &out}) {
                side->emplace_back();
                require(tuttiMemAllocDevice(reinterpret_cast<void**>(&side->back()), bytes, static_cast<int>(r)));
            }
        }
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < comms.size(); ++r) {
            require(tuttiCommWindowRegister(comms[r], in[r], bytes, &windows[2 * r], flags));
            require(tuttiCommWindowRegister(comms[r], out[r], bytes, &windows[2 * r + 1], flags));
        }
        require(tuttiGroupEnd());
    }
    ~World() {
        for (std::size_t r = 0; r < comms.size(); ++r) {
            for (std::size_t w : {2 * r, 2 * r + 1}) tuttiCommWindowDeregister(comms[r], windows[w]);
            tuttiCommDestroy(comms[r]);
            cudaStreamDestroy(streams[r]);
            tuttiMemFree(in[r]);
            tuttiMemFree(out[r]);
        }
    }
    World(const World&) = delete;

    std::size_t ranks() const { return comms.size(); }
    void on(std::size_t rank) const { require(cudaSetDevice(static_cast<int>(rank))); }
    void synchronize() const {
        for (const cudaStream_t stream : streams) require(cudaStreamSynchronize(stream));
    }
    /// Calls of all ranks, in a group.
    void call(const std::function<tuttiResult_t(std::size_t rank)>& one) const {
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < ranks(); ++r) require(one(r));
        require(tuttiGroupEnd());
    }

    std::vector<tuttiComm_t> comms;
    std::vector<cudaStream_t> streams;
    std::vector<tuttiWindow_t> windows;  // two of each rank
    std::vector<std::byte*> in, out;
};

inline DataType type_of(tuttiDataType_t type) {
    return static_cast<DataType>(type);
}

/// Small numbers, whose sums of three ranks are exact in fp32 and of which some need a rounding in 16 bits.
inline double value(tuttiDataType_t type, std::size_t rank, std::size_t i) {
    const double number =
        static_cast<double>((i * 7 + rank * 5) % 23) - (type == tuttiUint32 || type == tuttiUint64 ? 0 : 11);
    if (type == tuttiFloat16) return number + static_cast<double>(rank * 900);
    if (type == tuttiBfloat16) return number + static_cast<double>(rank * 100);
    return number;
}

inline void write(std::byte* to, tuttiDataType_t type, std::size_t count,
                  const std::function<double(std::size_t)>& of) {
    const std::size_t size = size_of(type_of(type));
    std::vector<std::byte> all(count * size);
    for (std::size_t i = 0; i < count; ++i) store_from_double(type_of(type), of(i), &all[i * size]);
    require(tuttiMemWrite(to, all.data(), all.size()));
}
/// How many elements are not what they should be, in every bit.
inline std::size_t wrong(const std::byte* from, tuttiDataType_t type, std::size_t count,
                         const std::function<double(std::size_t)>& of) {
    const std::size_t size = size_of(type_of(type));
    std::vector<std::byte> all(count * size);
    require(cudaMemcpy(all.data(), from, all.size(), cudaMemcpyDefault));
    std::size_t differ = 0;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t expected = 0, found = 0;
        store_from_double(type_of(type), of(i), &expected);
        std::memcpy(&found, &all[i * size], size);
        differ += expected != found;
    }
    return differ;
}

inline double combined(tuttiDataType_t type, tuttiRedOp_t op, std::size_t ranks, std::size_t i) {
    double result = value(type, 0, i);
    for (std::size_t r = 1; r < ranks; ++r) {
        const double next = value(type, r, i);
        result = op == tuttiSum ? result + next : op == tuttiMax ? std::max(result, next) : std::min(result, next);
    }
    return result;
}

inline void fill(const World& world, tuttiDataType_t type, std::size_t count) {
    for (std::size_t r = 0; r < world.ranks(); ++r)
        write(world.in[r], type, count, [&](std::size_t i) { return value(type, r, i); });
}

/// All-reduces once, and copies each rank's sums as soon as its own call has ended to where its input was. How many
/// elements are wrong on all ranks together.
inline std::size_t wrong_sums(const World& world, std::size_t count) {
    fill(world, tuttiFloat32, count);
    world.call([&](std::size_t r) {
        return tuttiAllReduce(world.in[r], world.out[r], count, tuttiFloat32, tuttiSum, world.comms[r],
                              world.streams[r]);
    });
    for (std::size_t r = 0; r < world.ranks(); ++r)
        require(cudaMemcpyAsync(world.in[r], world.out[r], 4 * count, cudaMemcpyDeviceToDevice, world.streams[r]));
    world.synchronize();
    std::size_t differ = 0;
    for (std::size_t r = 0; r < world.ranks(); ++r)
        differ += wrong(world.in[r], tuttiFloat32, count,
                        [&](std::size_t i) { return combined(tuttiFloat32, tuttiSum, world.ranks(), i); });
    return differ;
}

using harness::started;
using harness::status_of;

}  // namespace tutti::by_multicast
