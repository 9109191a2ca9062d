// Layers of asynchronous modes that go on with fewer ranks, or with more.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "dp/mover.hpp"
#include "dp/on_gpus.hpp"
#include "dp/ps/node.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

struct Way {
    tuttiDpMode_t mode;
    int servers, dedicated;
};

tuttiDpConfig_t config_of(const Way& way, tuttiDpOptimizerKind_t kind, int staleness) {
    tuttiDpConfig_t config = harness::config_for(way.mode, kind);
    if (way.servers > 0) config.servers = way.servers;
    config.dedicated = way.dedicated;
    config.staleness = staleness;
    config.optimizer.weightDecay = 0;
    config.optimizer.learningRate = 1;
    return config;
}

/// A rank whose gradients are all -1. With a rate of 1, SGD counts them, and Adam adds 1 in each step.
class Counter {
  public:
    Counter(const tuttiUniqueId& id, int rank, int ranks, const tuttiDpConfig_t& config,
            tuttiDataType_t type = tuttiFloat32)
        : type_(type) {
        std::vector<tuttiDpParameter_t> parameters = three();
        for (tuttiDpParameter_t& p : parameters) p.type = type;
        parameters.push_back({"frozen", nullptr, nullptr, 1, tuttiInt32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpFrozen});
        comms_.push_back(harness::join(id, rank, ranks, true));
        must_succeed(tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comms_.back()), "create");
    }
    ~Counter() {
        if (dp != nullptr) tuttiDpDestroy(dp);
        for (const tuttiComm_t comm : comms_) tuttiCommDestroy(comm);
    }
    Counter(const Counter&) = delete;
    void leave() { tuttiDpDestroy(std::exchange(dp, nullptr)); }

    void step() { must_succeed(try_step(true), "step"); }
    void begin_a_step() {
        must_succeed(tuttiDpBegin(dp), "begin");
        must_succeed(offer(2), "ready");
    }
    /// The first error: any call may be where this rank hears that a peer has left. A dedicated server does not work.
    tuttiResult_t try_step(bool works) {
        tuttiResult_t result = tuttiDpBegin(dp);
        for (std::size_t p = 3; works && p-- > 0 && result == tuttiSuccess;) result = offer(p);
        if (result == tuttiSuccess) result = tuttiDpSynchronize(dp);
        return result == tuttiSuccess ? tuttiDpStep(dp) : result;
    }
    tuttiResult_t move(const tuttiUniqueId& id, int rank, int ranks) {
        comms_.push_back(harness::join(id, rank, ranks, true));
        return tuttiDpMove(dp, comms_.back());
    }
    void wait() { must_succeed(tuttiDpWait(dp), "wait"); }
    tuttiDpStatistics_t statistics() { return harness::statistics(dp); }
    /// The least and the largest element of parameters `from` to `to` - 1.
    std::pair<double, double> range(std::size_t from = 0, std::size_t to = 3) {
        std::vector<float> all;
        for (std::size_t p = from; p < to; ++p) {
            std::vector<float> its(counts[p]);
            dp::convert(DataType::float32, its.data(), static_cast<DataType>(type_), data(p), its.size());
            all.insert(all.end(), its.begin(), its.end());
        }
        return {*std::min_element(all.begin(), all.end()), *std::max_element(all.begin(), all.end())};
    }
    /// Whether all these elements are this, nearly.
    bool are(double value, std::size_t from = 0, std::size_t to = 3) {
        const auto [least, most] = range(from, to);
        return std::fabs(least - value) < 1e-3 && std::fabs(most - value) < 1e-3;
    }
    int& frozen() { return *static_cast<int*>(data(3)); }

    tuttiDp_t dp = nullptr;

  private:
    static constexpr std::size_t counts[] = {5, 1, 100};
    void* data(std::size_t p) { return data_of<void>(dp, p); }
    tuttiResult_t offer(std::size_t p) {
        const std::vector<float> minus_one(counts[p], -1);
        void* at = nullptr;
        if (const tuttiResult_t result = tuttiDpGradient(dp, p, &at); result != tuttiSuccess) return result;
        dp::convert(static_cast<DataType>(type_), at, DataType::float32, minus_one.data(), counts[p]);
        return tuttiDpGradReady(dp, p);
    }

    const tuttiDataType_t type_;
    std::vector<tuttiComm_t> comms_;
};

}  // namespace

TEST_CASE("staleness: a layer moves to more ranks and to fewer, with the servers' values and states") {
    for (const Way way : {Way{tuttiDpServer, 0, 0}, Way{tuttiDpShardedServer, 0, 0}, Way{tuttiDpShardedServer, 2, 0}})
        for (const int staleness : {0, 2})
            for (const auto type : {tuttiFloat32, tuttiBfloat16}) {
                CAPTURE(way.mode, way.servers, staleness, type);
                tuttiDpConfig_t config = harness::config_for(way.mode);
                if (way.servers > 0) config.servers = way.servers;
                config.staleness = staleness;
                tuttiDpConfig_t synchronous = config;
                synchronous.staleness = synchronous.servers = TUTTI_UNDEF_INT;
                const std::vector<float> early = alone(synchronous, type, 2), late = alone(synchronous, type, 5);
                const tuttiUniqueId two = new_id(), three = new_id(), same = new_id(), single = new_id();
                std::atomic<int> right{0};
                harness::run(3, [&](int r) {
                    Mover rank(r < 2 ? two : single, r < 2 ? r : 0, r < 2 ? 2 : 1, config, type);
                    if (r < 2) {
                        for (int s = 0; s < 2; ++s) rank.step(s);
                        must_succeed(tuttiDpWait(rank.dp), "wait");
                        rank.frozen()[2] = 42;
                    }
                    must_succeed(rank.move(three, (r + 1) % 3, 3), "more, and the newcomer is rank 0");
                    check(rank.steps() == 2 && rank.weights() == early, "what the servers have");
                    check(rank.frozen()[2] == 42, "what is frozen has moved, too");
                    for (int s = 2; s < 4; ++s) rank.step(s);
                    must_succeed(tuttiDpWait(rank.dp), "wait");
                    must_succeed(rank.move(same, r, 3), "as many");
                    rank.step(4);
                    must_succeed(tuttiDpWait(rank.dp), "wait");
                    right += rank.steps() == 5 && rank.weights() == late;
                });
                REQUIRE(right == 3);
            }
}

TEST_CASE("staleness: ranks that differ in their steps move when one has left, and no gradient counts twice") {
    for (const Way way : {Way{tuttiDpServer, 0, 0}, Way{tuttiDpShardedServer, 2, 0}, Way{tuttiDpShardedServer, 2, 1}}) {
        CAPTURE(way.mode, way.servers, way.dedicated);
        constexpr int s = 3, served = 2, steps = 6;
        const tuttiDpConfig_t config = config_of(way, tuttiDpSgd, s);
        const tuttiUniqueId four = new_id(), again = new_id(), single = new_id();
        std::atomic<int> right{0};
        harness::run(5, [&](int r) {
            const int place = r % 4 == 0 && r > 0 ? 3 : r;  // rank 4 comes in place of rank 3
            Counter rank(r < 4 ? four : single, r < 4 ? r : 0, r < 4 ? 4 : 1, config);
            const auto step = [&] { return rank.try_step(!way.dedicated || place >= 2); };
            // Rank 3 makes two steps and leaves; the others are up to s steps ahead.
            const int first = r == 4 ? 0 : r == 3 ? served : r == 2 ? served + s : served + 1;
            for (int i = 0; i < first; ++i)
                if (const tuttiResult_t result = step(); result != tuttiSuccess) {
                    check(i >= served && result == tuttiRemoteError, "rank 3 has left");
                    break;
                }
            if (r == 3) return rank.leave();
            must_succeed(rank.move(again, place, 4), "a new rank in place of the one that has left");
            const tuttiDpStatistics_t moved = rank.statistics();
            const auto [least, most] = rank.range();
            const auto whole = static_cast<double>(moved.steps);
            check(moved.restarted == 0, "no server has died");
            // Servers may have come to different steps.
            check(moved.steps <= served && least >= whole - 1 && most == whole, "what was applied, once");
            for (int i = 0; i < steps; ++i) must_succeed(step(), "step");
            rank.wait();
            check(rank.range() == std::pair(least + steps, most + steps), "all steps after that");
            right += rank.statistics().largestStaleness <= s && rank.statistics().steps == moved.steps + steps;
        });
        REQUIRE(right == 4);
    }
}

TEST_CASE("staleness: a part whose server has died goes on with the values received last, and new states") {
    for (const auto type : {tuttiFloat32, tuttiBfloat16})
        for (const auto mode : {tuttiDpServer, tuttiDpShardedServer}) {
            CAPTURE(type, mode);
            tuttiDpConfig_t config = config_of({mode, 0, 0}, tuttiDpAdam, 2);
            config.server = 1;
            const tuttiUniqueId three = new_id(), again = new_id(), single = new_id();
            std::atomic<int> right{0};
            Rendezvous waited(3);
            harness::run(4, [&](int r) {  // rank 3 comes in place of rank 1
                Counter rank(r < 3 ? three : single, r < 3 ? r : 0, r < 3 ? 3 : 1, config, type);
                for (int i = 0; i < 3 && r < 3; ++i) rank.step();
                if (r < 3) {
                    rank.wait();
                    waited.wait();
                }
                if (r == 1) return rank.leave();
                must_succeed(rank.move(again, r == 3 ? 1 : r, 3), "with a new server");
                check(rank.are(3) && rank.statistics().steps == 3, "the values");
                check(rank.statistics().restarted > 0, "what was lost is told");
                for (int i = 0; i < 3; ++i) rank.step();
                rank.wait();
                // Adam would add 3 in a step with states of zero that count as old.
                right += rank.are(6) && rank.statistics().steps == 6;
            });
            REQUIRE(right == 3);
        }
}

TEST_CASE("staleness: without a server's states SGD has lost nothing") {
    tuttiDpConfig_t config = harness::config_for(tuttiDpServer, tuttiDpSgd);
    config.staleness = 1;
    tuttiDpConfig_t synchronous = config;
    synchronous.staleness = TUTTI_UNDEF_INT;
    const std::vector<float> expected = alone(synchronous, tuttiFloat32, 4);
    const tuttiUniqueId three = new_id(), two = new_id();
    std::atomic<int> right{0};
    Rendezvous waited(3);
    harness::run(3, [&](int r) {
        Mover rank(three, r, 3, config, tuttiFloat32);
        for (int s = 0; s < 2; ++s) rank.step(s);
        must_succeed(tuttiDpWait(rank.dp), "wait");
        waited.wait();
        if (r == 0) return rank.leave();
        must_succeed(rank.move(two, r - 1, 2), "fewer");
        for (int s = 2; s < 4; ++s) rank.step(s);
        must_succeed(tuttiDpWait(rank.dp), "wait");
        right += rank.steps() == 4 && rank.weights() == expected;
    });
    REQUIRE(right == 2);
}

TEST_CASE("GPUs: parts move in asynchronous modes, too") {
    for (const bool mixed : {false, true})
        for (const bool offload : {false, true}) {
            CAPTURE(mixed, offload);
            harness::Gpus g(tuttiDpShardedServer, tuttiDpAdamW, mixed ? std::vector{0, -1, 1} : std::vector{0, 1, 0});
            g.setup.type = tuttiBfloat16;
            g.setup.config.staleness = 0;
            g.setup.config.elastic = 1;
            g.setup.config.offload = offload;
            REQUIRE(g.moving().weights == g.on_cpus().weights);
        }
}

TEST_CASE("On arrival: a layer moves between steps, in the middle of one, and whoever serves") {
    for (const Way way : {Way{tuttiDpServer, 0, 0}, Way{tuttiDpShardedServer, 0, 0}, Way{tuttiDpShardedServer, 2, 1}}) {
        CAPTURE(way.mode, way.servers, way.dedicated);
        constexpr int s = 2;
        tuttiDpConfig_t config = config_of(way, tuttiDpAdam, s);
        config.onArrival = 1;
        const tuttiUniqueId four = new_id(), five = new_id(), three = new_id(), single = new_id();
        const int servers = way.dedicated ? 2 : 0;
        const int before = way.dedicated ? 2 + 2 : 1 + 2 + 2, after = before + (5 - servers) * (s + 1);
        std::atomic<int> right{0};
        Rendezvous looked(5), ahead(1), stepped(5 - servers), waited(5), moved(3);
        harness::run(5, [&](int r) {
            const int place = (r + 1) % 5;  // rank 4 is new, and becomes rank 0
            Counter rank(r < 4 ? four : single, r < 4 ? r : 0, r < 4 ? 4 : 1, config);
            const bool works = r < 4 && r >= servers, will_work = place >= servers;
            for (int i = 0; works && i < std::min(r, 2); ++i) rank.step();
            if (r == 3) rank.begin_a_step();
            must_succeed(rank.move(five, place, 5), "more");
            if (will_work) check(rank.are(before, 0, 2) && rank.are(before + 1, 2), "each gradient once");
            check(rank.statistics().steps == (works ? std::min(r, 2) : 2), "its own; who is new has the most");
            check(rank.statistics().restarted == 0, "no server has died");
            looked.wait();
            // The bound holds anew: rank 4 goes s steps ahead of the others, whatever was before.
            if (place != 4) ahead.wait();
            for (int i = 0; will_work && i < s + 1; ++i) rank.step();
            if (place == 4) ahead.wait();
            if (will_work) {
                rank.wait();
                stepped.wait();
                rank.wait();
                check(rank.are(after, 0, 2) && rank.are(after + 1, 2), "all steps after that");
                check(rank.statistics().largestStaleness <= s, "the bound");
            }
            waited.wait();
            if (place < 2) return rank.leave();  // all servers that have a part, or some of them
            must_succeed(rank.move(three, place - 2, 3), "fewer");
            const bool still_works = place - 2 >= servers;
            if (still_works) check(rank.are(after, 0, 2) && rank.are(after + 1, 2), "the newest values");
            check(rank.statistics().restarted > 0, "of servers that have left");
            moved.wait();
            if (still_works) {
                rank.step();
                rank.wait();
            }
            right += !still_works || rank.range().second >= after + 2 - 1e-3;
        });
        REQUIRE(right == 3);
    }
}

TEST_CASE("On arrival: newcomers get the rate, the notes and what is frozen; and gradients are counted on") {
    tuttiDpConfig_t config = config_of({tuttiDpServer, 0, 0}, tuttiDpAdam, TUTTI_DP_UNBOUNDED);
    config.onArrival = 1;
    config.server = 1;
    const tuttiUniqueId two = new_id(), three = new_id(), single = new_id();
    std::atomic<int> right{0};
    Rendezvous moved(3);
    harness::run(3, [&](int r) {
        Counter rank(r < 2 ? two : single, r < 2 ? r : 0, r < 2 ? 2 : 1, config);
        for (int i = 0; i < r && r < 2; ++i) rank.step();
        if (r == 1) {
            must_succeed(tuttiDpSetLearningRate(rank.dp, 0.5), "rate");
            must_succeed(tuttiDpSetNote(rank.dp, "epoch", "the fourth"), "note");
            rank.frozen() = 42;
        }
        must_succeed(rank.move(three, r, 3), "more");
        char note[32] = "";
        must_succeed(tuttiDpGetNote(rank.dp, "epoch", note, sizeof note), "note");
        check(rank.frozen() == 42 && std::string(note) == "the fourth", "what rank 1 had");
        check(rank.are(1), "one step");
        moved.wait();
        if (r == 2) rank.step();
        if (r == 2) rank.wait();
        right += r != 2 || rank.are(1.5);
        check(r != 1 || rank.statistics().applied >= 3, "applied before the move, too");
    });
    REQUIRE(right == 3);
}

TEST_CASE("On arrival: a worker that was ahead before a move stays ahead, so that all end after as many steps") {
    tuttiDpConfig_t config = config_of({tuttiDpShardedServer, 0, 0}, tuttiDpSgd, 1);
    config.onArrival = 1;
    const tuttiUniqueId first = new_id(), second = new_id();
    Rendezvous ended(2);
    std::atomic<int> right{0};
    harness::run(2, [&](int r) {
        Counter counter(first, r, 2, config);
        const int made = r == 0 ? 2 : 0;  // as far ahead as the bound allows
        for (int step = 0; step < made; ++step) counter.step();
        must_succeed(counter.move(second, r, 2), "move");
        for (int step = made; step < 4; ++step) counter.step();
        counter.wait();  // for nobody: rank 0 makes no more steps than rank 1
        ended.wait();
        counter.wait();
        right += counter.are(8);  // all gradients of both ranks
    });
    REQUIRE(right == 2);
}

TEST_CASE("On arrival: moves that can't be are refused by name") {
    tuttiDpConfig_t config = config_of({tuttiDpShardedServer, 2, 1}, tuttiDpSgd, 1);
    config.onArrival = 1;
    const tuttiUniqueId three = new_id(), two = new_id(), again = new_id();
    const tuttiUniqueId single[] = {new_id(), new_id()};
    std::atomic<int> refused{0};
    Rendezvous told(3), stepped(3);
    harness::run(5, [&](int r) {
        Counter rank(r < 3 ? three : single[r - 3], r < 3 ? r : 0, r < 3 ? 3 : 1, config);
        if (r < 3) {
            if (r < 2)
                refused += rank.move(two, r, 2) == tuttiInvalidUsage && says("2 ranks, too few for config.dedicated");
            told.wait();
            if (r == 2) rank.step();  // nothing has changed
            if (r == 2) rank.wait();
            check(r < 2 || rank.are(1), "one step");
            stepped.wait();
        }
        if (r == 1 || r == 2) return rank.leave();
        refused += rank.move(again, r == 0 ? 0 : r - 2, 3) == tuttiInvalidUsage && says("no worker that knows");
        refused += tuttiDpBegin(rank.dp) == tuttiSuccess ? r == 0 : says("half-way");
    });
    REQUIRE(refused == 2 + 3 + 3);
}

TEST_CASE("On arrival: a move that fails half-way is made again with those that are left") {
    tuttiDpConfig_t config = config_of({tuttiDpServer, 0, 0}, tuttiDpAdam, TUTTI_DP_UNBOUNDED);
    config.onArrival = 1;
    const tuttiUniqueId first = new_id(), second = new_id(), third = new_id();
    std::atomic<int> right{0};
    Rendezvous moved(2);
    harness::run(3, [&](int r) {
        Counter rank(first, r, 3, config);
        rank.step();
        if (r == 2) {
            rank.leave();
            const tuttiComm_t comm = harness::join(second, 2, 3, true);
            dp::Ranks ranks;
            dp::ps::Node::join(ranks, comm, {});
            ranks.abort();
            tuttiCommAbort(comm);
            return;
        }
        check(rank.move(second, r, 3) == tuttiRemoteError, "rank 2 is gone");
        if (tuttiDpBegin(rank.dp) == tuttiSuccess)
            must_succeed(tuttiDpAbandon(rank.dp), "the layer is as it was");
        else
            check(says("half-way"), "a move is under way");
        must_succeed(rank.move(third, r, 2), "again");
        check(rank.are(3), "each gradient once");
        moved.wait();
        rank.step();
        rank.wait();
        right += rank.range().first >= 4 - 1e-3;
    });
    REQUIRE(right == 2);
}
