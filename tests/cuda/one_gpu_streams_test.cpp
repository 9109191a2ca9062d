// Memory of every kind, streams and graphs, on a GPU (test-one-gpu).
#include <barrier>
#include <numeric>
#include <span>

#include "world.hpp"

using namespace tutti::on_gpu;

namespace {

constexpr std::array one_gpu{0, 0};
constexpr std::size_t small = 100, large = 70'000;  // elements: a kernel of their own, and the interpreter

void synchronize(const World& world) {
    for (std::size_t lane = 0; lane < lanes; ++lane)
        for (std::size_t r = 0; r < ranks; ++r) require(cudaStreamSynchronize(world.stream(lane, r)));
}

/// What follows on the stream waits until it is opened, for some seconds at most.
class Gate {
  public:
    explicit Gate(cudaStream_t stream) {
        require(cudaLaunchHostFunc(
            stream,
            [](void* flag) {
                for (int ms = 0; ms < 5000 && !static_cast<std::atomic<bool>*>(flag)->load(); ++ms)
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
            },
            &open_));
    }
    ~Gate() { cudaDeviceSynchronize(); }
    Gate(const Gate&) = delete;
    void open() { open_ = true; }

  private:
    std::atomic<bool> open_{false};
};

struct Op {
    tuttiRedOp_t op{};
    tuttiComm_t comm;
    Op(void* scalar, tuttiScalarResidence_t residence, tuttiComm_t its) : comm(its) {
        require(tuttiRedOpCreatePreMulSum(&op, scalar, tuttiFloat32, residence, comm));
    }
    ~Op() { tuttiRedOpDestroy(op, comm); }
    Op(const Op&) = delete;
};

cudaGraphExec_t captured(cudaStream_t stream, const std::function<void()>& body) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t out = nullptr;
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    body();
    require(cudaStreamEndCapture(stream, &graph));
    require(cudaGraphInstantiate(&out, graph, 0));
    require(cudaGraphDestroy(graph));
    return out;
}

}  // namespace

TEST_CASE("buffers of every kind of memory, at any alignment") {
    const Kind kind = GENERATE(Kind::malloc, Kind::pool, Kind::managed, Kind::pinned, Kind::library);
    const std::size_t count = GENERATE(small + 1, large + 3), shift = GENERATE(std::size_t{0}, std::size_t{1});
    CAPTURE(static_cast<int>(kind), count, shift);
    World world(one_gpu, small, 20'000);
    Memory in0(kind, count + 64), in1(kind, count + 64), out0(kind, count + 64), out1(kind, count + 64);
    const std::array in{&in0, &in1}, out{&out0, &out1};
    for (std::size_t r = 0; r < ranks; ++r) {
        std::vector<unsigned char> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<unsigned char>(i * (r + 3));
        upload(in[r]->at() + shift, values);
        upload(out[r]->at(), std::vector<unsigned char>(count + 64, 77));
    }
    in_group([&](std::size_t r) {
        return tuttiAllReduce(in[r]->at() + shift, out[r]->at() + 3 * shift, count, tuttiUint8, tuttiSum, world.comm(r),
                              world.stream(0, r));
    });
    synchronize(world);
    for (std::size_t r = 0; r < ranks; ++r) {
        const auto got = downloaded<unsigned char>(out[r]->at(), count + 64);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
            const bool inside = i >= 3 * shift && i < count + 3 * shift;
            wrong += got[i] != (inside ? static_cast<unsigned char>((i - 3 * shift) * 7) : 77);
        }
        CHECK(wrong == 0);
    }
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("memory of the library is zeroed, is freed once, and nothing else is") {
    void* memory = nullptr;
    require(tuttiMemAllocDevice(&memory, 4000, 0));
    CHECK(downloaded<unsigned char>(memory, 4000) == std::vector<unsigned char>(4000));
    CHECK(tuttiMemFree(static_cast<char*>(memory) + 8) == tuttiInvalidArgument);
    require(tuttiMemFree(memory));
    CHECK(tuttiMemFree(memory) == tuttiInvalidArgument);
    require(tuttiMemFree(nullptr));
    require(tuttiMemAllocDevice(&memory, 0, TUTTI_DEVICE_CURRENT));
    require(tuttiMemFree(memory));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("calls without elements take no buffers") {
    World world(one_gpu, small, 20'000);
    in_group([&](std::size_t r) {
        const tuttiComm_t comm = world.comm(r);
        cudaStream_t const stream = world.stream(0, r);
        require(tuttiAllReduce(nullptr, nullptr, 0, tuttiFloat32, tuttiSum, comm, stream));
        require(tuttiAllGather(nullptr, nullptr, 0, tuttiFloat32, comm, stream));
        require(tuttiSend(nullptr, 0, tuttiFloat32, static_cast<int>(1 - r), comm, stream));
        require(tuttiRecv(nullptr, 0, tuttiFloat32, static_cast<int>(1 - r), comm, stream));
        return tuttiBroadcast(nullptr, nullptr, 0, tuttiFloat32, 0, comm, stream);
    });
    world.all_reduce(0);
    world.check(0, 1);
}

TEST_CASE("operations of one communicator follow each other on whichever streams they are") {
    const std::size_t count = GENERATE(small, large);
    World world(one_gpu, count, 20'000);
    world.all_reduce(0);
    Gate gate(world.stream(1, 0));
    int times = 1;
    for (const std::size_t lane : {1, 0, 2, 1, 0}) {  // what comes first waits at the gate, and so do all others
        in_group([&](std::size_t r) {
            void* const memory = world.memory(0, r);
            return tuttiAllReduce(memory, memory, count, tuttiFloat32, tuttiSum, world.comm(r), world.stream(lane, r));
        });
        ++times;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(cudaStreamQuery(world.stream(2, 0)) == cudaErrorNotReady);
    cudaGetLastError();
    gate.open();
    world.check(0, times);
}

TEST_CASE("a call follows those on a stream that has been destroyed, also if the new stream has its handle") {
    const std::size_t count = GENERATE(small, large);
    World world(one_gpu, count, 20'000);
    std::array<cudaStream_t, ranks> streams{};
    const auto all_reduce = [&] {
        for (cudaStream_t& stream : streams) require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        in_group([&](std::size_t r) {
            void* const memory = world.memory(0, r);
            return tuttiAllReduce(memory, memory, count, tuttiFloat32, tuttiSum, world.comm(r), streams[r]);
        });
    };
    all_reduce();
    require(cudaDeviceSynchronize());
    for (cudaStream_t const stream : streams) require(cudaStreamDestroy(stream));
    Gate gate(world.stream(0, 0));
    world.all_reduce(0);
    all_reduce();
    for (cudaStream_t const stream : streams) require(cudaStreamDestroy(stream));
    all_reduce();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(cudaStreamQuery(streams[0]) == cudaErrorNotReady);
    cudaGetLastError();
    gate.open();
    require(cudaDeviceSynchronize());
    world.check(0, 4);
    for (cudaStream_t const stream : streams) require(cudaStreamDestroy(stream));
}

TEST_CASE("a copy to oneself follows the streams of its send and of its receive, and both go on after it") {
    World world(one_gpu, large, 20'000);
    const std::size_t bytes = large * sizeof(float);
    void *const from = world.memory(0, 0), *const to = world.memory(1, 0);
    cudaStream_t const sends = world.stream(0, 0), receives = world.stream(1, 0);
    require(cudaMemset(from, 1, bytes));
    require(cudaMemset(to, 2, bytes));
    require(cudaDeviceSynchronize());
    Gate gate(sends);
    require(cudaMemsetAsync(from, 5, bytes, sends));
    require(tuttiGroupStart());
    require(tuttiRecv(to, large, tuttiFloat32, 0, world.comm(0), receives));
    require(tuttiSend(from, large, tuttiFloat32, 0, world.comm(0), sends));
    require(tuttiGroupEnd());
    require(cudaMemcpyAsync(world.memory(2, 0), to, bytes, cudaMemcpyDeviceToDevice, sends));
    require(cudaMemcpyAsync(world.memory(2, 1), to, bytes, cudaMemcpyDeviceToDevice, receives));
    gate.open();
    synchronize(world);
    for (std::size_t r = 0; r < ranks; ++r)
        CHECK(downloaded<unsigned char>(world.memory(2, r), bytes) == std::vector<unsigned char>(bytes, 5));
}

namespace {

/// A body beside this thread's, in another one. Both threads have made their own streams before either begins: that
/// may wait for kernels.
class Beside {
  public:
    explicit Beside(std::function<void()> body) : thread_([this, body = std::move(body)] { meet(), body(); }) {
        meet();
    }
    ~Beside() { thread_.join(); }
    Beside(const Beside&) = delete;

  private:
    void meet() {
        cudaStreamSynchronize(cudaStreamPerThread);
        ++ready_;
        while (ready_ < 2) std::this_thread::yield();
    }
    std::atomic<int> ready_{0};
    std::thread thread_;
};

/// What one rank's, or both ranks', all-reduce of a lane says on the calling thread's own stream; empty if it is good.
std::string on_own_stream(const World& world, std::size_t lane, std::span<const std::size_t> of) {
    bool good = tuttiGroupStart() == tuttiSuccess;
    for (const std::size_t r : of) {
        void* const memory = world.memory(lane, r);
        good = tuttiAllReduce(memory, memory, world.count, tuttiFloat32, tuttiSum, world.comm(r),
                              cudaStreamPerThread) == tuttiSuccess &&
               good;
    }
    good = tuttiGroupEnd() == tuttiSuccess && good;
    return good ? "" : tuttiGetLastError(nullptr);
}

}  // namespace

TEST_CASE("the legacy stream, and each thread's own") {
    const std::size_t count = GENERATE(small, large);
    World world(one_gpu, count, 20'000);
    for (cudaStream_t const stream : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread})
        in_group([&](std::size_t r) {
            void* const memory = world.memory(0, r);
            return tuttiAllReduce(memory, memory, count, tuttiFloat32, tuttiSum, world.comm(r), stream);
        });
    require(cudaStreamSynchronize(cudaStreamPerThread));
    world.check(0, 3);
    std::array<std::string, ranks> errors;
    std::array<cudaError_t, ranks> ends{};
    const auto body = [&](std::size_t r) {
        errors[r] = on_own_stream(world, 1, std::array{r});
        ends[r] = cudaStreamSynchronize(cudaStreamPerThread);
    };
    std::thread([&] {  // streams that are first used one after the other share no hardware queue
        const Beside other([&] { body(1); });
        body(0);
    })
        .join();
    CHECK(errors == std::array<std::string, ranks>{});
    for (const cudaError_t end : ends) require(end);
    world.check(1, 1);
}

TEST_CASE("a communicator's operations follow each other on the own streams of several threads") {
    constexpr std::array both{std::size_t{0}, std::size_t{1}};
    World world(one_gpu, large, 20'000);
    world.all_reduce(0);
    world.check(0, 1);
    std::array<std::string, 3> errors;
    cudaError_t state = cudaErrorUnknown, end = cudaErrorUnknown;
    std::atomic<bool> held{false}, called{false};
    const auto until = [](const std::atomic<bool>& flag) {
        for (int ms = 0; ms < 4000 && !flag; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    {
        const Beside other([&] {
            until(held);
            for (const std::size_t i : {1, 2}) errors[i] = on_own_stream(world, 0, both);
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            state = cudaStreamQuery(cudaStreamPerThread);
            cudaGetLastError();
            called = true;
            end = cudaStreamSynchronize(cudaStreamPerThread);
        });
        Gate gate(cudaStreamPerThread);
        errors[0] = on_own_stream(world, 0, both);
        held = true;
        until(called);
        gate.open();
    }
    CHECK(errors == std::array<std::string, 3>{});
    CHECK(state == cudaErrorNotReady);
    require(end);
    world.check(0, 4);
}

TEST_CASE("the own streams of two threads are captured at the same time, and their graphs launched in turns") {
    constexpr std::array both{std::size_t{0}, std::size_t{1}};
    const std::size_t count = GENERATE(small, large);
    World world(one_gpu, count, 20'000);
    world.all_reduce(0);  // each in its order behind what was called before
    struct Thread {       // what it finds; only the test's own thread checks
        std::string error;
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;
        cudaError_t first_failure = cudaSuccess;
        void note(cudaError_t result) {
            if (first_failure == cudaSuccess) first_failure = result;
        }
    };
    std::array<Thread, 2> threads;
    std::barrier turns(2);
    const auto body = [&](std::size_t t) {
        Thread& its = threads[t];
        its.note(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal));
        turns.arrive_and_wait();
        for (int call = 0; call < 2 && its.error.empty(); ++call) its.error = on_own_stream(world, 0, both);
        turns.arrive_and_wait();
        its.note(cudaStreamEndCapture(cudaStreamPerThread, &its.graph));
        its.note(cudaGraphInstantiate(&its.executable, its.graph, 0));
        for (std::size_t round = 0; round < 4; ++round) {
            turns.arrive_and_wait();
            if (round % 2 == t) its.note(cudaGraphLaunch(its.executable, cudaStreamPerThread));
        }
        its.note(cudaStreamSynchronize(cudaStreamPerThread));
    };
    {
        const Beside other([&] { body(1); });
        body(0);
    }
    for (const Thread& its : threads) {
        CHECK(its.error == "");
        require(its.first_failure);
    }
    world.check(0, 9);
    for (const Thread& its : threads) {
        require(cudaGraphExecDestroy(its.executable));
        require(cudaGraphDestroy(its.graph));
    }
}

TEST_CASE("a rank alone: in place, out of place, pre-multiplied, in calls and in a graph") {
    tuttiComm_t comm = nullptr;
    const int device = 0;
    require(tuttiCommInitAll(&comm, 1, &device));
    {
        World world(one_gpu, large, 20'000);  // for its memory and streams
        float* const in = static_cast<float*>(world.memory(0, 0));
        float* const out = static_cast<float*>(world.memory(1, 0));
        float* const scalar = static_cast<float*>(world.memory(2, 0));
        cudaStream_t const stream = world.stream(0, 0);
        const Op op(scalar, tuttiScalarDevice, comm);
        const auto all = [&] {
            require(tuttiAllReduce(in, in, large, tuttiFloat32, tuttiSum, comm, stream));
            require(tuttiAllReduce(in, out, large / 2, tuttiFloat32, tuttiMax, comm, stream));
            require(tuttiAllReduce(in + large / 2, out + large / 2, large / 2, tuttiFloat32, op.op, comm, stream));
        };
        std::vector<float> values(large);
        cudaGraphExec_t const graph = captured(stream, all);
        for (int round = 0; round < 4; ++round) {
            std::iota(values.begin(), values.end(), static_cast<float>(round));
            upload(in, values);
            upload(scalar, std::vector<float>(1, static_cast<float>(round + 2)));
            if (round == 0) all();
            if (round != 0) require(cudaGraphLaunch(graph, stream));
            require(cudaStreamSynchronize(stream));
            CHECK(downloaded<float>(in, large) == values);
            for (std::size_t i = large / 2; i < large; ++i) values[i] *= static_cast<float>(round + 2);
            CHECK(downloaded<float>(out, large) == values);
        }
        require(cudaGraphExecDestroy(graph));
    }
    require(tuttiCommDestroy(comm));
}

TEST_CASE("a graph of collectives is replayed with other inputs, and another scalar") {
    const std::size_t count = GENERATE(small, large);  // of an all-reduce; a multiple of ranks
    CAPTURE(count);
    World world(one_gpu, count, 20'000);
    Memory scalar(Kind::malloc, sizeof(float));
    const Op first(scalar.at(), tuttiScalarDevice, world.comm(0)),
        second(scalar.at(), tuttiScalarDevice, world.comm(1));
    const auto at = [&](std::size_t lane, std::size_t r) { return static_cast<float*>(world.memory(lane, r)); };
    const std::size_t part = count / ranks;
    const std::size_t graph = world.captured(0, [&] {
        const auto each = [&](auto call) {
            in_group([&](std::size_t r) { return call(r, world.comm(r), world.stream(0, r)); });
        };
        each([&](std::size_t r, tuttiComm_t comm, cudaStream_t stream) {  // lane 1: sums of scalar * lane 0
            return tuttiAllReduce(at(0, r), at(1, r), count, tuttiFloat32, r == 0 ? first.op : second.op, comm, stream);
        });
        each([&](std::size_t r, tuttiComm_t comm, cudaStream_t stream) {  // twice that, each rank its part
            return tuttiReduceScatter(at(1, r), at(1, r) + r * part, part, tuttiFloat32, tuttiSum, comm, stream);
        });
        each([&](std::size_t r, tuttiComm_t comm, cudaStream_t stream) {
            return tuttiAllGather(at(1, r) + r * part, at(1, r), part, tuttiFloat32, comm, stream);
        });
        each([&](std::size_t r, tuttiComm_t comm, cudaStream_t stream) {
            return tuttiBroadcast(at(0, r), at(2, r), count, tuttiFloat32, 1, comm, stream);
        });
    });
    for (int round = 0; round < 3; ++round) {
        const auto value = [&](std::size_t r, std::size_t i) {
            return static_cast<float>(i % 101 + r * 7 + static_cast<std::size_t>(round));
        };
        std::vector<float> in(count), sum(count), root(count);
        for (std::size_t r = 0; r < ranks; ++r) {
            for (std::size_t i = 0; i < count; ++i) in[i] = value(r, i);
            upload(at(0, r), in);
        }
        upload(scalar.at(), std::vector<float>(1, static_cast<float>(round + 1)));
        world.launch(graph, 0);
        synchronize(world);
        for (std::size_t i = 0; i < count; ++i) {
            sum[i] = 2 * static_cast<float>(round + 1) * (value(0, i) + value(1, i));
            root[i] = value(1, i);
        }
        for (std::size_t r = 0; r < ranks; ++r) {
            CHECK(downloaded<float>(at(1, r), count) == sum);
            CHECK(downloaded<float>(at(2, r), count) == root);
        }
    }
}
