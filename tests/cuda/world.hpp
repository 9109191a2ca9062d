// Ranks on GPUs that one thread drives, by CUDA's interface and tutti.h alone: for programs that run over NVIDIA's
// runtime and over the one on hosts.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "harness/catch.hpp"
#include "tutti/tutti.h"

namespace tutti::on_gpu {

inline constexpr std::size_t ranks = 2, lanes = 3;

inline void require(cudaError_t result) {
    INFO(cudaGetErrorName(result));
    REQUIRE(result == cudaSuccess);
}
inline void require(tuttiResult_t result) {
    if (result != tuttiSuccess) FAIL(tuttiGetLastError(nullptr));
}

inline tuttiConfig_t with_timeout(int ms) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = ms;
    return config;
}

/// The error that a communicator has by now.
inline tuttiResult_t error_of(tuttiComm_t comm) {
    tuttiResult_t error = tuttiInternalError;
    require(tuttiCommGetAsyncError(comm, &error));
    return error;
}

/// The error with which a communicator has failed, once it has, within some seconds; tuttiSuccess if it has not.
inline tuttiResult_t await_error(tuttiComm_t comm) {
    tuttiResult_t result = tuttiSuccess;
    for (int looks = 0; looks < 5000 && result == tuttiSuccess; ++looks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (tuttiCommGetAsyncError(comm, &result) != tuttiSuccess) break;
    }
    return result;
}

/// Whether the error's text has this in it: that of comm, or that of the thread's last call if comm is nullptr.
inline bool says(const std::string& part, tuttiComm_t comm = nullptr) {
    const std::string text = tuttiGetLastError(comm);
    UNSCOPED_INFO("the text: " << text);
    return text.find(part) != std::string::npos;
}

/// Two ranks of this thread on one GPU or on two, each with three streams and a buffer for each of these.
class World {
  public:
    const std::size_t count;  // elements of each buffer

    explicit World(std::array<int, ranks> on, std::size_t elements = 6000, int timeout_ms = 60'000)
        : World(on, elements, with_timeout(timeout_ms)) {}
    World(std::array<int, ranks> on, std::size_t elements, tuttiConfig_t config) : count(elements), on_(on) {
        tuttiUniqueId id;
        require(tuttiGetUniqueId(&id));
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < ranks; ++r) {
            config.device = on_[r];
            require(tuttiCommInitRankConfig(&comms_[r], ranks, id, static_cast<int>(r), &config));
        }
        require(tuttiGroupEnd());
        const auto with_flags = [](auto& stream) {
            require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        };
        for (std::size_t r = 0; r < ranks; ++r) {
            require(cudaSetDevice(on_[r]));
            require(cudaEventCreateWithFlags(&fork_[r], cudaEventDisableTiming));
            require(cudaEventCreateWithFlags(&join_[r], cudaEventDisableTiming));
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                with_flags(stream_[lane][r]);
                require(cudaMalloc(&memory_[lane][r], count * sizeof(float)));
                std::vector<float> values(count);
                for (std::size_t i = 0; i < count; ++i) values[i] = first(lane, r, i);
                require(cudaMemcpy(memory_[lane][r], values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
                require(cudaStreamSynchronize(cudaStreamLegacy));  // the copy ends when all is staged
            }
        }
    }
    ~World() {
        for (std::size_t r = 0; r < ranks; ++r) {
            cudaSetDevice(on_[r]);
            for (const auto& all : graphs_)
                if (all[r] != nullptr) cudaGraphExecDestroy(all[r]);
            if (comms_[r] != nullptr) tuttiCommDestroy(comms_[r]);
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                cudaStreamDestroy(stream_[lane][r]);
                cudaFree(memory_[lane][r]);
            }
            cudaEventDestroy(fork_[r]);
            cudaEventDestroy(join_[r]);
        }
        cudaSetDevice(0);
    }
    World(const World&) = delete;

    tuttiComm_t comm(std::size_t rank) const { return comms_[rank]; }
    cudaStream_t stream(std::size_t lane, std::size_t rank) const { return stream_[lane][rank]; }
    void* memory(std::size_t lane, std::size_t rank) const { return memory_[lane][rank]; }
    /// Ends the rank's part from the calling thread; the world calls it no more.
    tuttiResult_t abort(std::size_t rank) { return tuttiCommAbort(std::exchange(comms_[rank], nullptr)); }

    void all_reduce(std::size_t lane) { require(try_all_reduce(lane)); }
    tuttiResult_t try_all_reduce(std::size_t lane) {
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < ranks; ++r) require(all_reduce_alone(lane, r));
        return tuttiGroupEnd();
    }
    tuttiResult_t all_reduce_alone(std::size_t lane, std::size_t rank) {
        void* const memory = memory_[lane][rank];
        return tuttiAllReduce(memory, memory, count, tuttiFloat32, tuttiSum, comms_[rank], stream_[lane][rank]);
    }

    /// What ranks of one GPU do on the first lane's streams.
    void signal(std::size_t from, int to) { require(tuttiSignal(to, 0, 0, 0, comms_[from], stream_[0][from])); }
    void wait_for_signal(std::size_t at, int from) {
        const tuttiWaitSignalDesc_t one{1, from, 0, 0};
        require(tuttiWaitSignal(1, &one, comms_[at], stream_[0][at]));
    }

    /// Whether an all-reduce has waited for room until its time was up. It was not enqueued then.
    bool finds_no_room(std::size_t lane) {
        return try_all_reduce(lane) == tuttiTimeout &&
               std::strstr(tuttiGetLastError(nullptr), "found no room for its kernel on GPU 0") != nullptr;
    }

    /// What comes next on the first rank's stream of the lane comes after *open.
    void hold(std::size_t lane, std::atomic<bool>* open) {
        require(cudaSetDevice(on_[0]));
        require(cudaLaunchHostFunc(
            stream_[lanes - 1][0],
            [](void* flag) {
                while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
            },
            open));
        branch(fork_[0], stream_[lanes - 1][0], stream_[lane][0]);
    }

    /// The number of a graph for launch(). On one GPU the second rank's streams are branches of the first's capture.
    std::size_t captured(std::size_t lane, const std::function<void()>& body) {
        const bool one = on_[0] == on_[1];
        require(cudaStreamBeginCapture(stream_[lane][0], cudaStreamCaptureModeRelaxed));
        if (one)
            branch(fork_[0], stream_[lane][0], stream_[lane][1]);
        else
            require(cudaStreamBeginCapture(stream_[lane][1], cudaStreamCaptureModeRelaxed));
        body();
        if (one) branch(join_[0], stream_[lane][1], stream_[lane][0]);
        std::array<cudaGraphExec_t, ranks> made{};
        for (std::size_t r = 0; r < (one ? 1 : ranks); ++r) {
            cudaGraph_t graph = nullptr;
            require(cudaStreamEndCapture(stream_[lane][r], &graph));
            require(cudaGraphInstantiate(&made[r], graph, 0));
            require(cudaGraphDestroy(graph));
        }
        graphs_.push_back(made);
        return graphs_.size() - 1;
    }
    /// A graph of one rank's all-reduce, for launch_alone().
    std::size_t captured_alone(std::size_t rank) {
        const cudaStream_t its = stream_[0][rank];
        cudaGraph_t graph = nullptr;
        std::array<cudaGraphExec_t, ranks> made{};
        require(cudaStreamBeginCapture(its, cudaStreamCaptureModeRelaxed));
        require(all_reduce_alone(0, rank));
        require(cudaStreamEndCapture(its, &graph));
        require(cudaGraphInstantiate(&made[0], graph, 0));
        require(cudaGraphDestroy(graph));
        graphs_.push_back(made);
        return graphs_.size() - 1;
    }
    void launch_alone(std::size_t graph, std::size_t rank) {
        require(cudaGraphLaunch(graphs_[graph][0], stream_[0][rank]));
    }
    void launch(std::size_t graph, std::size_t lane) {
        for (std::size_t r = 0; r < ranks; ++r)
            if (graphs_[graph][r] != nullptr) require(cudaGraphLaunch(graphs_[graph][r], stream_[lane][r]));
    }
    void fork(std::size_t from, std::size_t to) {
        for (std::size_t r = 0; r < ranks; ++r) branch(fork_[r], stream_[from][r], stream_[to][r]);
    }
    void join(std::size_t from, std::size_t to) {
        for (std::size_t r = 0; r < ranks; ++r) branch(join_[r], stream_[from][r], stream_[to][r]);
    }

    /// What is in a lane's buffers after so many all-reduces. Waits for all streams.
    void check(std::size_t lane, int times) {
        for (std::size_t r = 0; r < ranks; ++r) {
            require(cudaSetDevice(on_[r]));
            for (std::size_t all = 0; all < lanes; ++all) require(cudaStreamSynchronize(stream_[all][r]));
            std::vector<float> got(count);
            require(cudaMemcpy(got.data(), memory_[lane][r], count * sizeof(float), cudaMemcpyDeviceToHost));
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < count; ++i) {
                float expected = times == 0 ? first(lane, r, i) : first(lane, 0, i) + first(lane, 1, i);
                for (int t = 1; t < times; ++t) expected *= ranks;
                wrong += got[i] != expected;
            }
            INFO("lane " << lane << ", rank " << r);
            CHECK(wrong == 0);
        }
    }

  private:
    static float first(std::size_t lane, std::size_t rank, std::size_t i) {
        return static_cast<float>(1 + 3 * lane + rank + i % 7);
    }
    static void branch(cudaEvent_t event, cudaStream_t from, cudaStream_t to) {
        require(cudaEventRecord(event, from));
        require(cudaStreamWaitEvent(to, event, 0));
    }

    const std::array<int, ranks> on_;
    std::array<tuttiComm_t, ranks> comms_{};
    std::array<std::array<cudaStream_t, ranks>, lanes> stream_{};
    std::array<std::array<void*, ranks>, lanes> memory_{};
    std::array<cudaEvent_t, ranks> fork_{}, join_{};
    std::vector<std::array<cudaGraphExec_t, ranks>> graphs_;
};

/// All ranks' calls, in one group.
inline void in_group(const std::function<tuttiResult_t(std::size_t rank)>& call) {
    require(tuttiGroupStart());
    for (std::size_t r = 0; r < ranks; ++r) require(call(r));
    require(tuttiGroupEnd());
}

enum class Kind { malloc, pool, managed, pinned, library };

/// Memory that a GPU can use.
class Memory {
  public:
    Memory(Kind kind, std::size_t bytes) : kind_(kind) {
        if (kind == Kind::malloc) require(cudaMalloc(&at_, bytes));
        if (kind == Kind::pool) require(cudaMallocAsync(&at_, bytes, cudaStreamPerThread));
        if (kind == Kind::managed) require(cudaMallocManaged(&at_, bytes, cudaMemAttachGlobal));
        if (kind == Kind::pinned) require(cudaHostAlloc(&at_, bytes, cudaHostAllocPortable));
        if (kind == Kind::library) require(tuttiMemAllocDevice(&at_, bytes, 0));
        require(cudaStreamSynchronize(cudaStreamPerThread));  // a pool's memory is there once the stream comes to it
    }
    ~Memory() {
        if (kind_ == Kind::library)
            tuttiMemFree(at_);
        else if (kind_ == Kind::pinned)
            cudaFreeHost(at_);
        else if (kind_ == Kind::pool)
            cudaFreeAsync(at_, cudaStreamPerThread), cudaStreamSynchronize(cudaStreamPerThread);
        else
            cudaFree(at_);
    }
    Memory(const Memory&) = delete;
    std::byte* at() const { return static_cast<std::byte*>(at_); }

  private:
    const Kind kind_;
    void* at_ = nullptr;
};

template <class T>
void upload(void* to, const std::vector<T>& from) {
    require(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyDefault));
    require(cudaStreamSynchronize(cudaStreamLegacy));
}
template <class T>
std::vector<T> downloaded(const void* from, std::size_t count) {
    std::vector<T> out(count);
    require(cudaMemcpy(out.data(), from, count * sizeof(T), cudaMemcpyDefault));
    return out;
}

inline int devices() {
    int count = 0;
    require(cudaGetDeviceCount(&count));
    return count;
}

}  // namespace tutti::on_gpu
