// Two processes that share a GPU and call with virtual memory of their own making (test-one-gpu): what they lend each
// other, as each rank's log says.
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "expandable.hpp"
#include "processes.hpp"

using namespace tutti::on_gpu;

namespace {

constexpr const char* hidden_name = "a rank with virtual memory";

std::filesystem::path log_of(const std::string& process) {
    return std::filesystem::temp_directory_path() / ("tutti-virtual-memory-" + process);
}
/// How often this process has said so.
std::size_t said(const std::string& what) {
    std::stringstream log;
    log << std::ifstream(log_of(std::to_string(getpid()))).rdbuf();
    std::size_t count = 0;
    for (std::size_t at = log.str().find(what); at != std::string::npos; at = log.str().find(what, at + 1)) ++count;
    return count;
}
/// How many loans all others have opened by now.
std::size_t lent() {
    return said("messages refer to them");
}

class Registered {
  public:
    Registered(const Rank& rank, const Expandable& memory, std::size_t first, std::size_t count) : rank_(rank) {
        require(tuttiCommRegister(rank.comm, memory.at(first), count * memory.piece(), &handle_));
    }
    ~Registered() { require(tuttiCommDeregister(rank_.comm, handle_)); }
    Registered(const Registered&) = delete;

  private:
    const Rank& rank_;
    void* handle_ = nullptr;
};

/// All-reduces whose buffers begin after so many halves of a piece, each as long as a piece. Three: the first lends the
/// memory, others open it at the next one.
void call(const Rank& self, const Expandable& memory, std::size_t in, std::size_t out) {
    static int round = 0;
    for (int times = 0; times < 3; ++times)
        CHECK(self.adds_up(memory.half(in), memory.half(out), memory.piece() / sizeof(int), ++round));
}

/// A range of several allocations grows, shrinks, and is mapped again with others.
void grow() {
    Rank self(2);
    Expandable memory(6);
    memory.map(0, 4);
    call(self, memory, 1, 4);
    CHECK(lent() == 0);  // it is not registered
    {
        const Registered first(self, memory, 0, 4);
        call(self, memory, 1, 4);
        CHECK(lent() == 1);
        memory.map(4, 2);
        {
            const Registered more(self, memory, 4, 2);
            call(self, memory, 7, 1);
            CHECK(lent() == 2);  // with the first one
        }
        self.meet();
        memory.unmap(4, 2);
        call(self, memory, 1, 4);
        CHECK(lent() == 2);  // the first one is still lent
    }
    self.meet();
    for (int times = 0; times < 2; ++times) {
        memory.unmap(1, 2);
        memory.map(1, 2);
        {
            const Registered again(self, memory, 0, 4);
            call(self, memory, 1, 4);
            CHECK(lent() == 3 + static_cast<std::size_t>(times));
        }
        self.meet();
    }
    const Registered overlapping(self, memory, 0, 3), other(self, memory, 2, 2);
    call(self, memory, 1, 5);
    // The first range, and both of them for the second buffer. The first one lies there, too, and may need no other.
    const std::size_t before = lent();
    CHECK((before == 5 || before == 6));
    self.meet();
    memory.unmap(1, 1);  // which is still registered
    memory.map(1, 1);
    call(self, memory, 1, 5);
    CHECK((lent() == before + 1 || lent() == before + 2));
    CHECK(said("are copied") == 0);
}

/// Memory that can't be lent goes through slots, and the log says why.
void refuse() {
    Rank self(2);
    Expandable memory(4);
    memory.map(0, 4, false);
    const char* const reason = "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR in its requestedHandleTypes";
    const auto registered = [&] {
        {
            const Registered here(self, memory, 0, 4);
            call(self, memory, 1, 4);
        }
        self.meet();
    };
    registered();
    CHECK(said(reason) == 1);
    memory.unmap(0, 1), memory.unmap(2, 2);
    memory.map(0, 1), memory.map(2, 2);
    registered();
    CHECK(said(reason) == 2);  // the second piece is as it was
    tuttiWindow_t window = nullptr;
    CHECK(tuttiCommWindowRegister(self.comm, memory.at(0), 2 * memory.piece(), &window, TUTTI_WIN_DEFAULT) ==
          tuttiInvalidArgument);
    CHECK(says(reason));
    memory.unmap(1, 1);
    {
        const Registered hole(self, memory, 0, 4);
        CHECK(said("nothing is mapped at") == 1);
    }
    memory.map(1, 1, true, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    {
        const Registered unusable(self, memory, 0, 4);
        CHECK(said("may not read and write") == 1);
    }
    memory.allow(1, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);
    {
        const Registered constant(self, memory, 0, 4);
        CHECK(said("may not read and write") == 2);
    }
    CHECK(lent() == 0);
    memory.allow(1, 1);
    registered();
    CHECK(lent() == 1);

    rlimit limit{};
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    {
        const rlimit none{0, limit.rlim_max};
        const Registered here(self, memory, 0, 4);
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        call(self, memory, 1, 4);
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        CHECK(said("ulimit -n") == 1);
    }
    self.meet();
    CHECK(lent() == 1);
    registered();
    CHECK(lent() == 2);
}

/// Windows of several allocations: puts and gets, and collectives if all ranks have promised to use them.
void open_windows() {
    Rank self(2);
    const int other = 1 - self.rank;
    Expandable memory(8);
    memory.map(0, 8);
    const std::size_t piece = memory.piece(), count = piece / sizeof(int);
    const auto values = [&](int of) {
        std::vector<int> out(count);
        for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<int>(i) * 3 + of * 7;
        return out;
    };
    tuttiWindow_t window = nullptr;
    require(tuttiCommWindowRegister(self.comm, memory.at(0), 4 * piece, &window, TUTTI_WIN_COLL_SYMMETRIC));
    self.upload(memory.half(9), values(self.rank));
    require(
        tuttiPutSignal(memory.half(9), count, tuttiInt32, other, window, piece / 2, 0, 0, 0, self.comm, self.stream));
    require(tuttiGet(memory.half(12), count, tuttiInt32, other, window, piece / 2, 0, 0, self.comm, self.stream));
    const tuttiWaitSignalDesc_t one{1, other, 0, 0};
    require(tuttiWaitSignal(1, &one, self.comm, self.stream));
    CHECK(self.downloaded(memory.half(1), count) == values(other));
    CHECK(self.downloaded(memory.half(12), count) == values(self.rank));
    self.meet();
    CHECK(self.adds_up(memory.half(1), memory.half(4), count, 1));
    CHECK(lent() == 1);  // from the first call on
    cudaGraphExec_t const graph = self.captured(memory.half(1), memory.half(4), count);
    for (int round = 2; round < 4; ++round) CHECK(self.adds_up(memory.half(1), memory.half(4), count, round, graph));
    require(cudaGraphExecDestroy(graph));
    require(tuttiCommWindowDeregister(self.comm, window));
    self.meet();
    call(self, memory, 1, 4);
    CHECK(lent() == 1);
}

/// Memory of the library, which is lent without being registered.
void lend_library() {
    constexpr std::size_t count = 300'000;
    Rank self(2);
    for (int times = 0; times < 2; ++times) {
        void* memory = nullptr;
        require(tuttiMemAllocDevice(&memory, 2 * count * sizeof(int), 0));
        int* const in = static_cast<int*>(memory);
        for (int round = 0; round < 3; ++round) CHECK(self.adds_up(in, in + count, count, round));
        CHECK(lent() == 1 + static_cast<std::size_t>(times));
        require(tuttiMemFree(memory));
    }
    // A window whose parts are in memory of two kinds.
    void* memory = nullptr;
    require(self.rank == 0 ? cudaMalloc(&memory, count * sizeof(int)) : cudaSuccess);
    if (self.rank == 1) require(tuttiMemAllocDevice(&memory, count * sizeof(int), 0));
    tuttiWindow_t window = nullptr;
    require(tuttiCommWindowRegister(self.comm, memory, count * sizeof(int), &window, TUTTI_WIN_COLL_SYMMETRIC));
    int* const data = static_cast<int*>(memory);
    CHECK(self.adds_up(data, data, count, 1));
    require(tuttiCommWindowDeregister(self.comm, window));
    self.meet();
    if (self.rank == 0) require(cudaFree(memory));
    if (self.rank == 1) require(tuttiMemFree(memory));
}

void check_all(const char* task) {
    end_well(Processes(hidden_name, task,
                       {"TUTTI_DEBUG=INFO", "TUTTI_DEBUG_FILE=" + log_of("%p").string(),
                        std::string("TUTTI_GPU_VIRTUAL=") + (std::string(task) == "library" ? "1" : "0")}));
}

}  // namespace

TEST_CASE(hidden_name, "[.]") {
    const char* const named = std::getenv("TASK");
    const std::string task = named != nullptr ? named : "";
    alarm(60);
    if (task == "grow") grow();
    if (task == "refuse") refuse();
    if (task == "windows") open_windows();
    if (task == "library") lend_library();
    std::filesystem::remove(log_of(std::to_string(getpid())));
}

TEST_CASE("processes: a registered range of several allocations of virtual memory, which changes, is lent") {
    check_all("grow");
}

TEST_CASE("processes: virtual memory that has no descriptors, or that kernels can't use, is copied") {
    check_all("refuse");
}

TEST_CASE("processes: windows of several allocations of virtual memory") {
    check_all("windows");
}

TEST_CASE("processes: virtual memory of the library is lent") {
    check_all("library");
}
