// gpu_probe [--json FILE] [--rounds N] [--litmus N]: what one GPU's parts take: a flag from block to block, in the
// GPU's memory and in the host's, with the scopes that PTX has; messages with a flag behind them and in lines; launches
// and graphs. And a litmus loop: payloads behind a flag, read by who has read what was there before, must never be
// stale. These are the figures behind src/gpu/budget.cpp and src/plan/platform.cpp. Exits with 1 if a payload was
// stale, 2 if there is no GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/plan.hpp"
#include "kernels/cuda/simt.hpp"

namespace tutti::gpu {
namespace {

void check(cudaError_t result, const char* what) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "gpu_probe: %s: %s\n", what, cudaGetErrorString(result));
    std::exit(2);
}

// ---- from block to block

enum class Scope { system, device, relaxed };

template <Scope scope>
__device__ std::uint32_t look(const std::uint32_t* flag) {
    if constexpr (scope == Scope::system) {
        return load_acquire(flag);
    } else {
        std::uint32_t value;
        if constexpr (scope == Scope::device)
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
        else
            asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(value) : "l"(flag));
        return value;
    }
}
template <Scope scope>
__device__ void tell(std::uint32_t* flag, std::uint32_t value) {
    if constexpr (scope == Scope::system)
        store_release(flag, value);
    else if constexpr (scope == Scope::device)
        asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
    else
        asm volatile("st.relaxed.gpu.u32 [%0], %1;" ::"l"(flag), "r"(value));
}

struct Ends {
    std::uint32_t* there;  // a flag, of the one's; far from that of the other
    std::uint32_t* back;
    std::byte* slot;    // of the message
    std::byte* own[2];  // where it comes from, and goes to
    std::uint32_t bytes, rounds;
    unsigned long long* stale;
};

template <Scope scope>
__global__ void flags(Ends e) {
    for (std::uint32_t r = 1; r <= e.rounds; ++r) {
        if (blockIdx.x == 0) tell<scope>(e.there, r);
        while (look<scope>(blockIdx.x == 0 ? e.back : e.there) != r) {
        }
        if (blockIdx.x != 0) tell<scope>(e.back, r);
    }
}

__global__ void lines(Ends e) {
    auto* const there = reinterpret_cast<Line*>(e.there);
    auto* const back = reinterpret_cast<Line*>(e.back);
    for (std::uint32_t r = 1; r <= e.rounds; ++r) {
        if (blockIdx.x == 0) store_line(there, r, r);
        Line line;
        do line = load_line(blockIdx.x == 0 ? back : there);
        while (line.flag_low != r || line.flag_high != r);
        if (blockIdx.x != 0) store_line(back, r, r);
    }
}

__device__ void transfer(const std::byte* from, std::byte* to, std::uint32_t bytes) {
    for (std::uint32_t i = threadIdx.x * 16; i < bytes; i += blockDim.x * 16)
        *reinterpret_cast<Pack*>(to + i) = *reinterpret_cast<const Pack*>(from + i);
}

/// A message through a slot, and an answer of one flag.
__global__ void __launch_bounds__(block_threads) by_flag(Ends e) {
    for (std::uint32_t r = 1; r <= e.rounds; ++r) {
        if (blockIdx.x == 0) {
            transfer(e.own[0], e.slot, e.bytes);
            sync();
            if (threadIdx.x == 0) {
                store_release(e.there, r);
                while (load_acquire(e.back) != r) {
                }
            }
            sync();
        } else {
            if (threadIdx.x == 0)
                while (load_acquire(e.there) != r) {
                }
            sync();
            transfer(e.slot, e.own[1], e.bytes);
            sync();
            if (threadIdx.x == 0) store_release(e.back, r);
        }
    }
}

/// The same in lines: nobody looks at a flag, but for the answer.
__global__ void __launch_bounds__(block_threads) by_lines(Ends e) {
    auto* const line = reinterpret_cast<Line*>(e.slot);
    const std::uint32_t words = e.bytes / 8;
    for (std::uint32_t r = 1; r <= e.rounds; ++r) {
        if (blockIdx.x == 0) {
            for (std::uint32_t i = threadIdx.x; i < words; i += blockDim.x)
                store_line(line + i, reinterpret_cast<const std::uint64_t*>(e.own[0])[i], r);
            if (threadIdx.x == 0)
                while (load_acquire(e.back) != r) {
                }
            sync();
        } else {
            for (std::uint32_t i = threadIdx.x; i < words; i += blockDim.x) {
                Line seen;
                do seen = load_line(line + i);
                while (seen.flag_low != r || seen.flag_high != r);
                reinterpret_cast<std::uint64_t*>(e.own[1])[i] = seen.low | static_cast<std::uint64_t>(seen.high) << 32;
            }
            sync();
            if (threadIdx.x == 0) store_release(e.back, r);
        }
    }
}

// ---- litmus

constexpr unsigned litmus_threads = 64;

__device__ std::uint32_t plain(const std::uint32_t* from) {
    std::uint32_t value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(from));
    return value;
}

/// Blocks of even numbers write for the next ones, which have read what was there, so that it lies in their L1.
template <Scope scope>
__global__ void __launch_bounds__(litmus_threads) litmus(Ends e) {
    const std::uint32_t pair = blockIdx.x / 2;
    std::uint32_t* const there = e.there + pair * 64;
    std::uint32_t* const back = e.back + pair * 64;
    std::uint32_t* const payload =
        reinterpret_cast<std::uint32_t*>(e.slot) + pair * litmus_threads * 32 + threadIdx.x * 32;
    unsigned long long stale = 0;
    for (std::uint32_t r = 1; r <= e.rounds; ++r) {
        if (blockIdx.x % 2 == 0) {
            asm volatile("st.global.u32 [%0], %1;" ::"l"(payload), "r"(r));
            sync();
            if (threadIdx.x == 0) {
                tell<scope>(there, r);
                while (look<scope>(back) != r) {
                }
            }
            sync();
        } else {
            plain(payload);
            if (threadIdx.x == 0)
                while (look<scope>(there) != r) {
                }
            sync();
            stale += plain(payload) != r ? 1 : 0;
            sync();
            if (threadIdx.x == 0) tell<scope>(back, r);
        }
    }
    if (stale != 0) atomicAdd(e.stale, stale);
}

// ---- launches

struct Large {
    char bytes[4000];
};
__global__ void nothing() {}
__global__ void nothing_of(Large) {}

class Probe {
  public:
    explicit Probe(std::uint32_t rounds) : rounds_(rounds) {
        int count = 0;
        check(cudaGetDeviceCount(&count), "there is no GPU that CUDA can use");
        check(cudaGetDeviceProperties(&properties_, 0), "cudaGetDeviceProperties");
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        check(cudaEventCreate(&begin_), "cudaEventCreate");
        check(cudaEventCreate(&end_), "cudaEventCreate");
        check(cudaEventCreateWithFlags(&plain_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
        check(cudaMalloc(&memory_, room), "cudaMalloc");
        check(cudaMallocHost(&host_, 4096), "cudaMallocHost");
    }
    const cudaDeviceProp& properties() const { return properties_; }
    const std::string& json() const { return json_; }
    bool stale() const { return stale_; }

    void from_block_to_block() {
        one_way("flag, .sys, memory of the GPU", flags<Scope::system>, 1, ends(memory_));
        one_way("flag, .gpu, memory of the GPU", flags<Scope::device>, 1, ends(memory_));
        one_way("flag, relaxed, memory of the GPU", flags<Scope::relaxed>, 1, ends(memory_));
        one_way("line, memory of the GPU", lines, 1, ends(memory_));
        one_way("flag, .sys, memory of the host", flags<Scope::system>, 1, ends(host_), 10);
        one_way("line, memory of the host", lines, 1, ends(host_), 10);
        for (const std::uint32_t bytes : {8u, 128u, 1024u, 4096u, 8192u, 16384u, 32768u}) {
            Ends e = ends(memory_);
            e.bytes = bytes;
            const std::string size = ", " + std::to_string(bytes) + " B and an answer";
            round_trip("message behind a flag" + size, by_flag, e);
            round_trip("message in lines" + size, by_lines, e);
        }
    }

    void stale_payloads(std::uint64_t messages) {
        const int pairs = properties_.multiProcessorCount / 2;
        stale_ = payloads<Scope::system>("payloads behind .sys flags that were stale", pairs, messages) != 0;
        stale_ = payloads<Scope::device>("payloads behind .gpu flags that were stale", pairs, messages) != 0 || stale_;
        payloads<Scope::relaxed>("payloads behind relaxed flags that were stale (they may be)", pairs, messages);
    }

    void launches() {
        constexpr int nodes = 20;
        const auto launch = [&] { nothing<<<1, block_threads, 0, stream_>>>(); };
        const auto record = [&] { check(cudaEventRecord(plain_, stream_), "cudaEventRecord"); };
        note("launch of an empty kernel", "us", microseconds([&] { launch(); }, 1000));
        note("launch with 4,000 B of arguments", "us",
             microseconds([&] { nothing_of<<<1, block_threads, 0, stream_>>>(Large{}); }, 1000));
        note("launch of 32 blocks of 384 threads", "us",
             microseconds([&] { nothing<<<32, block_threads, 0, stream_>>>(); }, 1000));
        note("launch, and an event recorded", "us", microseconds([&] { launch(), record(); }, 1000));
        note("launch, and a host function", "us",
             microseconds(
                 [&] {
                     launch(), check(cudaLaunchHostFunc(
                                         stream_, [](void*) {}, nullptr),
                                     "host");
                 },
                 200));
        note("node: an empty kernel", "us", replayed(launch, nodes));
        const auto record_at_launch = [&] {
            check(cudaEventRecordWithFlags(plain_, stream_, cudaEventRecordExternal), "cudaEventRecordWithFlags");
        };
        note("nodes: an empty kernel, an external event's record", "us",
             replayed([&] { launch(), record_at_launch(); }, nodes));
        note("nodes: a wait for an external event, an empty kernel", "us",
             replayed([&] { check(cudaStreamWaitEvent(stream_, plain_, cudaEventWaitExternal), "wait"), launch(); },
                      nodes));
    }

  private:
    static constexpr std::size_t room = 64 << 20;

    Ends ends(std::byte* at) {
        check(cudaMemset(memory_, 0, room), "cudaMemset");
        std::fill_n(host_, 4096, std::byte{});
        auto* const words = reinterpret_cast<std::uint32_t*>(at);
        return {words,   words + 512, memory_ + (1 << 20), {memory_ + (2 << 20), memory_ + (3 << 20)}, 0,
                rounds_, nullptr};
    }

    double microseconds(const std::function<void()>& work, int repeat) {
        for (int warm = 0; warm < 2; ++warm) {
            check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
            for (int i = 0; i < repeat; ++i) work();
            check(cudaEventRecord(end_, stream_), "cudaEventRecord");
            check(cudaEventSynchronize(end_), "cudaEventSynchronize");
        }
        check(cudaGetLastError(), "a launch");
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
        return ms * 1e3 / repeat;
    }

    double replayed(const std::function<void()>& work, int nodes) {
        cudaGraph_t graph;
        cudaGraphExec_t executable;
        check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        for (int i = 0; i < nodes; ++i) work();
        check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
        check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
        return microseconds([&] { check(cudaGraphLaunch(executable, stream_), "cudaGraphLaunch"); }, 50) / nodes;
    }

    /// Time of one launch of two blocks, which count from 1: their words have to be 0.
    double once(void (*kernel)(Ends), unsigned blocks, unsigned threads, Ends e) {
        check(cudaDeviceSynchronize(), "before a kernel");
        check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
        kernel<<<blocks, threads, 0, stream_>>>(e);
        check(cudaEventRecord(end_, stream_), "cudaEventRecord");
        check(cudaEventSynchronize(end_), "a kernel");
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
        return ms * 1e3;
    }
    void one_way(const std::string& what, void (*kernel)(Ends), unsigned threads, Ends e, std::uint32_t fewer = 1) {
        e.rounds /= fewer;
        note(what, "us", once(kernel, 2, threads, e) / e.rounds / 2);
    }
    void round_trip(const std::string& what, void (*kernel)(Ends), Ends e) {
        check(cudaMemset(memory_, 0, room), "cudaMemset");
        note(what, "us", once(kernel, 2, block_threads, e) / e.rounds);
    }

    template <Scope scope>
    unsigned long long payloads(const char* what, int pairs, std::uint64_t messages) {
        Ends e = ends(memory_);
        e.back = e.there + (1 << 16);
        e.slot = memory_ + (4 << 20);
        e.stale = reinterpret_cast<unsigned long long*>(memory_ + room - 8);
        e.rounds = static_cast<std::uint32_t>(messages / static_cast<std::uint64_t>(pairs));
        const double time = once(litmus<scope>, 2 * static_cast<unsigned>(pairs), litmus_threads, e);
        unsigned long long stale = 0;
        check(cudaMemcpy(&stale, e.stale, 8, cudaMemcpyDeviceToHost), "cudaMemcpy");
        note(what, "", static_cast<double>(stale));
        note(std::string("  of messages, 64 words each, by ") + std::to_string(pairs) + " pairs", "",
             static_cast<double>(e.rounds) * pairs);
        note("  a message and its answer", "us", time / e.rounds);
        return stale;
    }

    void note(const std::string& what, const char* unit, double value) {
        std::printf("  %-70s %12.3f %s\n", what.c_str(), value, unit);
        std::fflush(stdout);
        char line[200];
        std::snprintf(line, sizeof line, "%s\n  {\"what\": \"%s\", \"unit\": \"%s\", \"value\": %.4f}",
                      json_.empty() ? "" : ",", what.c_str(), unit, value);
        json_ += line;
    }

    std::uint32_t rounds_;
    cudaDeviceProp properties_{};
    cudaStream_t stream_ = nullptr;
    cudaEvent_t begin_ = nullptr, end_ = nullptr, plain_ = nullptr;
    std::byte* memory_ = nullptr;
    std::byte* host_ = nullptr;
    std::string json_;
    bool stale_ = false;
};

}  // namespace
}  // namespace tutti::gpu

int main(int argc, char** argv) {
    const char* file = nullptr;
    unsigned long rounds = 20000, litmus = 10'000'000;
    for (int i = 1; i < argc; i += 2) {
        const std::string option = argv[i];
        const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
        if (option == "--json" && value != nullptr) {
            file = value;
        } else if (option == "--rounds" && value != nullptr && std::strtoul(value, nullptr, 10) >= 10) {
            rounds = std::strtoul(value, nullptr, 10);
        } else if (option == "--litmus" && value != nullptr && std::strtoul(value, nullptr, 10) >= 1000) {
            litmus = std::strtoul(value, nullptr, 10);
        } else {
            return std::fprintf(stderr,
                                "usage: gpu_probe [--rounds N, 10 or more] [--litmus N, 1000 or more] "
                                "[--json FILE]\n"),
                   6;
        }
    }
    tutti::gpu::Probe probe(static_cast<std::uint32_t>(rounds));
    std::printf("# %s, %d multiprocessors\n", probe.properties().name, probe.properties().multiProcessorCount);
    probe.launches();
    probe.from_block_to_block();
    probe.stale_payloads(litmus);
    if (file != nullptr) {
        std::FILE* out = std::fopen(file, "w");
        if (out == nullptr) return std::perror(file), 1;
        std::fprintf(out, "{\"device\": \"%s\", \"figures\": [%s]}\n", probe.properties().name, probe.json().c_str());
        std::fclose(out);
    }
    return probe.stale() ? 1 : 0;
}
