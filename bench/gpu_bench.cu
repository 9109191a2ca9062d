// gpu_bench [--check] [--bytes N] [--json FILE]: the reduction kernels on a GPU: every type and operation checked
// against reduce_reference(), then (without --check) timed, on N bytes, in turns with copies from device memory to
// device memory; and what launching costs. GB/s counts bytes read plus bytes written; ratios are medians of the ratios
// of neighbouring runs.
// Exits with 1 if a result is wrong, 2 if there is no GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/convert.hpp"
#include "kernels/cuda/reduce.hpp"
#include "kernels/reduce.hpp"

using namespace tutti;

namespace {

constexpr int most_sources = 8;

void check(cudaError_t result, const char* what) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "gpu_bench: %s: %s\n", what, cudaGetErrorString(result));
    std::exit(2);
}

struct Work {
    std::byte* sources[most_sources];
    std::byte* sinks[2];
    int source_count, sink_count, scaled, divide_by;
    std::uint64_t scalar;
    std::size_t bytes, share;  // of a block
    ReduceOp op;
    bool is_signed;
    const std::uint32_t* abort;
};

template <class F>
__global__ void __launch_bounds__(gpu::block_threads, 1) reduce_all(Work work) {
    __shared__ gpu::Term sources[most_sources], sinks[2];
    const std::size_t begin = blockIdx.x * work.share;
    if (begin >= work.bytes) return;
    if (threadIdx.x < most_sources) sources[threadIdx.x] = {work.sources[threadIdx.x] + begin, 0};
    if (threadIdx.x < 2) sinks[threadIdx.x] = {work.sinks[threadIdx.x] + begin, 0};
    __syncthreads();
    gpu::Terms terms{sources, sinks, work.source_count, work.sink_count, work.scaled, work.divide_by, work.scalar,
                     work.is_signed};
    const std::size_t rest = work.bytes - begin;
    gpu::reduce<F>(work.op, terms, rest < work.share ? rest : work.share, gpu::Limits{work.abort, 1000000000});
}

__global__ void nothing() {}

using Kernel = void (*)(Work);

Kernel kernel_of(DataType type) {
    return gpu::with_lanes_of(type, [](auto lanes) -> Kernel { return reduce_all<decltype(lanes)>; });
}

class Device {
  public:
    Device() {
        int count = 0;
        check(cudaGetDeviceCount(&count), "there is no GPU that CUDA can use");
        check(cudaGetDeviceProperties(&properties_, 0), "cudaGetDeviceProperties");
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
        check(cudaEventCreate(&begin_), "cudaEventCreate");
        check(cudaEventCreate(&end_), "cudaEventCreate");
        check(cudaMalloc(&abort_, 4), "cudaMalloc");
        check(cudaMemset(abort_, 0, 4), "cudaMemset");
    }
    const cudaDeviceProp& properties() const { return properties_; }
    cudaStream_t stream() const { return stream_; }

    std::byte* allocate(std::size_t bytes) {
        void* memory = nullptr;
        check(cudaMalloc(&memory, bytes), "cudaMalloc");
        check(cudaMemset(memory, 0, bytes), "cudaMemset");
        return static_cast<std::byte*>(memory);
    }
    void reduce(DataType type, Work work) {
        const auto blocks = static_cast<std::size_t>(properties_.multiProcessorCount);
        work.share = ((work.bytes + blocks - 1) / blocks + 511) / 512 * 512;
        work.abort = abort_;
        kernel_of(type)<<<static_cast<unsigned>(blocks), gpu::block_threads, 0, stream_>>>(work);
    }
    void wait() { check(cudaStreamSynchronize(stream_), "a kernel"); }

    /// Seconds of one run of work, enqueued `repeat` times.
    double seconds(const std::function<void()>& work, int repeat) {
        check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
        for (int i = 0; i < repeat; ++i) work();
        check(cudaEventRecord(end_, stream_), "cudaEventRecord");
        check(cudaEventSynchronize(end_), "cudaEventSynchronize");
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
        return ms * 1e-3 / repeat;
    }

  private:
    cudaDeviceProp properties_{};
    cudaStream_t stream_ = nullptr;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
    std::uint32_t* abort_ = nullptr;
};

bool same(DataType type, const std::byte* a, const std::byte* b) {
    if (std::memcmp(a, b, size_of(type)) == 0) return true;
    return std::isnan(load_as_double(type, a)) && std::isnan(load_as_double(type, b));
}

/// Random bits, buffers `shift` elements past alignment. True if all elements are right.
bool right(Device& device, DataType type, ReduceOp op, int sources, std::size_t count, std::size_t shift, int scaled,
           int divide_by) {
    const std::size_t size = size_of(type), bytes = count * size, room = bytes + 64;
    static std::vector<std::byte*> memory;
    while (memory.size() < most_sources + 2) memory.push_back(device.allocate(1 << 20));
    std::mt19937 random(static_cast<unsigned>(count + shift));
    std::vector<std::vector<std::byte>> host(static_cast<std::size_t>(sources), std::vector<std::byte>(room));
    std::vector<const void*> from;
    Work work{};
    for (int k = 0; k < sources; ++k) {
        auto& h = host[static_cast<std::size_t>(k)];
        for (std::byte& b : h) b = static_cast<std::byte>(random());
        work.sources[k] = memory[static_cast<std::size_t>(k)] + shift * size;
        check(cudaMemcpy(work.sources[k], h.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
        from.push_back(h.data());
    }
    check(cudaStreamSynchronize(cudaStreamLegacy), "cudaMemcpy");  // the copies have ended when all is staged
    for (int m = 0; m < 2; ++m) work.sinks[m] = memory[most_sources + static_cast<std::size_t>(m)] + shift * size;
    work.source_count = sources;
    work.sink_count = 2;
    work.scaled = scaled;
    work.divide_by = divide_by;
    work.bytes = bytes;
    work.op = op;
    work.is_signed = has_sign(type);
    alignas(8) std::byte scalar[8];
    for (std::byte& b : scalar) b = static_cast<std::byte>(random());
    for (std::size_t i = 0; i < 8; i += size) std::memcpy(reinterpret_cast<std::byte*>(&work.scalar) + i, scalar, size);
    device.reduce(type, work);
    device.wait();
    std::vector<std::byte> expected(room), got(room);
    void* sink = expected.data();
    reduce_reference({type, op, count, from.data(), sources, &sink, 1, scaled, scalar, divide_by});
    for (std::byte* on_device : work.sinks) {
        check(cudaMemcpy(got.data(), on_device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
        for (std::size_t i = 0; i < count; ++i) {
            if (same(type, got.data() + i * size, expected.data() + i * size)) continue;
            std::printf(
                "WRONG %s %s, %d sources, element %zu of %zu, shift %zu, scaled %d, divided by %d: %g, not %g\n",
                std::string(name_of(type)).c_str(), std::string(name_of(op)).c_str(), sources, i, count, shift, scaled,
                divide_by, load_as_double(type, got.data() + i * size),
                load_as_double(type, expected.data() + i * size));
            return false;
        }
    }
    return true;
}

int check_all(Device& device) {
    int wrong = 0, cases = 0;
    const auto count_one = [&](bool good) { ++cases, wrong += good ? 0 : 1; };
    for (int type = 0; type < data_types; ++type)
        for (int op = 0; op < reduce_ops; ++op) {
            const auto t = static_cast<DataType>(type);
            const auto o = static_cast<ReduceOp>(op);
            for (int sources : {1, 2, 3, 8})
                for (std::size_t count : {1, 7, 129, 4099, 40007})
                    count_one(right(device, t, o, sources, count, count % 4, -1, 0));
            count_one(right(device, t, o, 2, 1000, 0, 1, 0));
            count_one(right(device, t, o, 3, 1000, 1, 0, 3));
        }
    std::printf("# reductions: %d cases, %d wrong\n", cases, wrong);
    return wrong;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void time_reductions(Device& device, std::size_t bytes, std::string& json) {
    constexpr int rounds = 9, repeat = 3;
    Work work{};
    for (std::byte*& source : work.sources) source = device.allocate(bytes);
    for (std::byte*& sink : work.sinks) sink = device.allocate(bytes);
    work.sink_count = 1;
    work.scaled = -1;
    work.bytes = bytes;
    work.op = ReduceOp::sum;
    const auto copy = [&] {
        check(cudaMemcpyAsync(work.sinks[1], work.sources[0], bytes, cudaMemcpyDeviceToDevice, device.stream()),
              "copy");
    };
    std::printf("# %8s  %7s  %10s  %10s  %7s  %6s\n", "type", "sources", "GB/s", "copy GB/s", "of copy", "target");
    for (DataType type : {DataType::float32, DataType::bfloat16, DataType::float16, DataType::float8e4m3})
        for (int sources = 1; sources <= most_sources; ++sources) {
            work.source_count = sources;
            const auto ours = [&] { device.reduce(type, work); };
            device.seconds(ours, 1), device.seconds(copy, 1);
            const double moved = static_cast<double>(bytes) * (sources + 1), copied = 2 * static_cast<double>(bytes);
            std::vector<double> rate, copy_rate, ratio;
            for (int i = 0; i < rounds; ++i) {
                copy_rate.push_back(copied / device.seconds(copy, repeat) / 1e9);
                rate.push_back(moved / device.seconds(ours, repeat) / 1e9);
                ratio.push_back(rate.back() / copy_rate.back());
            }
            const double of_copy = median(ratio);
            std::printf("  %8s  %7d  %10.1f  %10.1f  %7.3f  %6.2f%s\n", std::string(name_of(type)).c_str(), sources,
                        median(rate), median(copy_rate), of_copy, 0.92, of_copy < 0.92 ? " MISSED" : "");
            char line[200];
            std::snprintf(
                line, sizeof line,
                "%s\n  {\"type\": \"%s\", \"sources\": %d, \"gbs\": %.1f, \"copy_gbs\": %.1f, \"ratio\": %.4f}",
                json.empty() ? "" : ",", std::string(name_of(type)).c_str(), sources, median(rate), median(copy_rate),
                of_copy);
            json += line;
        }
    for (std::byte* source : work.sources) cudaFree(source);
    for (std::byte* sink : work.sinks) cudaFree(sink);
}

double time_empty_replay(Device& device) {
    constexpr int nodes = 20;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    check(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < nodes; ++i) nothing<<<1, gpu::block_threads, 0, device.stream()>>>();
    check(cudaStreamEndCapture(device.stream(), &graph), "capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
    const auto replay = [&] { check(cudaGraphLaunch(executable, device.stream()), "replay"); };
    device.seconds(replay, 10);
    return device.seconds(replay, 50) * 1e6 / nodes;
}

}  // namespace

int main(int argc, char** argv) {
    const char* file = nullptr;
    bool only_check = false, understood = true;
    unsigned long long bytes = 256ull << 20;
    for (int i = 1; i < argc && understood; ++i) {
        const std::string option = argv[i];
        const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
        if (option == "--check") {
            only_check = true;
        } else if (option == "--json" && value != nullptr) {
            file = argv[++i];
        } else if (option == "--bytes" && value != nullptr) {
            char* end = nullptr;
            bytes = std::strtoull(argv[++i], &end, 10);
            understood = *end == 0 && bytes > 0 && bytes % 16 == 0;
        } else {
            understood = false;
        }
    }
    if (!understood)
        return std::fprintf(stderr, "usage: gpu_bench [--check] [--bytes N, a multiple of 16] [--json FILE]\n"), 6;
    Device device;
    int driver = 0;
    cudaDriverGetVersion(&driver);
    std::printf("# %s, %d multiprocessors, driver for CUDA %d.%d\n", device.properties().name,
                device.properties().multiProcessorCount, driver / 1000, driver / 10 % 100);
    const int wrong = check_all(device);
    if (only_check) return wrong == 0 ? 0 : 1;
    std::string rows;
    time_reductions(device, bytes, rows);
    const double empty = time_empty_replay(device);
    std::printf("# empty kernel in a replayed graph: %.2f us\n", empty);
    if (file != nullptr) {
        std::FILE* out = std::fopen(file, "w");
        if (out == nullptr) return std::perror(file), 1;
        std::fprintf(
            out,
            "{\"device\": \"%s\", \"driver\": %d, \"wrong\": %d, \"empty_replay_us\": %.3f,\n \"reductions\": [%s]}\n",
            device.properties().name, driver, wrong, empty, rows.c_str());
        std::fclose(out);
    }
    return wrong == 0 ? 0 : 1;
}
