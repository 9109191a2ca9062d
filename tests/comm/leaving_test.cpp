// Ranks that are done and leave at once, by destroying, suspending, splitting: what they have sent arrives, over every
// link. Run also with TUTTI_FAULT, over links that take their time (meson.build).
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/driver.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr size_t counts[] = {1, 12, 1000, 40000, 300000};

/// One that is printed if the test fails; TUTTI_TEST_SEED gives it again.
unsigned any_seed() {
    const char* const given = std::getenv("TUTTI_TEST_SEED");
    return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device()();
}

/// What one rank does: all draw the same numbers.
class RandomProgram {
  public:
    RandomProgram(unsigned seed, const char* transport, const tuttiUniqueId& id, int rank, int ranks)
        : random_(seed), rank_(rank), ranks_(ranks) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = transport;
        config.timeoutMs = 60000;
        must_succeed(tuttiCommInitRankConfig(&comm_, ranks, id, rank, &config), "init");
    }
    void run(int steps) {
        for (int step = 0; step < steps; ++step) {
            const unsigned kind = draw(8);
            if (kind == 0)
                split();
            else if (kind == 1)
                suspend();
            else
                operate(comm_, rank_, ranks_);
        }
        must_succeed(tuttiCommDestroy(comm_), "destroy");
    }

  private:
    unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }

    void suspend() {
        must_succeed(tuttiCommSuspend(comm_), "suspend");
        must_succeed(tuttiCommResume(comm_), "resume");
    }

    void split() {
        std::vector<unsigned> colors;
        for (int r = 0; r < ranks_; ++r) colors.push_back(draw(2));
        const unsigned mine = colors[static_cast<size_t>(rank_)];
        const auto before = std::count(colors.begin(), colors.begin() + rank_, mine);
        const auto all = std::count(colors.begin(), colors.end(), mine);
        const unsigned seed = random_();  // the parts go different ways
        tuttiComm_t part = nullptr;
        must_succeed(tuttiCommSplit(comm_, static_cast<int>(mine), 0, &part, nullptr), "split");
        const std::mt19937 kept = std::exchange(random_, std::mt19937(seed + mine));
        for (int i = 0; i < 2; ++i) operate(part, static_cast<int>(before), static_cast<int>(all));
        random_ = kept;
        must_succeed(tuttiCommDestroy(part), "destroy a part");
    }

    void operate(tuttiComm_t comm, int rank, int ranks) {
        const size_t count = counts[draw(std::size(counts))], n = static_cast<size_t>(ranks);
        const unsigned kind = draw(4), first = draw(1000);
        const auto value = [&](int from, size_t i) { return static_cast<int>(first + i * 7) + 1000000 * from; };
        std::vector<int> in(count * n), out(count * n, -1);
        for (size_t i = 0; i < in.size(); ++i) in[i] = value(rank, i);
        const auto holds = [&](size_t i, int wanted) {
            check(out[i] == wanted,
                  "element " + std::to_string(i) + " is " + std::to_string(out[i]) + ", not " + std::to_string(wanted));
        };
        if (kind == 0) {
            must_succeed(tuttiAllReduce(in.data(), out.data(), count, tuttiInt32, tuttiMax, comm, nullptr), "max");
            for (size_t i = 0; i < count; ++i) holds(i, value(ranks - 1, i));
        } else if (kind == 1) {
            must_succeed(tuttiAlltoAll(in.data(), out.data(), count, tuttiInt32, comm, nullptr), "all to all");
            for (size_t i = 0; i < out.size(); ++i)
                holds(i, value(static_cast<int>(i / count), static_cast<size_t>(rank) * count + i % count));
        } else if (kind == 2) {
            const int root = static_cast<int>(draw(static_cast<unsigned>(ranks)));
            must_succeed(tuttiBroadcast(in.data(), out.data(), count, tuttiInt32, root, comm, nullptr), "broadcast");
            for (size_t i = 0; i < count; ++i) holds(i, value(root, i));
        } else {
            const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
            must_succeed(tuttiGroupStart(), "group");
            must_succeed(tuttiSend(in.data(), count, tuttiInt32, next, comm, nullptr), "send");
            must_succeed(tuttiRecv(out.data(), count, tuttiInt32, last, comm, nullptr), "recv");
            must_succeed(tuttiGroupEnd(), "sends and receives");
            for (size_t i = 0; i < count; ++i) holds(i, value(last, i));
        }
    }

    std::mt19937 random_;
    tuttiComm_t comm_ = nullptr;
    const int rank_, ranks_;
};

}  // namespace

TEST_CASE("ranks leave at any time, and what they have sent arrives: threads", "[slow links]") {
    const unsigned seed = any_seed();
    INFO("TUTTI_TEST_SEED=" << seed);
    const char* const transports[] = {"", "shm", "tcp"};
    for (unsigned i = 0; i < (harness::sanitized ? 3 : 6); ++i) {
        const int ranks = harness::sanitized ? 3 : 2 + static_cast<int>(i / 3 % 2);
        CAPTURE(i, ranks);
        const tuttiUniqueId id = new_id();
        REQUIRE_NOTHROW(
            harness::run(ranks, [&](int r) { RandomProgram(seed + i, transports[i % 3], id, r, ranks).run(6); }));
    }
}

#ifndef __SANITIZE_THREAD__  // which ends a process that makes threads after a fork
TEST_CASE("ranks leave at any time, and what they have sent arrives: processes", "[slow links]") {
    const unsigned seed = any_seed();
    INFO("TUTTI_TEST_SEED=" << seed);
    const char* const transports[] = {"", "tcp"};
    for (unsigned i = 0; i < 4; ++i) {
        const int ranks = 2 + static_cast<int>(i / 2 % 2);
        CAPTURE(i, ranks);
        const tuttiUniqueId id = new_id();
        std::vector<pid_t> children;
        for (int r = 0; r < ranks; ++r) {
            children.push_back(fork());
            if (children.back() != 0) continue;
            try {
                RandomProgram(seed + i, transports[i % 2], id, r, ranks).run(6);
                _exit(0);
            } catch (const std::exception& error) {
                fprintf(stderr, "rank %d: %s\n", r, error.what());
                _exit(1);
            }
        }
        for (const pid_t child : children) {
            int status = -1;
            REQUIRE(waitpid(child, &status, 0) == child);
            CHECK(status == 0);
        }
    }
}
#endif

TEST_CASE("one thread lets its ranks leave one after the other, and the last has what the first has sent",
          "[slow links]") {
    for (const char* const transport : {"", "tcp"}) {
        CAPTURE(transport);
        Options options = Options::from(nullptr);
        options.transport = transport;
        auto comms = Communicator::in_process(2, options);
        // As much as a send completes without its receiver; except over tcp, larger data stays in the send buffer.
        const std::size_t count = std::string_view(transport) == "tcp" ? 100000 : 3000;
        std::vector<int> in(count), out(count);
        std::iota(in.begin(), in.end(), 1);
        Operation o;
        o.type = DataType::int32;
        o.count = in.size();
        o.collective = Collective::send;
        o.root = 1;
        o.input = in.data();
        run_one(*comms[0], o);
        comms[0]->leave();
        comms[0].reset();
        o.collective = Collective::recv;
        o.root = 0;
        o.output = out.data();
        REQUIRE_NOTHROW(run_one(*comms[1], o));
        REQUIRE(out == in);
        comms[1]->leave();
    }
}
