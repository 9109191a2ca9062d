// Ranks on GPUs in processes of their own: memory by handles, messages through slots and lines, by reference, or
// through host memory.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/interfaces.hpp"
#include "gpu/arena.hpp"
#include "gpu/processes.hpp"
#include "gpu/world.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/emulated_gpus.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using harness::Case;

namespace {

void run_collectives(Self& self) {
    for (Case::What what : {Case::What::all_reduce, Case::What::reduce_scatter, Case::What::all_gather,
                            Case::What::broadcast, Case::What::reduce})
        for (std::size_t count : {1, 1001, 70'003}) {
            if (harness::sanitized && count > 2000 && self.where != "one GPU") continue;
            Case c{what, count, tuttiFloat32, tuttiSum, 1};
            c.gpus = self.on_cpu ? nullptr : &self.gpus;
            c.device = self.device;
            harness::run_case(c, self.comm, self.rank, self.ranks, self.stream);
        }
}

/// Whether a message in this rank's arena says where its payload is, instead of carrying it.
bool got_references(Self& self) {
    const gpu::Layout layout{gpu::Places::seats(self.ranks)};
    const std::byte* const arena = self.gpus.find_allocation(layout.size());
    for (int sender = 0; sender < self.ranks; ++sender)
        for (int channel = 0; channel < gpu::collective_channels; ++channel)
            for (const Cell& cell : reinterpret_cast<const Fifo*>(arena + layout.fifo(sender, channel))->cells)
                if (cell.kind == Kind::reference || cell.kind == Kind::landed) return true;
    return false;
}

/// All-reduces of buffers that come and go: at the same address as others, from pools, in a graph. The GPUs end a
/// process that frees what another one has open.
void lend(Self& self) {
    constexpr std::size_t count = 40'000, bytes = count * sizeof(float);
    float *in = nullptr, *out = nullptr;
    int calls = 0;
    enum class From { user, pool, library };
    struct Registered {
        void *memory = nullptr, *handle = nullptr;
        From from = From::user;
    } registered[2];
    const auto renew = [&](From from, bool registers) {
        for (Registered& r : registered) {
            if (r.handle != nullptr) harness::must_succeed(tuttiCommDeregister(self.comm, r.handle), "deregister");
            if (r.from == From::library)
                harness::must_succeed(tuttiMemFree(r.memory), "free");
            else
                self.gpus.free(self.device, static_cast<std::byte*>(r.memory));
            r = {.from = from};
            if (from == From::library)
                harness::must_succeed(tuttiMemAllocDevice(&r.memory, bytes, self.device), "memory");
            else
                r.memory = from == From::pool ? self.gpus.allocate_from_pool(self.device, bytes)
                                              : self.gpus.allocate(self.device, bytes);
            if (registers) harness::must_succeed(tuttiCommRegister(self.comm, r.memory, bytes, &r.handle), "register");
        }
        in = static_cast<float*>(registered[0].memory), out = static_cast<float*>(registered[1].memory);
    };
    const auto enqueue = [&] {
        harness::must_succeed(tuttiAllReduce(in, out, count, tuttiFloat32, tuttiSum, self.comm, self.stream),
                              "all-reduce");
    };
    const auto fill = [&] {
        ++calls;
        for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>((i + 1) % 100 * (self.rank + 1) + calls);
    };
    const auto check = [&] {
        self.gpus.synchronize_stream(self.stream);
        const int ranks = self.ranks, weights = ranks * (ranks + 1) / 2;
        for (std::size_t i = 0; i < count; ++i)
            if (out[i] != static_cast<float>((i + 1) % 100 * weights + calls * ranks)) _exit(44);
    };
    const auto call = [&](int times) {
        for (int i = 0; i < times; ++i) fill(), enqueue(), check();
    };
    renew(From::pool, true);
    call(4);
    renew(From::user, false);
    call(4);
    if (got_references(self)) _exit(45);
    if (self.task == "lend library") renew(From::library, false);
    for (int round = 0; round < 3; ++round) {
        if (self.task == "lend") renew(From::user, true);
        if (self.task == "lend library") renew(From::library, false);
        call(4);
    }
    if (!got_references(self)) _exit(46);

    fill();
    self.gpus.begin_capture(self.stream);
    enqueue();
    const auto graph = self.gpus.end_capture(self.stream);
    for (int replays = 0; replays < 2; ++replays) {
        self.gpus.replay(graph, self.stream);
        check();
        fill();
    }

    // What is still registered is deregistered.
    harness::must_succeed(tuttiCommDestroy(std::exchange(self.comm, nullptr)), "destroy");
    for (Registered& r : registered)
        if (r.from == From::library)
            harness::must_succeed(tuttiMemFree(r.memory), "free");
        else
            self.gpus.free(self.device, static_cast<std::byte*>(r.memory));
}

/// The longest message in this rank's arena that says where its payload is.
std::size_t longest_reference(Self& self) {
    const gpu::Layout layout{gpu::Places::seats(self.ranks)};
    const std::byte* const arena = self.gpus.find_allocation(layout.size());
    std::size_t longest = 0;
    for (int sender = 0; sender < self.ranks; ++sender)
        for (int channel = 0; channel < gpu::collective_channels; ++channel)
            for (const Cell& cell : reinterpret_cast<const Fifo*>(arena + layout.fifo(sender, channel))->cells)
                if (cell.kind == Kind::reference || cell.kind == Kind::landed)
                    longest = std::max<std::size_t>(longest, cell.bytes);
    return longest;
}

/// Buffers in windows in which all ranks have promised to have them: collectives refer to long parts of them at once,
/// from the first call on and in graphs. Outside of them, or after their end, messages fit into slots as always.
void keep_promise(Self& self) {
    constexpr std::size_t most = 600'000, before = 64;
    const auto all = static_cast<std::size_t>(self.ranks);
    int* const memory = reinterpret_cast<int*>(self.gpus.allocate(self.device, (2 * most + before) * sizeof(int)));
    int *const in = memory + before, *const out = in + most;
    tuttiWindow_t window = nullptr;
    harness::must_succeed(tuttiCommWindowRegister(self.comm, in, 2 * most * sizeof(int), &window,
                                                  TUTTI_WIN_BEST_EFFORT | TUTTI_WIN_COLL_SYMMETRIC),
                          "window");
    const auto fill = [&](std::size_t count, int salt) {
        for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<int>(i % 1009) + self.rank * salt;
    };
    const auto all_reduce = [&](std::size_t count) {
        harness::must_succeed(tuttiAllReduce(in, out, count, tuttiInt32, tuttiSum, self.comm, self.stream),
                              "all-reduce");
    };
    const auto check = [&](std::size_t count, int salt) {
        self.gpus.synchronize_stream(self.stream);
        for (std::size_t i = 0; i < count; ++i)
            if (out[i] != static_cast<int>(i % 1009) * self.ranks + salt * self.ranks * (self.ranks - 1) / 2) _exit(44);
    };
    const auto longest_so_far = [&] {  // no rank goes on before all have looked
        const std::size_t longest = longest_reference(self);
        all_reduce(1);
        self.gpus.synchronize_stream(self.stream);
        return longest;
    };
    fill(most / 2, 7);
    all_reduce(most / 2);
    check(most / 2, 7);
    const std::size_t in_call = longest_so_far();
    if (in_call <= gpu::slot_bytes_of(self.ranks)) _exit(45);
    self.gpus.begin_capture(self.stream);
    all_reduce(most);
    const auto graph = self.gpus.end_capture(self.stream);
    for (int replays = 0; replays < 2; ++replays) {
        fill(most, replays);
        self.gpus.replay(graph, self.stream);
        check(most, replays);
    }
    if (longest_so_far() <= in_call) _exit(46);
    for (std::size_t r = 0; r < all; ++r) std::fill_n(in + r * 100'000, 100'000, self.rank * 10 + static_cast<int>(r));
    harness::must_succeed(tuttiAlltoAll(in, out, 100'000, tuttiInt32, self.comm, self.stream), "all-to-all");
    self.gpus.synchronize_stream(self.stream);
    for (std::size_t i = 0; i < 100'000 * all; ++i)
        if (out[i] != static_cast<int>(i / 100'000) * 10 + self.rank) _exit(47);
    harness::must_succeed(tuttiAllGather(in, out, 200'000, tuttiInt32, self.comm, self.stream), "all-gather");
    harness::must_succeed(tuttiReduceScatter(out, in, 200'000, tuttiInt32, tuttiMax, self.comm, self.stream),
                          "reduce-scatter");
    self.gpus.synchronize_stream(self.stream);
    for (std::size_t i = 0; i < 200'000; ++i)
        if (in[i] != self.rank * 10 + static_cast<int>(i / 100'000)) _exit(48);
    harness::must_succeed(tuttiCommWindowDeregister(self.comm, window), "deregister");
    fill(most, 3);
    all_reduce(most);
    check(most, 3);
    self.gpus.free(self.device, reinterpret_cast<std::byte*>(memory));
}

/// One rank passes buffers that are not in its window, in a call whose messages are too long for slots.
void break_promise(Self& self) {
    constexpr std::size_t count = 300'000, bytes = count * sizeof(int);
    std::byte* const memory = self.gpus.allocate(self.device, bytes);
    std::byte* const other = self.gpus.allocate(self.device, bytes);
    tuttiWindow_t window = nullptr;
    harness::must_succeed(tuttiCommWindowRegister(self.comm, memory, bytes, &window, TUTTI_WIN_COLL_SYMMETRIC),
                          "window");
    void* const mine = self.rank == 1 ? other : memory;
    tuttiResult_t result = tuttiAllReduce(mine, mine, count, tuttiInt32, tuttiSum, self.comm, self.stream);
    if (result == tuttiSuccess) self.gpus.synchronize_stream(self.stream);
    if (result == tuttiSuccess) result = await_error(self.comm);
    if (result != tuttiInvalidUsage || !harness::mentions(self.comm, {"TUTTI_WIN_COLL_SYMMETRIC on all ranks"}))
        _exit(44);
    tuttiCommWindowDeregister(self.comm, window);
    self.gpus.free(self.device, other);
    tuttiCommDestroy(std::exchange(self.comm, nullptr));
    self.gpus.free(self.device, memory);
}

/// Rows of all ranks in a window, those that this rank sends and those that it receives.
class Rows {
  public:
    Rows(Self& self, std::size_t row)
        : self_(self),
          ranks_(static_cast<std::size_t>(self.ranks)),
          row_(row),
          memory_(self.gpus.allocate(self.device, bytes())) {
        harness::must_succeed(tuttiCommWindowRegister(self.comm, memory_, bytes(), &window_, TUTTI_WIN_COLL_SYMMETRIC),
                              "window");
    }
    ~Rows() {
        if (tuttiCommWindowDeregister(self_.comm, window_) != tuttiSuccess) _exit(70);
        self_.gpus.free(self_.device, memory_);
    }
    Rows(const Rows&) = delete;

    int* in() const { return reinterpret_cast<int*>(memory_); }
    int* out() const { return in() + ranks_ * row_; }
    void fill(int round) const {
        for (std::size_t i = 0; i < ranks_ * row_; ++i)
            in()[i] = self_.rank * 10 + static_cast<int>(i / row_) + round * 100;
    }
    tuttiResult_t all_gather(bool in_place = false) const {
        int* const own = out() + static_cast<std::size_t>(self_.rank) * row_;
        if (in_place) std::copy_n(in(), row_, own);
        return tuttiAllGather(in_place ? own : in(), out(), row_, tuttiInt32, self_.comm, self_.stream);
    }
    tuttiResult_t all_to_all() const { return tuttiAlltoAll(in(), out(), row_, tuttiInt32, self_.comm, self_.stream); }
    void check(bool gathered, int round) const {
        self_.gpus.synchronize_stream(self_.stream);
        for (std::size_t i = 0; i < ranks_ * row_; ++i)
            if (out()[i] != static_cast<int>(i / row_) * 10 + (gathered ? 0 : self_.rank) + round * 100) _exit(71);
    }

  private:
    std::size_t bytes() const { return 2 * ranks_ * row_ * sizeof(int); }
    Self& self_;
    const std::size_t ranks_, row_;
    std::byte* const memory_;
    tuttiWindow_t window_ = nullptr;
};

/// By calls and by a graph; no kernel moves anything.
void copy_around(Self& self) {
    const int launches = self.gpus.launches();
    for (const std::size_t row : {1, 50'000}) {
        const Rows rows(self, row);
        for (const bool in_place : {false, true}) {
            rows.fill(in_place);
            harness::must_succeed(rows.all_gather(in_place), "all-gather");
            rows.check(true, in_place);
        }
        self.gpus.begin_capture(self.stream);
        harness::must_succeed(rows.all_to_all(), "all-to-all");
        const auto graph = self.gpus.end_capture(self.stream);
        for (int round = 2; round < 5; ++round) {
            rows.fill(round);
            if (round == 4)
                harness::must_succeed(rows.all_to_all(), "all-to-all");
            else
                self.gpus.replay(graph, self.stream);
            rows.check(false, round);
        }
    }
    if (self.gpus.launches() != launches) _exit(72);
}

/// Rank 1 gives up, and takes its memory back, while rank 0's stream has not come to copies of it. They run all the
/// same, and the memory is there until they have ended.
void copy_late(Self& self) {
    const Rows rows(self, 1000);
    std::atomic<bool> held{true};
    const auto hold = [](void* flag) {
        while (static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
    };
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;  // on CPUs
    tuttiComm_t hosts = nullptr;
    harness::must_succeed(tuttiCommSplit(self.comm, 0, self.rank, &hosts, &config), "split");
    if (self.rank == 0) self.gpus.call(self.device, hold, &held, self.stream);
    harness::must_succeed(rows.all_gather(), "all-gather");
    harness::must_succeed(tuttiBarrier(hosts, nullptr), "barrier");
    harness::must_succeed(tuttiCommDestroy(hosts), "destroy");
    if (self.rank == 1) {
        harness::must_succeed(tuttiCommAbort(self.comm), "abort");
    } else {
        if (await_error(self.comm) != tuttiRemoteError) _exit(73);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the memory would be closed
        held = false;
        self.gpus.synchronize_stream(self.stream);
        if (!harness::mentions(self.comm, {"rank 1 aborted"})) _exit(74);
    }
}

/// Two communicators, each of whose kernels fills a GPU. On rank 0 the first one's stream comes to its kernel late: on
/// rank 1 that kernel leaves the second one no room, and here the second one's would leave it none.
void keep_order(Self& self, bool as_graphs) {
    constexpr std::size_t count = 100'000;
    tuttiComm_t comms[] = {self.comm, nullptr};
    void* streams[] = {self.stream, self.gpus.make_stream(self.device)};
    harness::must_succeed(tuttiCommSplit(self.comm, 0, self.rank, &comms[1], nullptr), "split");
    int* data[2];
    harness::EmulatedGpus::Graph graphs[2];
    const auto all_reduce = [&](int which) {
        harness::must_succeed(
            tuttiAllReduce(data[which], data[which], count, tuttiInt32, tuttiSum, comms[which], streams[which]),
            "all-reduce");
    };
    for (int which : {0, 1}) {
        data[which] = reinterpret_cast<int*>(self.gpus.allocate(self.device, count * sizeof(int)));
        std::fill_n(data[which], count, self.rank + which + 1);
        if (!as_graphs) continue;
        self.gpus.begin_capture(streams[which]);
        all_reduce(which);
        graphs[which] = self.gpus.end_capture(streams[which]);
    }
    std::atomic<bool> other_is_there{false};
    const auto late = [](void* flag) {
        while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the other one's kernel would begin
    };
    const auto there = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); };
    if (self.rank == 0) self.gpus.call(self.device, late, &other_is_there, streams[0]);
    for (int which : {0, 1}) {
        if (which == 1 && self.rank == 0) self.gpus.call(self.device, there, &other_is_there, streams[1]);
        as_graphs ? self.gpus.replay(graphs[which], streams[which]) : all_reduce(which);
    }
    for (int which : {0, 1}) {
        self.gpus.synchronize_stream(streams[which]);
        for (std::size_t i = 0; i < count; i += 13)
            if (data[which][i] != 3 + 2 * which) _exit(63 + which);
    }
    harness::must_succeed(tuttiCommDestroy(comms[1]), "destroy");
    self.gpus.destroy_stream(streams[1]);
}

/// Threads, each with the two ranks of a communicator, which every other one has on the same GPUs in the other order.
void keep_order_of_threads(Self& self) {
    alarm(60);  // if they wait for each other, they do so for ever
    constexpr std::size_t threads = 4;
    tuttiComm_t comms[threads][2] = {};
    for (std::size_t t = 0; t < threads; ++t) {
        const int first = t % 2, devices[] = {first, 1 - first};
        harness::must_succeed(tuttiCommInitAll(comms[t], 2, devices), "init");
    }
    harness::run(threads, [&](int thread) {
        const int first = thread % 2;
        void* streams[2];
        int* data[2];
        for (int r : {0, 1}) {
            const int device = r == 0 ? first : 1 - first;
            streams[r] = self.gpus.make_stream(device);
            data[r] = reinterpret_cast<int*>(self.gpus.allocate(device, sizeof(int)));
            *data[r] = 1;
        }
        constexpr int calls = harness::sanitized ? 300 : 3000;
        for (int call = 0; call < calls; ++call) {
            harness::must_succeed(tuttiGroupStart(), "start");
            for (int r : {0, 1})
                harness::must_succeed(tuttiAllReduce(data[r], data[r], 1, tuttiInt32, tuttiMax,
                                                     comms[static_cast<std::size_t>(thread)][r], streams[r]),
                                      "all-reduce");
            harness::must_succeed(tuttiGroupEnd(), "end");
        }
        for (void* stream : streams) {
            self.gpus.synchronize_stream(stream);
            self.gpus.destroy_stream(stream);
        }
    });
    for (const auto& its : comms)
        for (tuttiComm_t comm : its) harness::must_succeed(tuttiCommDestroy(comm), "destroy");
}

/// All-reduces, or gathers by copy engines, for ever, until the library says that rank 1 has died, which it does after
/// a while.
void outlive_rank_1(Self& self) {
    std::vector<std::byte> host(4096);
    std::byte* const data = self.on_cpu ? host.data() : self.gpus.allocate(self.device, 4096);
    std::optional<Rows> rows;
    if (self.task == "copies outlive") rows.emplace(self, 1000);
    for (int calls = 0;; ++calls) {
        if (self.rank == 1 && calls == 20) raise(SIGKILL);
        tuttiResult_t result = rows ? rows->all_gather()
                                    : tuttiAllReduce(data, data, 1024, tuttiFloat32, tuttiMax, self.comm, self.stream);
        if (!self.on_cpu) self.gpus.synchronize_stream(self.stream);
        if (result == tuttiSuccess) tuttiCommGetAsyncError(self.comm, &result);
        if (result == tuttiSuccess) continue;
        const std::string said = tuttiGetLastError(self.comm);
        _exit(result == tuttiRemoteError && said.find("rank 1 (pid ") != std::string::npos &&
                      said.find("died") != std::string::npos
                  ? 42
                  : 43);
    }
}

/// Rank 1 stops after its first call. What rank 0 is told of it has to come from what rank 0 can see by itself.
void explain_without_rank_1(Self& self) {
    std::byte* const data = self.gpus.allocate(self.device, 4096);
    const auto all_reduce = [&] {
        harness::must_succeed(tuttiAllReduce(data, data, 1024, tuttiFloat32, tuttiMax, self.comm, self.stream),
                              "all-reduce");
        self.gpus.synchronize_stream(self.stream);
    };
    all_reduce();
    if (self.rank == 1) raise(SIGSTOP);
    all_reduce();
    tuttiResult_t result = tuttiSuccess;
    if (result == tuttiSuccess) result = await_error(self.comm);
    const bool explained =
        harness::mentions(self.comm, {"rank 1", "has called 1 collectives, the last one all_reduce"});
    _exit(result != tuttiTimeout ? 43 : explained ? 42 : 44);
}

/// A window that begins somewhere in an allocation of this rank's, which the window's end frees.
class OwnWindow {
  public:
    static constexpr std::size_t bytes = 200'000, before = 48;
    explicit OwnWindow(Self& self) : self_(self), memory_(self.gpus.allocate(self.device, before + bytes)) {
        harness::must_succeed(tuttiCommWindowRegister(self.comm, data(), bytes, &window_, TUTTI_WIN_DEFAULT), "window");
    }
    ~OwnWindow() {
        if (tuttiCommWindowDeregister(self_.comm, window_) != tuttiSuccess) _exit(47);
        self_.gpus.free(self_.device, memory_);
    }
    OwnWindow(const OwnWindow&) = delete;
    std::byte* data() const { return memory_ + before; }
    tuttiResult_t put(std::size_t count, int peer, std::size_t offset) const {
        return tuttiPutSignal(data(), count, tuttiUint8, peer, window_, offset, 0, 0, 0, self_.comm, self_.stream);
    }
    tuttiResult_t get(std::byte* to, std::size_t count, int peer, std::size_t offset) const {
        return tuttiGet(to, count, tuttiUint8, peer, window_, offset, 0, 0, self_.comm, self_.stream);
    }
    tuttiResult_t wait(int peer, int signal = 0) const {
        const tuttiWaitSignalDesc_t one{1, peer, signal, 0};
        return tuttiWaitSignal(1, &one, self_.comm, self_.stream);
    }

  private:
    Self& self_;
    std::byte* const memory_;
    tuttiWindow_t window_ = nullptr;
};

/// Windows come and go; every rank puts to the one after it.
void put_around(Self& self) {
    constexpr std::size_t half = OwnWindow::bytes / 2;
    const int next = (self.rank + 1) % self.ranks, before = (self.rank + self.ranks - 1) % self.ranks;
    const std::size_t allocations = self.gpus.allocations();
    for (int round = 0; round < 3; ++round) {
        const OwnWindow window(self);
        for (std::size_t i = 0; i < half; ++i)
            window.data()[i] = static_cast<std::byte>(i % 199 + static_cast<std::size_t>(self.rank * 10 + round));
        harness::must_succeed(window.put(half - 5, next, half), "put");
        harness::must_succeed(window.wait(before), "wait");
        self.gpus.synchronize_stream(self.stream);
        for (std::size_t i = 0; i < half - 5; ++i)
            if (window.data()[half + i] !=
                static_cast<std::byte>(i % 199 + static_cast<std::size_t>(before * 10 + round)))
                _exit(44);
        if (window.data()[2 * half - 5] != std::byte{0}) _exit(45);
        std::byte* const got = self.gpus.allocate(self.device, half);
        harness::must_succeed(window.get(got, half - 5, next, half), "get");  // what was put there
        self.gpus.synchronize_stream(self.stream);
        if (std::memcmp(got, window.data(), half - 5) != 0) _exit(62);
        harness::must_succeed(tuttiSignal(next, 6, 0, 0, self.comm, self.stream), "signal");  // that may be closed
        harness::must_succeed(window.wait(before, 6), "wait");
        self.gpus.synchronize_stream(self.stream);
        self.gpus.free(self.device, got);
    }
    self.await_allocations(allocations, 46);  // what others had opened is closed
    std::byte* const memory =
        self.rank == 1 ? self.gpus.allocate_from_pool(self.device, 64) : self.gpus.allocate(self.device, 64);
    tuttiWindow_t none = nullptr;
    const tuttiResult_t result = tuttiCommWindowRegister(self.comm, memory, 64, &none, TUTTI_WIN_DEFAULT);
    if (result != tuttiInvalidArgument ||
        !harness::mentions(nullptr, {"rank 1: other ", "can't reach", "take memory of cudaMalloc"}))
        _exit(48);
    self.await_allocations(allocations + 1, 49);
    self.gpus.free(self.device, memory);
}

/// Rank 1 dies; rank 0 waits for it, and the last one puts to it.
void outlive_rank_1_of_a_window(Self& self) {
    const OwnWindow window(self);
    if (self.rank == 1) {
        harness::must_succeed(window.wait(0), "wait");
        self.gpus.synchronize_stream(self.stream);
        raise(SIGKILL);
    }
    // Rank 2 has its window, too, when rank 1 dies.
    if (self.rank == 2) harness::must_succeed(tuttiSignal(0, 0, 0, 0, self.comm, self.stream), "signal");
    if (self.rank == 0) harness::must_succeed(window.wait(2), "wait");
    if (self.rank == 0) harness::must_succeed(tuttiSignal(1, 0, 0, 0, self.comm, self.stream), "signal");
    tuttiResult_t result = self.rank == 0 ? window.wait(1) : tuttiSuccess;
    while (result == tuttiSuccess) {
        if (self.rank != 0) result = window.put(1000, 1, 0);
        if (result == tuttiSuccess) self.gpus.synchronize_stream(self.stream);
        if (result == tuttiSuccess) tuttiCommGetAsyncError(self.comm, &result);
    }
    if (result != tuttiRemoteError || !harness::mentions(self.comm, {"rank 1 (pid ", "died"})) _exit(43);
}

/// Processes that may not use each other's GPU memory are told what to do, and that works.
void be_contained(Self& self) {
    if (self.through_shm()) return run_collectives(self);
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = self.device;
    tuttiResult_t result = tuttiCommInitEnv(&self.comm, &config);
    const bool alone = self.task == "one contained";
    for (const Deadline until = Clock::now() + std::chrono::seconds(30);
         alone && self.number == 0 && result == tuttiSuccess && Clock::now() < until; std::this_thread::yield())
        tuttiCommGetAsyncError(self.comm, &result);  // a rank may have joined before another gives up
    if (alone && self.number == 1 && result != tuttiUnhandledCudaError) _exit(45);
    // Its own failure, which the end of the other's process can be, or the other's.
    if (result != tuttiUnhandledCudaError && result != tuttiRemoteError) _exit(46);
    if (!harness::mentions(self.comm, {"'s GPU memory", "TUTTI_TRANSPORT=shm"})) _exit(47);
}

int sum_of_ranks(Self& self, tuttiComm_t comm, int rank) {
    int on_host = 0;
    auto* const place = self.on_cpu ? &on_host : reinterpret_cast<int*>(self.gpus.allocate(self.device, 4));
    *place = rank;
    harness::must_succeed(tuttiAllReduce(place, place, 1, tuttiInt32, tuttiSum, comm, self.stream), "all-reduce");
    if (!self.on_cpu) self.gpus.synchronize_stream(self.stream);
    return *place;
}

/// Communicators from one whose ranks are on several hosts.
void split_and_grow(Self& self) {
    tuttiComm_t part = nullptr, grown = nullptr;
    if (sum_of_ranks(self, self.comm, self.rank) != 3) _exit(50);
    harness::must_succeed(tuttiCommSplit(self.comm, self.rank == 0 ? 1 : 0, -self.rank, &part, nullptr), "split");
    if (sum_of_ranks(self, part, self.rank) != (self.rank == 0 ? 0 : 3)) _exit(51);
    harness::must_succeed(tuttiCommDestroy(part), "destroy");
    harness::must_succeed(tuttiCommSuspend(self.comm), "suspend");
    harness::must_succeed(tuttiCommResume(self.comm), "resume");
    if (sum_of_ranks(self, self.comm, self.rank) != 3) _exit(52);
    harness::must_succeed(tuttiCommShrink(self.comm, nullptr, 0, &part, nullptr, TUTTI_SHRINK_DEFAULT), "shrink");
    if (sum_of_ranks(self, part, self.rank) != 3) _exit(53);
    harness::must_succeed(tuttiCommDestroy(part), "destroy");
    tuttiUniqueId id{};
    if (self.rank == 0) harness::must_succeed(tuttiCommGetUniqueId(self.comm, &id), "id");
    std::thread newcomer;
    if (self.rank == 0)
        newcomer = std::thread([&] {
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            tuttiComm_t fourth = nullptr;
            int three = 3;
            harness::must_succeed(tuttiCommGrow(nullptr, 4, &id, 3, &fourth, &config), "a newcomer");
            harness::must_succeed(tuttiAllReduce(&three, &three, 1, tuttiInt32, tuttiSum, fourth, nullptr), "sum");
            if (three != 6) _exit(55);
            harness::must_succeed(tuttiCommDestroy(fourth), "destroy");
        });
    harness::must_succeed(tuttiCommGrow(self.comm, 4, nullptr, -1, &grown, nullptr), "a member");
    if (sum_of_ranks(self, grown, self.rank) != 6) _exit(56);
    if (self.rank == 0) newcomer.join();
    harness::must_succeed(tuttiCommDestroy(grown), "destroy");
}

void check_collectives(const char* where, const char* transport = "") {
    CAPTURE(where, transport);
    Processes ranks(3, "collectives", where, transport);
    for (std::size_t r = 0; r < 3; ++r) CHECK(ranks.wait(r) == 0);
}

void check_outliving(const char* where, const char* transport = "", const char* task = "outlive") {
    CAPTURE(where, transport, task);
    Processes ranks(3, task, where, transport);
    CHECK(WTERMSIG(ranks.wait(1)) == SIGKILL);
    int named = 0;
    for (std::size_t r : {0u, 2u}) {
        const int status = ranks.wait(r);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 42) ++named;
    }
    CHECK(named == 2);
}

}  // namespace

TEST_CASE(hidden_name, "[.]") {
    Self self;
    if (self.task == "collectives") run_collectives(self);
    if (self.task.ends_with("outlive")) outlive_rank_1(self);
    if (self.task == "order") keep_order(self, false), keep_order(self, true);
    if (self.task == "order of threads") keep_order_of_threads(self);
    if (self.task == "explain") explain_without_rank_1(self);
    if (self.task.starts_with("lend")) lend(self);
    if (self.task == "symmetric") keep_promise(self);
    if (self.task == "asymmetric") break_promise(self);
    if (self.task == "put") put_around(self);
    if (self.task == "copies") copy_around(self);
    if (self.task == "copies late") copy_late(self);
    if (self.task.ends_with("contained")) be_contained(self);
    if (self.task == "split and grow") split_and_grow(self);
    if (self.task == "outlive a window") outlive_rank_1_of_a_window(self);
}

TEST_CASE("GPUs: collectives between processes") {
    check_collectives("one GPU");
}

TEST_CASE(
    "GPUs: asking for a communicator's error does not wait for a rank that has stopped, and says what it called") {
    Processes ranks(2, "explain", "joined GPUs");
    const int status = ranks.wait(0);
    ranks.kill(1);
    ranks.wait(1);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 42);
}

TEST_CASE("GPUs: ranks of other processes read and write buffers where they are") {
    for (const char* task : {"lend", "lend library"}) {
        CAPTURE(task);
        Processes ranks(3, task);
        for (std::size_t r = 0; r < 3; ++r) CHECK(ranks.wait(r) == 0);
    }
}

TEST_CASE("GPUs: where all ranks have promised to have buffers in windows, messages refer to long parts of them") {
    for (const char* where : {"one GPU", "joined GPUs"}) {
        CAPTURE(where);
        Processes ranks(3, "symmetric", where);
        for (std::size_t r = 0; r < 3; ++r) CHECK(ranks.wait(r) == 0);
    }
    Processes ranks(2, "asymmetric");
    for (std::size_t r = 0; r < 2; ++r) CHECK(ranks.wait(r) == 0);
}

TEST_CASE("GPUs: kernels of several communicators, and graphs, find room in the order of their launches") {
    Processes ranks(2, "order", "joined GPUs");
    for (std::size_t r = 0; r < 2; ++r) CHECK(ranks.wait(r) == 0);
}

TEST_CASE("GPUs: threads that launch on the same GPUs, in several orders of their ranks, do not wait for each other") {
    Processes ranks(1, "order of threads", "joined GPUs");
    CHECK(ranks.wait(0) == 0);
}

TEST_CASE("GPUs: ranks put to windows of other processes") {
    for (const char* where : {"one GPU", "joined GPUs"}) {
        CAPTURE(where);
        Processes ranks(3, "put", where);
        for (std::size_t r = 0; r < 3; ++r) CHECK(ranks.wait(r) == 0);
    }
}

TEST_CASE("GPUs: processes that can't open each other's memory are told of the way through the host") {
    for (const char* task : {"contained", "one contained"})
        for (const char* transport : {"", "shm"}) {
            CAPTURE(task, transport);
            Processes ranks(2, task, "one GPU", transport);
            for (std::size_t r = 0; r < 2; ++r) CHECK(ranks.wait(r) == 0);
        }
}

TEST_CASE("GPUs on several hosts: communicators are split, suspended, shrunk and grown") {
    if (!bootstrap::rendezvous_interface()) {
        printf("skipped: no network interface but the loopback\n");
        return;
    }
    Processes ranks(3, "split and grow", "hosts");
    for (std::size_t r = 0; r < 3; ++r) CHECK(ranks.wait(r) == 0);
}

TEST_CASE("GPUs: a killed rank ends waits for its signals, and puts to it") {
    Processes ranks(3, "outlive a window", "joined GPUs");
    CHECK(WTERMSIG(ranks.wait(1)) == SIGKILL);
    for (std::size_t r : {0u, 2u}) CHECK(ranks.wait(r) == 0);
}

TEST_CASE("GPUs: survivors of a killed rank name it") {
    check_outliving("one GPU");
    check_outliving("joined GPUs", "", "copies outlive");
}

TEST_CASE("GPUs: copy engines copy out of windows of other processes") {
    for (const char* where : {"one GPU", "joined GPUs"}) {
        CAPTURE(where);
        Processes ranks(3, "copies", where);
        for (std::size_t r = 0; r < 3; ++r) CHECK(ranks.wait(r) == 0);
    }
}

TEST_CASE("GPUs: memory of a rank that gives up is there as long as copies of it may still run") {
    Processes ranks(2, "copies late", "joined GPUs");
    for (std::size_t r = 0; r < 2; ++r) CHECK(ranks.wait(r) == 0);
}

TEST_CASE("GPUs through host memory: collectives between processes, by shared memory, TCP and a network plugin") {
    check_collectives("GPUs");
    check_collectives("CPU");
    check_collectives("CPU", "tcp");
    check_collectives("GPUs", "plugin");
}

TEST_CASE("GPUs through host memory: survivors of a killed rank name it") {
    check_outliving("GPUs");
    check_outliving("CPU");
    check_outliving("GPUs", "tcp");
}
