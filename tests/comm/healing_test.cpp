// Collectives and one-sided operations over TCP while connections between the ranks are reset: their results are those
// of any other day.
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/driver.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "harness/resets.hpp"

using namespace tutti;

namespace {

/// Resets connections of this process until it is destroyed.
class Resets {
  public:
    ~Resets() {
        over_ = true;
        thread_.join();
    }
    /// Waits until there has been another one: of a thread that stood still there may have been none for long.
    void await_one() const {
        const int before = count_;
        const Deadline until = Clock::now() + std::chrono::seconds(60);
        while (count_ == before && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        harness::check(count_ > before, "no connection was reset");
    }

  private:
    std::atomic<bool> over_{false};
    std::atomic<int> count_{0};
    std::thread thread_{[this] {
        std::mt19937 random(harness::seed());
        while (!over_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            count_ += harness::reset_connections([&] { return random() % 6 == 0; });
        }
    }};
};

}  // namespace

TEST_CASE("collectives over TCP give the right results while connections are reset") {
    constexpr int ranks = 4;
    Options options = Options::from(nullptr);
    options.transport = "tcp";
    auto comms = Communicator::in_process(ranks, options);
    Resets resets;
    harness::run(ranks, [&](int rank) {
        Communicator& comm = *comms[static_cast<std::size_t>(rank)];
        for (int round = 0; round < (harness::sanitized ? 20 : 60); ++round) {
            const std::size_t count = std::size_t{1} << (round % 20);
            std::vector<std::uint32_t> in(count * ranks), out(count * ranks);
            for (std::size_t i = 0; i < in.size(); ++i)
                in[i] = static_cast<std::uint32_t>(i * 7 + static_cast<std::size_t>(round * 13 + rank));
            Operation o;
            o.type = DataType::uint32;
            o.count = count;
            o.input = in.data();
            o.output = out.data();
            o.collective = round % 2 == 0 ? Collective::all_reduce : Collective::all_to_all;
            o.op = ReduceOp::sum;
            if (rank == 0 && round % 5 == 1) resets.await_one();
            run_one(comm, o);
            std::vector<std::uint32_t> want(count * (round % 2 == 0 ? 1 : ranks));
            for (std::size_t i = 0; i < want.size(); ++i) {
                const std::size_t from = i / count, at = i % count + static_cast<std::size_t>(rank) * count;
                const std::size_t mine = i * 7 + static_cast<std::size_t>(round * 13);
                want[i] = static_cast<std::uint32_t>(
                    round % 2 == 0 ? mine * ranks + 6 : at * 7 + static_cast<std::size_t>(round * 13) + from);
            }
            out.resize(want.size());
            harness::check(out == want, "round " + std::to_string(round) + ": an element is wrong");
        }
    });
}

TEST_CASE("puts and gets over TCP take place once and in order while connections are reset") {
    constexpr int ranks = 3;
    constexpr std::size_t count = 400'000;  // of several slots
    const std::vector<tuttiComm_t> comms = harness::make_comms(ranks, "tcp");
    Resets resets;
    harness::run(ranks, [&](int rank) {
        const auto comm = comms[static_cast<std::size_t>(rank)];
        const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
        std::vector<std::uint32_t> memory(count), data(count), got(count);
        tuttiWindow_t window;
        harness::must_succeed(tuttiCommWindowRegister(comm, memory.data(), count * 4, &window, 0), "window");
        const tuttiWaitSignalDesc_t arrived{1, before, 0, 0};
        for (std::uint32_t round = 0; round < (harness::sanitized ? 20 : 60); ++round) {
            if (rank == 0 && round % 5 == 1) resets.await_one();
            const std::size_t size = round % 3 == 0 ? 5 : count;
            for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<std::uint32_t>(i) * 7 + round * 13;
            harness::must_succeed(
                tuttiPutSignal(data.data(), size, tuttiUint32, next, window, 0, 0, 0, 0, comm, nullptr), "put");
            harness::must_succeed(tuttiGet(got.data(), size, tuttiUint32, next, window, 0, 0, 0, comm, nullptr), "get");
            harness::check(std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(size), data.begin()),
                           "another rank's memory holds something else than was put there");
            harness::must_succeed(tuttiWaitSignal(1, &arrived, comm, nullptr), "wait");
            harness::check(std::equal(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(size), data.begin()),
                           "something else arrived than was put");
            harness::must_succeed(tuttiBarrier(comm, nullptr), "barrier");
        }
        harness::must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
    });
    for (tuttiComm_t comm : comms) tuttiCommDestroy(comm);
}
