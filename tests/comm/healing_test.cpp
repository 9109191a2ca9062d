// Collectives over TCP while connections between the ranks are reset: their results are those of any other day.
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/driver.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "harness/resets.hpp"

using namespace tutti;

TEST_CASE("collectives over TCP give the right results while connections are reset") {
    constexpr int ranks = 4;
    Options options = Options::from(nullptr);
    options.transport = "tcp";
    auto comms = Communicator::in_process(ranks, options);
    std::atomic<bool> over{false};
    std::atomic<int> resets{0};
    std::thread breaks([&] {
        std::mt19937 random(harness::seed());
        while (!over) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            resets += harness::reset_connections([&] { return random() % 6 == 0; });
        }
    });
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
            run_one(comm, o);
            for (std::size_t i = 0; i < count * (round % 2 == 0 ? 1 : ranks); ++i) {
                const std::size_t from = i / count, at = i % count + static_cast<std::size_t>(rank) * count;
                const std::size_t mine = i * 7 + static_cast<std::size_t>(round * 13);
                const std::size_t expected =
                    round % 2 == 0 ? mine * ranks + 6 : at * 7 + static_cast<std::size_t>(round * 13) + from;
                harness::check(out[i] == static_cast<std::uint32_t>(expected),
                               "round " + std::to_string(round) + ": element " + std::to_string(i) + " is wrong");
            }
        }
    });
    over = true;
    breaks.join();
    CAPTURE(resets.load());
    CHECK(resets > 3);
}
