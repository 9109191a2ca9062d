// Two ranks that share a GPU and are processes of their own: what they lend each other, windows, and a killed one
// (test-one-gpu).
#include "processes.hpp"

using namespace tutti::on_gpu;

namespace {

constexpr const char* hidden_name = "a rank in a process of its own";
constexpr unsigned seconds = 60;  // that a process may take

/// All-reduces in memory that comes and goes: plain, of a pool, registered, of the library. CUDA leaves undefined what
/// becomes of memory that is freed while another process has it open.
void lend() {
    constexpr std::size_t count = 40'000, bytes = count * sizeof(int);
    Rank self;
    int round = 0;
    const auto calls = [&](void* in, void* out) {
        for (int times = 0; times < 2; ++times)
            CHECK(self.adds_up(static_cast<int*>(in), static_cast<int*>(out), count, round++));
    };
    for (const bool pool : {false, true}) {
        std::array<void*, 2> memory{};
        for (void*& m : memory) require(pool ? cudaMallocAsync(&m, bytes, self.stream) : cudaMalloc(&m, bytes));
        calls(memory[0], memory[1]);
        for (void* m : memory) require(pool ? cudaFreeAsync(m, self.stream) : cudaFree(m));
    }
    for (int times = 0; times < 2; ++times) {  // perhaps at the same addresses
        std::array<void*, 2> memory{}, handles{};
        for (std::size_t k = 0; k < 2; ++k) {
            require(cudaMalloc(&memory[k], bytes));
            require(tuttiCommRegister(self.comm, memory[k], bytes, &handles[k]));
        }
        calls(memory[0], memory[1]);
        for (std::size_t k = 0; k < 2; ++k) {
            require(tuttiCommDeregister(self.comm, handles[k]));
            require(cudaFree(memory[k]));
        }
        self.meet();
    }
    for (int times = 0; times < 2; ++times) {
        std::array<void*, 2> memory{};
        for (void*& m : memory) require(tuttiMemAllocDevice(&m, bytes, 0));
        calls(memory[0], memory[1]);
        for (void* m : memory) require(tuttiMemFree(m));
    }
}

/// Collectives in windows that all ranks have promised to use, and beside them after their end.
void keep_promise() {
    constexpr std::size_t most = 300'000;
    Rank self(2);
    void* memory = nullptr;
    require(cudaMalloc(&memory, 2 * most * sizeof(int)));
    int *const in = static_cast<int*>(memory), *const out = in + most;
    tuttiWindow_t window = nullptr;
    require(tuttiCommWindowRegister(self.comm, memory, 2 * most * sizeof(int), &window, TUTTI_WIN_COLL_SYMMETRIC));
    CHECK(self.adds_up(in, out, most, 1));
    CHECK(self.adds_up(in, out, 10, 2));
    cudaGraphExec_t const graph = self.captured(in, out, most / 2);
    for (int round = 3; round < 5; ++round) CHECK(self.adds_up(in, out, most / 2, round, graph));
    require(cudaGraphExecDestroy(graph));
    constexpr std::size_t row = 50'000;
    std::vector<int> rows(ranks * row);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = self.rank * 10 + static_cast<int>(i / row);
    self.upload(in, rows);
    require(tuttiAlltoAll(in, out, row, tuttiInt32, self.comm, self.stream));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int>(i / row) * 10 + self.rank;
    CHECK(self.downloaded(out, rows.size()) == rows);
    require(tuttiCommWindowDeregister(self.comm, window));
    self.meet();
    CHECK(self.adds_up(in, out, most, 5));
    require(cudaFree(memory));
}

/// Collectives that copy engines run, in memory of cudaMalloc and of the library.
void copy() {
    constexpr std::size_t row = 50'000, all = ranks * row;
    Rank self(TUTTI_UNDEF_INT, 0, TUTTI_CTA_POLICY_ZERO);
    for (const bool library : {false, true}) {
        void* memory = nullptr;
        if (library)
            require(tuttiMemAllocDevice(&memory, 2 * all * sizeof(int), 0));
        else
            require(cudaMalloc(&memory, 2 * all * sizeof(int)));
        int *const in = static_cast<int*>(memory), *const out = in + all;
        tuttiWindow_t window = nullptr;
        require(tuttiCommWindowRegister(self.comm, memory, 2 * all * sizeof(int), &window, TUTTI_WIN_COLL_SYMMETRIC));
        const auto filled = [&](auto&& value) {
            std::vector<int> rows(all);
            for (std::size_t i = 0; i < all; ++i)
                rows[i] = value(static_cast<int>(i / row)) + static_cast<int>(i % row % 7);
            return rows;
        };
        self.upload(in, filled([&](int to) { return self.rank * 100 + to * 10; }));
        require(tuttiAlltoAll(in, out, row, tuttiInt32, self.comm, self.stream));
        CHECK((self.downloaded(out, all) == filled([&](int from) { return from * 100 + self.rank * 10; })));
        for (int times = 0; times < 2; ++times) {
            const int* const sent = times == 0 ? in : out + static_cast<std::size_t>(self.rank) * row;
            require(
                cudaMemcpyAsync(const_cast<int*>(sent), in, row * sizeof(int), cudaMemcpyDeviceToDevice, self.stream));
            require(tuttiAllGather(sent, out, row, tuttiInt32, self.comm, self.stream));
            CHECK((self.downloaded(out, all) == filled([](int from) { return from * 100; })));
        }
        require(tuttiCommWindowDeregister(self.comm, window));
        self.meet();
        if (library)
            require(tuttiMemFree(memory));
        else
            require(cudaFree(memory));
    }
    tuttiResult_t error = tuttiSuccess;
    require(tuttiCommGetAsyncError(self.comm, &error));
    CHECK(error == tuttiSuccess);
}

/// Rank 1 passes a buffer that is not in its window.
void break_promise() {
    constexpr std::size_t count = 300'000, bytes = count * sizeof(int);
    Rank self(2);
    std::array<void*, 2> memory{};
    for (void*& m : memory) require(cudaMalloc(&m, bytes));
    tuttiWindow_t window = nullptr;
    require(tuttiCommWindowRegister(self.comm, memory[0], bytes, &window, TUTTI_WIN_COLL_SYMMETRIC));
    void* const mine = memory[self.rank == 1 ? 1 : 0];
    tuttiResult_t result = tuttiAllReduce(mine, mine, count, tuttiInt32, tuttiSum, self.comm, self.stream);
    if (result == tuttiSuccess) result = await_error(self.comm);
    CHECK(result == tuttiInvalidUsage);
    CHECK(says("TUTTI_WIN_COLL_SYMMETRIC on all ranks", self.comm));
    self.synchronize();
    tuttiCommWindowDeregister(self.comm, window);
    require(tuttiCommDestroy(std::exchange(self.comm, nullptr)));
    for (void* m : memory) require(cudaFree(m));
    CHECK(cudaGetLastError() == cudaSuccess);
}

/// Windows that come and go; one of a pool's memory is refused.
void put() {
    constexpr std::size_t half = 50'000;
    Rank self;
    const int other = 1 - self.rank;
    const auto signal = [&](int number) { require(tuttiSignal(other, number, 0, 0, self.comm, self.stream)); };
    const auto wait = [&](int number) {
        const tuttiWaitSignalDesc_t one{1, other, number, 0};
        require(tuttiWaitSignal(1, &one, self.comm, self.stream));
    };
    for (int round = 0; round < 3; ++round) {
        std::array<void*, 2> memory{};
        tuttiWindow_t window = nullptr;
        const bool library = round == 2;
        for (void*& m : memory)
            if (library)
                require(tuttiMemAllocDevice(&m, 2 * half * sizeof(int), 0));
            else
                require(cudaMalloc(&m, 2 * half * sizeof(int)));
        require(tuttiCommWindowRegister(self.comm, memory[0], 2 * half * sizeof(int), &window, TUTTI_WIN_DEFAULT));
        const auto values = [&](int of) {
            std::vector<int> out(half);
            for (std::size_t i = 0; i < half; ++i) out[i] = static_cast<int>(i) * 3 + of * 7 + round;
            return out;
        };
        int* const data = static_cast<int*>(memory[1]);
        self.upload(data, values(self.rank));
        require(
            tuttiPutSignal(data, half, tuttiInt32, other, window, half * sizeof(int), 0, 0, 0, self.comm, self.stream));
        require(
            tuttiGet(data + half, half, tuttiInt32, other, window, half * sizeof(int), 0, 0, self.comm, self.stream));
        wait(0);
        CHECK(self.downloaded(static_cast<int*>(memory[0]) + half, half) == values(other));
        CHECK(self.downloaded(data + half, half) == values(self.rank));
        signal(6);  // that may be closed
        wait(6);
        self.synchronize();
        require(tuttiCommWindowDeregister(self.comm, window));
        self.meet();
        for (void* m : memory)
            if (library)
                require(tuttiMemFree(m));
            else
                require(cudaFree(m));
    }
    void* memory = nullptr;
    tuttiWindow_t none = nullptr;
    require(self.rank == 1 ? cudaMallocAsync(&memory, 4096, self.stream) : cudaMalloc(&memory, 4096));
    self.synchronize();
    CHECK(tuttiCommWindowRegister(self.comm, memory, 4096, &none, TUTTI_WIN_DEFAULT) == tuttiInvalidArgument);
    CHECK(says("rank 1: other "));
    CHECK(says("take memory of cudaMalloc"));
    require(self.rank == 1 ? cudaFreeAsync(memory, self.stream) : cudaFree(memory));
    self.synchronize();
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

/// Rank 1 dies while rank 0's kernel waits for it.
void outlive() {
    constexpr std::size_t count = 40'000;
    Rank self;
    void* memory = nullptr;
    require(cudaMalloc(&memory, count * sizeof(int)));
    CHECK(self.adds_up(static_cast<int*>(memory), static_cast<int*>(memory), count, 0));
    if (self.rank == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        raise(SIGKILL);
    }
    require(tuttiAllReduce(memory, memory, count, tuttiInt32, tuttiSum, self.comm, self.stream));
    CHECK(await_error(self.comm) == tuttiRemoteError);
    CHECK(says("rank 1 (pid ", self.comm));
    CHECK(says("died", self.comm));
    int failed = -1;
    require(tuttiCommGetFailedRank(self.comm, &failed));
    CHECK(failed == 1);
    self.synchronize();
    tuttiComm_t rest = nullptr;
    require(tuttiCommShrink(self.comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_ABORT));
    require(tuttiAllReduce(memory, memory, count, tuttiInt32, tuttiSum, rest, self.stream));
    self.synchronize();
    require(tuttiCommDestroy(rest));
    require(cudaFree(memory));
    World world({0, 0}, 70'000, 20'000);
    world.all_reduce(0);
    world.check(0, 1);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

void check_all(const char* task) {
    end_well(Processes(hidden_name, task));
}

}  // namespace

TEST_CASE(hidden_name, "[.]") {
    const char* const named = std::getenv("TASK");
    const std::string task = named != nullptr ? named : "";
    alarm(seconds);
    if (task == "lend") lend();
    if (task == "keep promise") keep_promise();
    if (task == "break promise") break_promise();
    if (task == "copy") copy();
    if (task == "put") put();
    if (task == "outlive") outlive();
}

TEST_CASE("processes: collectives in memory of every kind, which is freed while peers may have it open") {
    check_all("lend");
}

TEST_CASE("processes: buffers in windows that all ranks have promised to use, or one has not") {
    check_all("keep promise");
    check_all("break promise");
}

TEST_CASE("processes: copy engines copy out of the other's window") {
    check_all("copy");
}

TEST_CASE("processes: ranks put to windows and get from them") {
    check_all("put");
}

TEST_CASE("processes: a rank that is killed in mid-call is named, and the other goes on") {
    Processes processes(hidden_name, "outlive");
    CHECK(WTERMSIG(processes.wait(1)) == SIGKILL);
    CHECK(processes.wait(0) == 0);
}
