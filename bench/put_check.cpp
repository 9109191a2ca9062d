// put_check: one-sided operations put what they should where they should, signals come no earlier than the data, and
// gets bring back what was put. Ranks are threads (-t) of processes (tutti-run); those on GPUs share the devices that
// there are. Prints how long a signal takes there and back, and a small get.
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "buffer.hpp"
#include "cuda.hpp"
#include "world.hpp"

namespace {

using perf::expect;

constexpr std::size_t sizes[] = {1, 8, 4097, 65'540, 300'001, 4'000'012};
std::size_t count_up_to(std::size_t most) {
    return static_cast<std::size_t>(std::ranges::upper_bound(sizes, most) - sizes);
}
constexpr std::size_t largest = 4'000'012, slack = 16;

/// Memory that adapters are not given, since it could be remapped.
class SharedPages {
  public:
    explicit SharedPages(std::size_t bytes)
        : bytes_(bytes), base_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
        if (base_ == MAP_FAILED) perf::fail(perf::exit_wrong, "put_check: there is no memory");
    }
    ~SharedPages() { munmap(base_, bytes_); }
    SharedPages(const SharedPages&) = delete;
    void* data() const { return base_; }

  private:
    const std::size_t bytes_;
    void* const base_;
};

/// What rank puts in round number `round`.
std::byte value(int rank, int round, std::size_t i) {
    return static_cast<std::byte>(i * 7 + i / 251 + static_cast<std::size_t>(rank * 31 + round * 13));
}

/// A rank. Its window has a row for every rank, in which only that one writes.
class Rank {
  public:
    Rank(perf::World& world, int thread)
        : world_(world),
          thread_(thread),
          rank_(world.first_rank(thread)),
          comm_(world.join(thread)[0]),
          device_(world.device_of(rank_)),
          stream_(device_ < 0 ? nullptr : perf::cuda::make_stream(device_)),
          window_(row * static_cast<std::size_t>(world.ranks()), true, device_),
          source_(row, true, device_),
          got_(row, true, device_) {
        must(tuttiCommWindowRegister(comm_, window_.data(), window_.size(), &handle_, TUTTI_WIN_DEFAULT));
    }
    ~Rank() {
        settle();
        must(tuttiCommWindowDeregister(comm_, handle_));
        world_.barrier(thread_);
        if (device_ >= 0) perf::cuda::destroy_stream(device_, stream_);
    }
    Rank(const Rank&) = delete;

    /// False, and what is wrong on the standard error, if something is.
    bool run(std::size_t most, int rounds, int turns) {
        int round = 0;
        for (const std::size_t bytes : std::span(sizes).first(count_up_to(most)))
            for (const std::size_t shift : {std::size_t{0}, std::size_t{3}}) put_to_all(bytes, shift, round++);
        if (device_ >= 0) replay(round++);
        ping_pong(rounds);
        time_gets(rounds);
        if (turns > 0 && world_.ranks() > 1) time_ways(turns);
        return good_;
    }

  private:
    static constexpr std::size_t row = largest + slack;

    void must(tuttiResult_t result) const { expect(result, comm_, rank_); }
    void settle() const {
        tuttiResult_t befallen = tuttiSuccess;
        while (device_ >= 0 && befallen == tuttiSuccess && !perf::cuda::idle(device_, stream_))
            must(tuttiCommGetAsyncError(comm_, &befallen));
        must(befallen);
    }
    void write(int round, std::size_t bytes) {
        perf::HostView view(source_, source_.data(), bytes);
        for (std::size_t i = 0; i < bytes; ++i) view.data()[i] = value(rank_, round, i);
        view.push();
    }
    void check(int from, int round, std::size_t bytes, std::size_t shift) {
        perf::HostView view(window_, window_.data() + static_cast<std::size_t>(from) * row + shift, bytes);
        view.pull();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < bytes; ++i) wrong += view.data()[i] != value(from, round, i);
        if (wrong == 0) return;
        good_ = false;
        std::fprintf(stderr, "rank %d: %zu of %zu bytes that rank %d has put are wrong (round %d)\n", rank_, wrong,
                     bytes, from, round);
    }
    /// Leaves nothing right where gets go: the last one may have brought the same.
    void spoil_got(int round, std::size_t bytes) {
        perf::HostView view(got_, got_.data(), bytes);
        for (std::size_t i = 0; i < bytes; ++i) view.data()[i] = ~value(rank_, round, i);
        view.push();
    }
    /// What this rank has put to that one.
    void get(int from, std::size_t bytes, std::size_t shift) {
        must(tuttiGet(got_.data(), bytes, tuttiUint8, from, handle_, static_cast<std::size_t>(rank_) * row + shift, 0,
                      0, comm_, stream_));
    }
    void check_got(int from, int round, std::size_t bytes) {
        perf::HostView view(got_, got_.data(), bytes);
        view.pull();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < bytes; ++i) wrong += view.data()[i] != value(rank_, round, i);
        if (wrong == 0) return;
        good_ = false;
        std::fprintf(stderr, "rank %d: %zu of %zu bytes that it gets from rank %d are wrong (round %d)\n", rank_, wrong,
                     bytes, from, round);
    }
    void put(int to, std::size_t bytes, std::size_t shift) {
        must(tuttiPutSignal(source_.data(), bytes, tuttiUint8, to, handle_,
                            static_cast<std::size_t>(rank_) * row + shift, 0, 0, 0, comm_, stream_));
    }
    void wait(const std::vector<tuttiWaitSignalDesc_t>& signals) {
        must(tuttiWaitSignal(static_cast<int>(signals.size()), signals.data(), comm_, stream_));
    }

    /// In one group with the wait for what all others put here. Then gets it back.
    void put_to_all(std::size_t bytes, std::size_t shift, int round) {
        write(round, bytes);
        std::vector<tuttiWaitSignalDesc_t> signals;
        must(tuttiGroupStart());
        for (int peer = 0; peer < world_.ranks(); ++peer) {
            put(peer, bytes, shift);
            signals.push_back({1, peer, 0, 0});
        }
        wait(signals);
        must(tuttiGroupEnd());
        settle();
        for (int peer = 0; peer < world_.ranks(); ++peer) check(peer, round, bytes, shift);
        for (int i = 0; i < world_.ranks(); ++i) {
            const int peer = (rank_ + i) % world_.ranks();
            spoil_got(round, bytes);
            get(peer, bytes, shift);
            settle();
            check_got(peer, round, bytes);
        }
        world_.barrier(thread_);
    }

    /// What is captured once is put, got back and waited for at every replay.
    void replay(int round) {
        constexpr std::size_t bytes = 70'000;
        constexpr int times = 20;
        const int right = (rank_ + 1) % world_.ranks(), left = (rank_ + world_.ranks() - 1) % world_.ranks();
        write(round, bytes);
        spoil_got(round, bytes);
        perf::cuda::begin_capture(device_, stream_);
        put(right, bytes, 0);
        get(right, bytes, 0);
        wait({{1, left, 0, 0}});
        void* const graph = perf::cuda::upload_graph(device_, perf::cuda::end_capture(device_, stream_), stream_);
        world_.barrier(thread_);
        for (int i = 0; i < times; ++i) perf::cuda::replay(device_, graph, stream_);
        settle();
        check(left, round, bytes, 0);
        check_got(right, round, bytes);
        world_.barrier(thread_);
        perf::cuda::destroy_graph(graph);
    }

    /// Ranks 0 and 1, the others look on.
    void ping_pong(int rounds) {
        world_.barrier(thread_);
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < rounds && rank_ < 2 && world_.ranks() > 1; ++i) {
            if (rank_ == 0) must(tuttiSignal(1, 1, 0, 0, comm_, stream_));
            wait({{1, 1 - rank_, 1, 0}});
            if (rank_ == 1) must(tuttiSignal(0, 1, 0, 0, comm_, stream_));
        }
        settle();
        const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
        world_.barrier(thread_);
        if (rank_ == 0 && world_.ranks() > 1)
            std::printf("a signal there and back: %.2f us, mean of %d\n", time.count() / rounds, rounds);
    }

    /// Times puts of rank 0 to rank 1 and gets from there, by turns with its window and with one of memory that no
    /// adapter takes. The puts of a turn follow each other, and end with a signal back.
    void time_ways(int turns) {
        const SharedPages plain(row);
        tuttiWindow_t other = nullptr;
        must(tuttiCommWindowRegister(comm_, plain.data(), row, &other, TUTTI_WIN_DEFAULT));
        std::vector<std::byte> own(row);
        const Way ways[] = {{"direct", source_.data(), handle_},
                            {"direct, from memory of its own", own.data(), handle_},
                            {"copied", own.data(), other}};
        for (const bool puts : {true, false})
            for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, std::size_t{65'536}, largest}) {
                std::vector<double> times[std::size(ways)];
                for (int turn = -1; turn < turns; ++turn)  // the first warms up
                    for (std::size_t w = 0; w < std::size(ways); ++w) {
                        const double us = time_way(ways[w], bytes, puts);
                        if (turn >= 0) times[w].push_back(us);
                    }
                for (std::size_t w = 0; w < std::size(ways) && rank_ == 0; ++w) {
                    std::ranges::nth_element(times[w], times[w].begin() + turns / 2);
                    const double us = times[w][static_cast<std::size_t>(turns / 2)];
                    std::printf("%s of %zu bytes, %s: %.2f us each, %.1f MB/s\n", puts ? "puts" : "gets", bytes,
                                ways[w].name, us, static_cast<double>(bytes) / us);
                }
            }
        world_.barrier(thread_);
        must(tuttiCommWindowDeregister(comm_, other));
    }

    struct Way {
        const char* name;
        std::byte* local;
        tuttiWindow_t window;
    };
    /// Microseconds for one of several.
    double time_way(const Way& way, std::size_t bytes, bool puts) {
        const int count = static_cast<int>(std::clamp<std::size_t>(largest / bytes, 4, 64));
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < count && rank_ == 0; ++i)
            must(puts ? tuttiPutSignal(way.local, bytes, tuttiUint8, 1, way.window, 0, 2, 0, 0, comm_, stream_)
                      : tuttiGet(way.local, bytes, tuttiUint8, 1, way.window, 0, 0, 0, comm_, stream_));
        if (puts && rank_ == 0) wait({{1, 1, 3, 0}});
        if (puts && rank_ == 1) {
            wait({{count, 0, 2, 0}});
            must(tuttiSignal(0, 3, 0, 0, comm_, stream_));
        }
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / count;
    }

    /// Rank 0 from rank 1, which does nothing.
    void time_gets(int rounds) {
        constexpr std::size_t bytes = 8;
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < rounds && rank_ == 0 && world_.ranks() > 1; ++i) get(1, bytes, 0);
        settle();
        const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
        world_.barrier(thread_);
        if (rank_ == 0 && world_.ranks() > 1)
            std::printf("a get of %zu bytes: %.2f us, mean of %d\n", bytes, time.count() / rounds, rounds);
    }

    perf::World& world_;
    const int thread_, rank_;
    const tuttiComm_t comm_;
    const int device_;
    void* const stream_;
    const perf::Buffer window_, source_, got_;
    tuttiWindow_t handle_ = nullptr;
    bool good_ = true;
};

}  // namespace

int main(int argc, char** argv) {
    CLI::App app(
        "One-sided operations between ranks that are threads, of processes that tutti-run starts: are puts and "
        "gets right, and signals in time?");
    perf::Options options;
    std::string device = "cpu";
    int rounds = 200, turns = 0;
    app.add_option("-t,--threads", options.threads, "Ranks of this process")->check(CLI::Range(1, 32));
    app.add_option("--transport", options.transport, "The only one that may be used");
    app.add_option("--device", device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
    std::size_t most = largest;
    app.add_option("--largest", most, "Puts no more bytes at once")->check(CLI::Range(sizes[0], largest));
    app.add_option("-n,--rounds", rounds, "Of the signal that goes there and back, and of gets")
        ->check(CLI::Range(1, 1'000'000));
    app.add_option("--turns", turns, "Also time puts and gets, with adapters and by copies; only over a network")
        ->check(CLI::Range(0, 1000));
    CLI11_PARSE(app, argc, argv);
    std::string why;
    if (device == "cuda") options.devices = perf::cuda::devices(options.threads, why);
    if (!why.empty()) perf::fail(perf::exit_no_device, "put_check: --device cuda: " + why);
    perf::World world(options);
    std::vector<std::thread> threads;
    std::vector<char> good(static_cast<std::size_t>(options.threads));
    for (int t = 0; t < options.threads; ++t)
        threads.emplace_back([&, t] { good[static_cast<std::size_t>(t)] = Rank(world, t).run(most, rounds, turns); });
    for (std::thread& thread : threads) thread.join();
    world.leave();
    for (const char each : good)
        if (!each) return perf::exit_wrong;
    if (world.process() == 0) std::printf("%d ranks on %s: OK\n", world.ranks(), device.c_str());
    return perf::exit_ok;
}
