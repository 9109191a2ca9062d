// gpu_small: where the time of a small all-reduce goes on one GPU. n ranks of one launch, `flat` in lines: time per
// node of a graph, of an empty kernel, of the interpreter without steps, of the whole, and of the kernel of small
// messages; and cycles between the phases of a block. Exits with 1 if a sum is wrong, 2 if there is no GPU. With --few
// it launches as little as shows whether it runs, for GPUs that are hosts.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/machine.hpp"
#include "kernels/cuda/small.hpp"

namespace tutti::gpu {
namespace {

void check(cudaError_t result, const char* what) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "gpu_small: %s: %s\n", what, cudaGetErrorString(result));
    std::exit(2);
}

constexpr int stamps_most = 64;
using Native32 = Native<float>;

__device__ std::uint32_t cycles() {
    std::uint32_t now;
    asm volatile("mov.u32 %0, %clock;" : "=r"(now)::"memory");
    return now;
}

struct Stamps {
    std::uint32_t at[stamps_most];
    int count;
};

__device__ void stamp(Stamps& stamps) {
    if (thread() == 0 && stamps.count < stamps_most) stamps.at[stamps.count++] = cycles();
}

/// The interpreter with a stamp behind each part of a step.
template <class F>
class Stamped : public Machine<F> {
  public:
    using Base = Machine<F>;
    TUTTI_DEVICE Stamped(const Job& job, std::uint32_t channel, Shared& shared, Stamps& stamps)
        : Base(job, channel, shared), stamps_(stamps) {
        stamp(stamps_);
    }
    TUTTI_DEVICE bool run() {
        Cursor at;
        const bool good = advance(*this, at);
        stamp(stamps_);
        const bool done = good && Base::finish();
        stamp(stamps_);
        return done;
    }
    TUTTI_DEVICE bool ready(const Step& step, std::uint32_t& seen) {
        const bool is = Base::ready(step, seen);
        stamp(stamps_);
        return is;
    }
    TUTTI_DEVICE void store(const Step& step) {
        Base::store(step);
        stamp(stamps_);
    }
    TUTTI_DEVICE void reduce(const Step& step) {
        Base::reduce(step);
        stamp(stamps_);
    }
    TUTTI_DEVICE void commit(const Step& step) {
        Base::commit(step);
        stamp(stamps_);
    }
    TUTTI_DEVICE void end_step(const Step& step) {
        Base::end_step(step);
        stamp(stamps_);
    }

  private:
    Stamps& stamps_;
};

__global__ void empty() {}
__global__ void __launch_bounds__(block_threads, 1) empty_of(const __grid_constant__ Launch) {}
__global__ void __launch_bounds__(block_threads, 1) reads_arguments(const __grid_constant__ Launch launch) {
    const Job& job = launch.jobs[blockIdx.y];
    if (job.count == 12345 && job.call == 17 && job.plan.to_count == 18) __nanosleep(job.tiles);
}

__global__ void __launch_bounds__(block_threads, 1) interpret(const __grid_constant__ Launch launch) {
    __shared__ Shared shared;
    const Job& job = launch.jobs[blockIdx.y];
    if (blockIdx.x >= job.channels) return;
    Machine<Native32>(job, blockIdx.x, shared).run();
}

__global__ void __launch_bounds__(block_threads, 1)
    interpret_stamped(const __grid_constant__ Launch launch, Stamps* out) {
    __shared__ Shared shared;
    __shared__ Stamps stamps;
    if (thread() == 0) stamps.count = 0;
    stamp(stamps);
    const Job& job = launch.jobs[blockIdx.y];
    Stamped<Native32>(job, blockIdx.x, shared, stamps).run();
    if (thread() == 0) out[blockIdx.y] = stamps;
}

__global__ void __launch_bounds__(block_threads, 1) small(const __grid_constant__ SmallLaunch launch) {
    __shared__ SmallShared shared;
    Small<Native32>(launch.jobs[blockIdx.y], blockIdx.x, shared).run();
}

__global__ void __launch_bounds__(block_threads, 1)
    small_stamped(const __grid_constant__ SmallLaunch launch, Stamps* out) {
    __shared__ SmallShared shared;
    __shared__ Stamps stamps;
    if (thread() == 0) stamps.count = 0;
    stamp(stamps);
    Small<Native32> its(launch.jobs[blockIdx.y], blockIdx.x, shared);
    bool good = its.begin();
    stamp(stamps);
    good = good && its.run_steps();
    stamp(stamps);
    if (good) its.finish();
    stamp(stamps);
    if (thread() == 0) out[blockIdx.y] = stamps;
}

/// n ranks on one GPU, and the program `flat` of an all-reduce for each.
class Ranks {
  public:
    Ranks(int n, std::size_t bytes, bool steps, bool with_ends, std::uint32_t tiles = 1) : n_(n), bytes_(bytes) {
        std::vector<End> to(n * n), from(n * n);
        const std::size_t stride = (bytes + 7) / 8, lines = line_depth * stride;
        Fifo* const fifos = make<Fifo>(n * n);
        Line* const all_lines = make<Line>(lines * n * n);
        for (int a = 0; a < n; ++a)
            for (int b = 0; b < n; ++b) {
                const std::size_t pair = a * n + b;
                End end;
                end.fifo = fifos + pair;
                end.lines = all_lines + lines * pair;
                end.line_stride = static_cast<std::uint32_t>(stride);
                end.in_process = 1;
                end.peer = b;
                to[pair] = end;
                end.peer = a;
                from[pair] = end;
            }
        to.insert(to.end(), from.begin(), from.end());
        End* const to_there = ends_ = upload(to);
        End* const from_there = to_there + n * n;
        Control* const control = pinned();
        in_ = make<std::byte>(bytes * n);
        out_ = make<std::byte>(bytes * n);
        std::vector<float> values(bytes / 4 * n);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
        check(cudaMemcpy(in_, values.data(), bytes * n, cudaMemcpyHostToDevice), "cudaMemcpy");
        std::memset(&launch, 0, sizeof launch);
        for (int r = 0; r < n; ++r) {
            std::vector<Operand> operands{input(0)};
            std::vector<End*> its_to, its_from;
            for (int i = 1; i < n; ++i) {
                operands.push_back(send(i - 1));
                its_to.push_back(to_there + r * n + (r + i) % n);
            }
            std::vector<Step> program{{0, 1, static_cast<std::uint32_t>(n - 1), 0, 0}};
            const auto first = static_cast<std::uint32_t>(operands.size());
            for (int p = 0; p < n; ++p) {
                operands.push_back(p == r ? input(0) : recv(static_cast<int>(its_from.size())));
                if (p != r) its_from.push_back(from_there + p * n + r);
            }
            operands.push_back(output(0));
            program.push_back({first, static_cast<std::uint32_t>(n), 1, 0, 1});
            if (n == 1) program.erase(program.begin());
            if (!steps) program.clear();
            Job& job = launch.jobs[r];
            Plan& plan = job.plan;
            plan.steps = upload(program);
            plan.operands = upload(operands);
            plan.to = upload(its_to);
            plan.from = upload(its_from);
            plan.control = control;
            plan.step_count = static_cast<std::uint32_t>(program.size());
            plan.operand_count = static_cast<std::uint32_t>(operands.size());
            plan.to_count = with_ends ? static_cast<std::uint32_t>(its_to.size()) : 0;
            plan.from_count = with_ends ? static_cast<std::uint32_t>(its_from.size()) : 0;
            plan.push_safe = 1;
            plan.columns = 1;
            job.input.at = in_ + bytes * r;
            job.output.at = out_ + bytes * r;
            job.input.shareable = job.output.shareable = 1;
            job.count = job.block = bytes / 4;
            job.tile = bytes / 4 / tiles;
            job.tiles = tiles;
            job.channels = 1;
            job.timeout_ns = 2'000'000'000;
            job.in_lines = 1;
            if (steps) small_launch.jobs[r] = small_of(job, program, operands, its_to, its_from);
        }
    }
    ~Ranks() {
        check(cudaDeviceSynchronize(), "kernels");
        for (void* m : made_) cudaFree(m);
    }

    bool right() const {
        check(cudaDeviceSynchronize(), "kernels");
        std::vector<float> in(bytes_ / 4 * n_), out(in.size());
        check(cudaMemcpy(in.data(), in_, bytes_ * n_, cudaMemcpyDeviceToHost), "cudaMemcpy");
        check(cudaMemcpy(out.data(), out_, bytes_ * n_, cudaMemcpyDeviceToHost), "cudaMemcpy");
        check(cudaMemset(out_, 0, bytes_ * n_), "cudaMemset");
        const std::size_t each = bytes_ / 4;
        for (std::size_t i = 0; i < each; ++i) {
            float sum = 0;
            for (int r = 0; r < n_; ++r) sum += in[r * each + i];
            for (int r = 0; r < n_; ++r)
                if (out[r * each + i] != sum) return false;
        }
        return true;
    }

    Launch launch;
    SmallLaunch small_launch{};

  private:
    /// As tutti::gpu::Program has it.
    SmallJob small_of(Job& job, const std::vector<Step>& program, const std::vector<Operand>& operands,
                      const std::vector<End*>& to, const std::vector<End*>& from) {
        SmallPlan small;
        for (std::size_t i = 0; i < operands.size(); ++i) {
            const bool peer = operands[i].place == Place::peer, received = peer && i >= program.back().first;
            const std::size_t index = operands[i].index + (received ? to.size() : 0);
            small.operands[i] = {operands[i].place, 0, static_cast<std::uint8_t>(index), 0};
        }
        for (std::size_t i = 0; i < program.size(); ++i)
            small.steps[i] = {
                static_cast<std::uint8_t>(program[i].first), static_cast<std::uint8_t>(program[i].sources),
                static_cast<std::uint8_t>(program[i].sinks), 0, static_cast<std::uint8_t>(program[i].completes)};
        small.step_count = static_cast<std::uint8_t>(program.size());
        small.operand_count = static_cast<std::uint8_t>(operands.size());
        small.to_count = static_cast<std::uint8_t>(to.size());
        small.from_count = static_cast<std::uint8_t>(from.size());
        small.ends = ends_;
        for (std::size_t i = 0; i < to.size(); ++i) small.numbers[i] = number(to[i]);
        for (std::size_t i = 0; i < from.size(); ++i) small.numbers[to.size() + i] = number(from[i]);
        std::fill_n(small.messages, to.size() + from.size(), std::uint8_t{1});
        job.plan.small = &small;
        const SmallJob made = small_job(job, sizeof(float));
        job.plan.small = nullptr;
        return made;
    }
    std::uint16_t number(const End* end) const { return static_cast<std::uint16_t>(end - ends_); }
    template <class T>
    T* make(std::size_t count) {
        void* m = nullptr;
        check(cudaMalloc(&m, std::max<std::size_t>(count * sizeof(T), 16)), "cudaMalloc");
        check(cudaMemset(m, 0, std::max<std::size_t>(count * sizeof(T), 16)), "cudaMemset");
        made_.push_back(m);
        return static_cast<T*>(m);
    }
    template <class T>
    T* upload(const std::vector<T>& values) {
        T* const there = make<T>(values.size());
        check(cudaMemcpy(there, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
        return there;
    }
    Control* pinned() {
        static Control* control = nullptr;
        if (control == nullptr) {
            check(cudaMallocHost(&control, sizeof(Control)), "cudaMallocHost");
            std::memset(static_cast<void*>(control), 0, sizeof(Control));
        }
        return control;
    }
    int n_;
    std::size_t bytes_;
    std::byte *in_, *out_;
    End* ends_;
    std::vector<void*> made_;
};

class Bench {
  public:
    explicit Bench(bool few) : few_(few) {
        int count = 0;
        check(cudaGetDeviceCount(&count), "there is no GPU that CUDA can use");
        check(cudaGetDeviceProperties(&properties_, 0), "cudaGetDeviceProperties");
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        check(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        check(cudaEventCreate(&begin_), "cudaEventCreate");
        check(cudaEventCreate(&end_), "cudaEventCreate");
        check(cudaEventCreateWithFlags(&plain_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
        check(cudaEventCreateWithFlags(&edge_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
        check(cudaMalloc(&stamps_, 16 * sizeof(Stamps)), "cudaMalloc");
        int khz = 0;
        cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
        std::printf("# %s, clock rate %.0f MHz at most\n", properties_.name, khz / 1e3);
    }
    bool wrong() const { return wrong_; }

    void nodes() {
        const auto launch = [&] { empty<<<1, block_threads, 0, stream_>>>(); };
        note("empty kernel", replayed(launch));
        note("empty kernel, external record in the chain", replayed([&] { launch(), record(stream_); }));
        note("empty kernel, external record as a leaf", replayed([&] { launch(), leaf(); }));
        note("empty kernel, external record on a chain of records", replayed([&] { launch(), side_chain(); }));
        last_record_ = nullptr;
        note("  a graph of one: empty kernel", replayed(launch, 1));
        note("  a graph of one: kernel, record", replayed([&] { launch(), record(stream_); }, 1));
        note("  a graph of one: kernel, record as a leaf", replayed([&] { launch(), leaf(); }, 1));
        note("  a graph of one: wait, kernel, record", replayed([&] { wait(), launch(), record(stream_); }, 1));
    }

    void of_ranks(int n, std::size_t bytes) {
        std::printf("\n# %d ranks, %zu B, us per node of a graph of 20\n", n, bytes);
        const unsigned ranks = static_cast<unsigned>(n);
        {
            Ranks r(n, bytes, false, false);
            note("empty kernel", replayed([&] { empty<<<dim3(1, ranks), block_threads, 0, stream_>>>(); }));
            note("empty kernel, 4 KB of arguments",
                 replayed([&] { empty_of<<<dim3(1, ranks), block_threads, 0, stream_>>>(r.launch); }));
            note("the same, reading a job",
                 replayed([&] { reads_arguments<<<dim3(1, ranks), block_threads, 0, stream_>>>(r.launch); }));
            note("interpreter, no steps, no ends", replayed([&] { run(r, ranks, block_threads); }));
        }
        {
            Ranks r(n, bytes, false, true);
            note("interpreter, no steps", replayed([&] { run(r, ranks, block_threads); }));
        }
        Ranks r(n, bytes, true, true);
        checked(r, "interpreter", [&] { run(r, ranks, block_threads); });
        for (const unsigned threads : {384u, 128u, 32u})
            checked(r, "small, threads " + std::to_string(threads), [&] { run_small(r, ranks, threads); });
        checked(r, "small, external record in the chain", [&] { run_small(r, ranks, 128), record(stream_); });
        checked(r, "small, record on a chain of records", [&] { run_small(r, ranks, 128), side_chain(); });
        checked(r, "interpreter, external record in the chain", [&] { run(r, ranks, block_threads), record(stream_); });
        checked(r, "interpreter, record as a leaf", [&] { run(r, ranks, block_threads), leaf(); });
        checked(r, "interpreter, record on a chain of records", [&] { run(r, ranks, block_threads), side_chain(); });
        last_record_ = nullptr;
        std::printf(
            "  cycles between stamps (interpreter: loaded; per step: ready, load+store, reduce, commit, "
            "release; advanced, finished. small: begun, steps, finished)\n");
        for (int i = 0; i < 3; ++i)
            stamped("interpreter", ranks,
                    [&] { interpret_stamped<<<dim3(1, ranks), block_threads, 0, stream_>>>(r.launch, stamps_); });
        for (const unsigned threads : {384u, 32u})
            for (int i = 0; i < 2; ++i)
                stamped("small, threads " + std::to_string(threads), ranks,
                        [&] { small_stamped<<<dim3(1, ranks), threads, 0, stream_>>>(r.small_launch, stamps_); });
        Ranks tiled(n, 4 * bytes, true, true, 4);
        stamped("interpreter, 4 tiles of it", ranks,
                [&] { interpret_stamped<<<dim3(1, ranks), block_threads, 0, stream_>>>(tiled.launch, stamps_); });
    }

  private:
    void run(Ranks& r, unsigned ranks, unsigned threads) {
        interpret<<<dim3(1, ranks), threads, 0, stream_>>>(r.launch);
    }
    void run_small(Ranks& r, unsigned ranks, unsigned threads) {
        small<<<dim3(1, ranks), threads, 0, stream_>>>(r.small_launch);
    }
    void record(cudaStream_t stream) {
        check(cudaEventRecordWithFlags(plain_, stream, cudaEventRecordExternal), "cudaEventRecordWithFlags");
    }
    void wait() { check(cudaStreamWaitEvent(stream_, plain_, cudaEventWaitExternal), "cudaStreamWaitEvent"); }

    /// The record follows what the stream has so far, and nothing of the stream follows the record.
    std::vector<cudaGraphNode_t> dependencies() {
        cudaStreamCaptureStatus status;
        const cudaGraphNode_t* nodes = nullptr;
        std::size_t count = 0;
        const cudaGraphEdgeData* edges = nullptr;
        check(cudaStreamGetCaptureInfo(stream_, &status, nullptr, nullptr, &nodes, &edges, &count), "capture info");
        return {nodes, nodes + count};
    }
    void set(std::vector<cudaGraphNode_t> nodes) {
        check(cudaStreamUpdateCaptureDependencies(stream_, nodes.data(), nullptr, nodes.size(),
                                                  cudaStreamSetCaptureDependencies),
              "cudaStreamUpdateCaptureDependencies");
    }
    void leaf() {
        const auto before = dependencies();
        record(stream_);
        set(before);
    }
    void side_chain() {
        const auto before = dependencies();
        auto both = before;
        if (last_record_ != nullptr) both.push_back(last_record_);
        set(both);
        record(stream_);
        last_record_ = dependencies().front();
        set(before);
    }

    template <class Work>
    double replayed(const Work& work, int nodes = 20) {
        cudaGraph_t graph;
        cudaGraphExec_t executable;
        last_record_ = nullptr;
        if (few_) nodes = std::min(nodes, 2);
        check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        for (int i = 0; i < nodes; ++i) work();
        check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
        check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
        std::vector<double> times;
        const int rounds = few_ ? 3 : 7, repeat = few_ ? 1 : 30;
        for (int round = 0; round < rounds; ++round) {
            check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
            for (int i = 0; i < repeat; ++i) check(cudaGraphLaunch(executable, stream_), "cudaGraphLaunch");
            check(cudaEventRecord(end_, stream_), "cudaEventRecord");
            check(cudaEventSynchronize(end_), "cudaEventSynchronize");
            float ms = 0;
            check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
            if (round > 1) times.push_back(ms * 1e3 / repeat / nodes);
        }
        check(cudaGetLastError(), "a launch");
        cudaGraphExecDestroy(executable);
        cudaGraphDestroy(graph);
        std::sort(times.begin(), times.end());
        return times[times.size() / 2];
    }
    template <class Work>
    void checked(Ranks& r, const std::string& what, const Work& work) {
        const double time = replayed(work);
        const bool right = r.right();
        if (!right) wrong_ = true;
        note(what + (right ? "" : "  WRONG"), time);
    }
    template <class Work>
    void stamped(const std::string& what, unsigned ranks, const Work& work) {
        for (int i = 0; i < 5; ++i) work();
        check(cudaStreamSynchronize(stream_), "a kernel");
        std::vector<Stamps> out(ranks);
        check(cudaMemcpy(out.data(), stamps_, ranks * sizeof(Stamps), cudaMemcpyDeviceToHost), "cudaMemcpy");
        for (unsigned r = 0; r < ranks && r < 2; ++r) {
            std::printf("    %-34s rank %u:", what.c_str(), r);
            for (int i = 1; i < out[r].count; ++i) std::printf(" %u", out[r].at[i] - out[r].at[i - 1]);
            std::printf(" = %u\n", out[r].at[out[r].count - 1] - out[r].at[0]);
        }
        std::fflush(stdout);
    }
    void note(const std::string& what, double value) {
        std::printf("  %-60s %9.3f us\n", what.c_str(), value);
        std::fflush(stdout);
    }

    const bool few_;
    cudaDeviceProp properties_{};
    cudaStream_t stream_ = nullptr, side_ = nullptr;
    cudaEvent_t begin_ = nullptr, end_ = nullptr, plain_ = nullptr, edge_ = nullptr;
    Stamps* stamps_ = nullptr;
    cudaGraphNode_t last_record_ = nullptr;
    bool wrong_ = false;
};

}  // namespace
}  // namespace tutti::gpu

int main(int argc, char** argv) {
    const bool few = argc == 2 && std::strcmp(argv[1], "--few") == 0;
    if (argc > 1 && !few) {
        std::fprintf(stderr, "usage: gpu_small [--few]\n");
        return 2;
    }
    tutti::gpu::Bench bench(few);
    bench.nodes();
    for (const int ranks : {1, 2, 8})
        for (const std::size_t bytes : {8u, 1024u, 8192u}) bench.of_ranks(ranks, bytes);
    return bench.wrong() ? 1 : 0;
}
