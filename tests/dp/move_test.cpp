// Layers that go on with fewer ranks, or with more, where ranks own parts.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>

#include "dp/cover.hpp"
#include "dp/handover.hpp"
#include "dp/host_backend.hpp"
#include "dp/mover.hpp"
#include "dp/on_gpus.hpp"
#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr tuttiDpMode_t owned[] = {tuttiDpServer, tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero2, tuttiDpZero3};

struct Scratch {
    Scratch() : path(std::filesystem::temp_directory_path() / ("tutti-move-" + std::to_string(getpid()))) {}
    ~Scratch() { std::filesystem::remove_all(path); }
    const std::filesystem::path path;
};

std::string note(const Mover& rank) {
    char text[64] = "";
    return tuttiDpGetNote(rank.dp, "epoch", text, sizeof text) == tuttiSuccess ? text : "none";
}

/// What a rank does that comes to tuttiDpMove, says that it has the last step, and is gone when parts are handed over.
void die_in_a_move(tuttiComm_t comm, const std::vector<tuttiDpParameter_t>& given, const tuttiDpConfig_t& config) {
    dp::Ranks::Roster roster = dp::Ranks::meet(comm, false, {});
    dp::Options options = dp::read_options(&config, given, roster.size);
    const std::vector<dp::Parameter> parameters = dp::read_parameters("a test", given, options);
    dp::size_buckets(options, parameters);
    std::vector<dp::Shards> shards = dp::deal_shards(options, roster.hosts, false);
    dp::Ranks ranks;
    ranks.join(comm, std::move(roster), std::move(shards), true);
    ranks.all_or_none([] {});
    std::vector<std::string> texts{options.describe(false)};
    for (const dp::Parameter& p : parameters) texts.push_back(describe(p));
    ranks.agree_on("a test", "parameter", texts);
    std::string notes;
    ranks.broadcast(notes, ranks.furthest(0, false));
    ranks.exchange(dp::Holding{ranks.shards(), 2});
    ranks.abort();
}

}  // namespace

TEST_CASE("where ranks own parts a layer moves to as many ranks, to more and to fewer, and keeps its bits",
          "[exhaustive][long]") {
    for (const auto type : {tuttiFloat32, tuttiBfloat16})
        for (const auto mode : owned)
            for (const int group : {TUTTI_UNDEF_INT, 1}) {
                const bool zero = mode >= tuttiDpZero1;
                if (group == 1 && !zero) continue;
                CAPTURE(type, mode, group);
                tuttiDpConfig_t config = harness::config_for(mode);
                config.shardRanks = group;
                config.lossScale = 2;
                const std::vector<float> expected = alone(config, type, 6);
                const tuttiUniqueId two = new_id(), three = new_id(), back = new_id(), same = new_id();
                const tuttiUniqueId single = new_id();
                std::atomic<int> right{0};
                harness::Rendezvous moved(3);
                harness::run(3, [&](int r) {
                    Mover rank(r < 2 ? two : single, r < 2 ? r : 0, r < 2 ? 2 : 1, config, type);
                    if (r < 2) {
                        for (int s = 0; s < 2; ++s) rank.step(s);
                        rank.frozen()[2] = 42;
                    }
                    must_succeed(rank.move(three, r, 3), "more");
                    check(rank.steps() == 2, "two steps were made");
                    check(rank.frozen()[2] == 42, "what is frozen has moved, too");
                    for (int s = 2; s < 4; ++s) rank.step(s);
                    must_succeed(rank.move(same, (r + 1) % 3, 3), "as many");
                    rank.step(4);
                    moved.wait();
                    if (group == 1) {  // all have copies, so one may go
                        if (r == 2) return rank.leave();
                        check(rank.pass(5) == tuttiRemoteError, "one has left");
                        must_succeed(rank.move(back, r, 2), "fewer");
                        check(rank.steps() == 5, "five steps were made");
                    }
                    rank.step(5);
                    right += rank.weights() == expected;
                });
                REQUIRE(right == (group == 1 ? 2 : 3));
            }
}

TEST_CASE("parts that died with their ranks come from the last checkpoint; without one they are named") {
    const Scratch scratch;
    for (const auto mode : owned)
        for (const bool saved : {true, false}) {
            CAPTURE(mode, saved);
            tuttiDpConfig_t config = harness::config_for(mode);
            if (mode == tuttiDpServer) config.server = 1;  // who dies
            const bool grows = mode != tuttiDpServer;
            const std::vector<float> expected = alone(config, tuttiBfloat16, 5);
            const tuttiUniqueId three = new_id(), two = new_id(), single = new_id(), all = new_id();
            std::atomic<int> right{0};
            harness::Rendezvous stepped(3);
            harness::run(grows ? 4 : 3, [&](int r) {  // rank 3 comes later
                Mover rank(r < 3 ? three : single, r < 3 ? r : 0, r < 3 ? 3 : 1, config, tuttiBfloat16);
                if (r < 3) {
                    for (int s = 0; s < 2; ++s) rank.step(s);
                    if (saved) must_succeed(tuttiDpSave(rank.dp, scratch.path.c_str()), "save");
                    for (int s = 2; s < 4; ++s) rank.step(s);
                    stepped.wait();
                }
                if (r == 1) return rank.leave();
                if (r < 3) {
                    check(rank.pass(4) == tuttiRemoteError || tuttiDpStep(rank.dp) == tuttiRemoteError,
                          "rank 1 is gone");
                    const tuttiResult_t result = rank.move(two, r / 2, 2);
                    if (!saved) {
                        right += result == tuttiInvalidUsage && says("no remaining rank has all of") && says("4 steps");
                        return;
                    }
                    must_succeed(result, "fewer");
                    check(rank.steps() == 2, "the checkpoint's");
                    rank.step(2);
                }
                if (!saved) return;
                if (grows) must_succeed(rank.move(all, r == 0 ? 0 : r - 1, 3), "more");
                for (int s = 3; s < 5; ++s) rank.step(s);
                right += rank.weights() == expected;
            });
            REQUIRE(right == (saved && grows ? 3 : 2));
        }
}

TEST_CASE("groups: a rank's part is taken from its copy, and groups come back when there are enough ranks") {
    for (const auto mode : {tuttiDpZero1, tuttiDpZero2, tuttiDpZero3}) {
        CAPTURE(mode);
        tuttiDpConfig_t config = harness::config_for(mode);
        config.shardRanks = 2;
        const std::vector<float> expected = alone(config, tuttiBfloat16, 5);
        const tuttiUniqueId four = new_id(), three = new_id(), single = new_id(), again = new_id();
        std::atomic<int> right{0}, halves{0};
        std::vector<std::size_t> states(5);
        harness::Rendezvous stepped(4);
        harness::run(5, [&](int r) {
            Mover rank(r < 4 ? four : single, r < 4 ? r : 0, r < 4 ? 4 : 1, config, tuttiBfloat16);
            const auto states_now = [&] {
                tuttiDpMemory_t m;
                must_succeed(tuttiDpGetMemory(rank.dp, &m), "memory");
                return m.states;
            };
            std::size_t before = 0;
            if (r < 4) {
                before = states_now();
                for (int s = 0; s < 2; ++s) rank.step(s);
                stepped.wait();
            }
            if (r == 2) return rank.leave();
            if (r < 4) {
                check(rank.pass(2) == tuttiRemoteError, "rank 2 is gone");
                must_succeed(rank.move(three, r == 3 ? 2 : r, 3), "fewer");
                check(rank.steps() == 2, "nothing is lost");
                rank.step(2);
                halves += states_now() < before;  // three share out now
            }
            must_succeed(rank.move(again, r < 2 ? r : r - 1, 4), "more");
            if (r < 4) halves += states_now() == before;
            for (int s = 3; s < 5; ++s) rank.step(s);
            if (mode != tuttiDpZero3) must_succeed(tuttiDpCheckEqual(rank.dp), "equal");
            right += rank.weights() == expected;
        });
        REQUIRE(right == 4);
        REQUIRE(halves == 6);
    }
}

TEST_CASE("a server that died comes back as a newcomer, and all go back to the checkpoint of those that know it") {
    const Scratch scratch;
    tuttiDpConfig_t config = harness::config_for(tuttiDpServer);
    config.server = 0;
    const std::vector<float> expected = alone(config, tuttiBfloat16, 5);
    const tuttiUniqueId three = new_id(), single = new_id(), again = new_id();
    std::atomic<int> right{0};
    harness::Rendezvous stepped(3);
    harness::run(4, [&](int r) {
        Mover rank(r < 3 ? three : single, r < 3 ? r : 0, r < 3 ? 3 : 1, config, tuttiBfloat16);
        if (r < 3) {
            for (int s = 0; s < 2; ++s) rank.step(s);
            must_succeed(tuttiDpSave(rank.dp, scratch.path.c_str()), "save");
            for (int s = 2; s < 4; ++s) rank.step(s);
            stepped.wait();
        }
        if (r == 0) return rank.leave();
        if (r < 3)
            check(rank.pass(4) == tuttiRemoteError || tuttiDpStep(rank.dp) == tuttiRemoteError, "the server is gone");
        must_succeed(rank.move(again, r % 3, 3), "with a new server");
        check(rank.steps() == 2, "the checkpoint's");
        for (int s = 2; s < 5; ++s) rank.step(s);
        right += rank.weights() == expected;
    });
    REQUIRE(right == 3);
}

TEST_CASE("a newcomer gets rates, groups and notes as they are now") {
    tuttiDpGroup_t at_first = {1, 0};
    const tuttiDpGroup_t later = {0.5, 0.25};
    for (const auto mode : {tuttiDpBucketed, tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero3}) {
        CAPTURE(mode);
        tuttiDpConfig_t config = harness::config_for(mode);
        config.groups = &at_first;
        config.groupCount = 1;
        const auto change = [&](Mover& rank) {
            must_succeed(tuttiDpSetLearningRate(rank.dp, 0.03125), "rate");
            must_succeed(tuttiDpSetGroup(rank.dp, 0, &later), "group");
        };
        const std::vector<float> expected = [&] {
            tuttiDpConfig_t naive = config;
            naive.mode = tuttiDpNaive;
            Mover rank(new_id(), 0, 1, naive, tuttiFloat32);
            rank.step(0);
            change(rank);
            for (int s = 1; s < 4; ++s) rank.step(s);
            return rank.weights();
        }();
        const tuttiUniqueId two = new_id(), single = new_id(), all = new_id();
        std::atomic<int> right{0};
        harness::run(3, [&](int r) {
            Mover rank(r < 2 ? two : single, r < 2 ? r : 0, r < 2 ? 2 : 1, config, tuttiFloat32);
            if (r < 2) {
                rank.step(0);
                change(rank);
                rank.step(1);
                if (r == 0) must_succeed(tuttiDpSetNote(rank.dp, "epoch", "the fourth"), "note");
            }
            must_succeed(rank.move(all, (r + 1) % 3, 3), "more, and the newcomer is rank 0");
            for (int s = 2; s < 4; ++s) rank.step(s);
            right += rank.weights() == expected && note(rank) == "the fourth";
        });
        REQUIRE(right == 3);
    }
}

TEST_CASE("ranks save together if compression has kept something on some of them only") {
    const Scratch scratch;
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero1}) {
        CAPTURE(mode);
        tuttiDpConfig_t config = harness::config_for(mode);
        config.compression = tuttiDpTopK;
        const tuttiUniqueId two = new_id(), single = new_id(), three = new_id();
        harness::run(3, [&](int r) {
            Mover rank(r < 2 ? two : single, r < 2 ? r : 0, r < 2 ? 2 : 1, config, tuttiFloat32);
            if (r < 2) rank.step(0);
            must_succeed(rank.move(three, r, 3), "a newcomer");
            must_succeed(tuttiDpSave(rank.dp, scratch.path.c_str()), "save");
            const std::vector<float> saved = rank.weights();
            rank.step(1);
            const std::vector<float> next = rank.weights();
            must_succeed(tuttiDpLoad(rank.dp, scratch.path.c_str()), "load");
            check(rank.weights() == saved, "as saved");
            rank.step(1);
            check(rank.weights() == next, "with what was kept");
        });
    }
}

TEST_CASE("a move that fails half-way is made again with those that are left") {
    tuttiDpConfig_t config = harness::config_for(tuttiDpZero3);
    config.shardRanks = 1;
    config.fp32Gradients = 1;
    const std::vector<tuttiDpParameter_t> given = registered(tuttiFloat32);
    const std::vector<float> expected = alone(config, tuttiFloat32, 3);
    const tuttiUniqueId first = new_id(), second = new_id(), third = new_id();
    std::atomic<int> right{0};
    harness::Rendezvous stepped(3);
    harness::run(3, [&](int r) {
        Mover rank(first, r, 3, config, tuttiFloat32);
        for (int s = 0; s < 2; ++s) rank.step(s);
        stepped.wait();
        if (r == 2) {
            rank.leave();
            const tuttiComm_t comm = harness::join(second, 2, 3, true);
            die_in_a_move(comm, given, config);
            tuttiCommAbort(comm);
            return;
        }
        check(rank.move(second, r, 3) == tuttiRemoteError, "rank 2 is gone");
        check(tuttiDpAbandon(rank.dp) == tuttiInvalidUsage && says("half-way"), "a move is under way");
        must_succeed(rank.move(third, r, 2), "again");
        check(rank.steps() == 2, "nothing is lost");
        rank.step(2);
        right += rank.weights() == expected;
    });
    REQUIRE(right == 2);
}

TEST_CASE("moves that can't be are refused, and the layer goes on where it is") {
    const struct {
        const char* word;
        tuttiResult_t result;
        void (*change)(tuttiDpConfig_t&);
    } cases[] = {
        {"too few for config.server", tuttiInvalidUsage,
         [](auto& c) { c.mode = tuttiDpServer, c.server = 2, c.staleness = 1; }},
        {"too few for config.server", tuttiInvalidUsage, [](auto& c) { c.mode = tuttiDpServer, c.server = 2; }},
        {"too few for config.servers", tuttiInvalidUsage,
         [](auto& c) { c.mode = tuttiDpShardedServer, c.servers = 3; }},
        {"too few for config.dedicated", tuttiInvalidUsage,
         [](auto& c) { c.mode = tuttiDpShardedServer, c.servers = 2, c.dedicated = 1; }},
    };
    for (const auto& c : cases) {
        CAPTURE(c.word);
        tuttiDpConfig_t config = harness::config_for(tuttiDpZero1);
        c.change(config);
        const tuttiUniqueId three = new_id(), two = new_id();
        std::atomic<int> told{0}, stepped{0};
        harness::Rendezvous refused(3), done(3);
        harness::run(3, [&](int r) {
            Mover rank(three, r, 3, config, tuttiFloat32);
            rank.step(0);
            if (r < 2) told += rank.move(two, r, 2) == c.result && says(c.word);
            refused.wait();
            rank.step(1);
            must_succeed(tuttiDpWait(rank.dp), "wait");
            stepped += rank.steps() == 2;
            done.wait();
        });
        REQUIRE(told == 2);
        REQUIRE(stepped == 3);
    }
}

TEST_CASE("GPUs: parts move through the host to their owners, with the bits of CPUs that stay", "[long]") {
    for (const bool mixed : {false, true})
        for (const auto mode : {tuttiDpZero1, tuttiDpZero3}) {
            CAPTURE(mixed, mode);
            harness::Gpus g(mode, tuttiDpAdamW, mixed ? std::vector{0, -1, 1} : std::vector{0, 1, 0});
            g.setup.type = tuttiBfloat16;
            g.setup.config.elastic = 1;
            g.setup.config.offload = mode == tuttiDpZero1;
            REQUIRE(g.moving().weights == g.on_cpus().weights);
        }
}

TEST_CASE("after a load that has failed half-way: the last checkpoint, or a refusal, as there is nothing whole") {
    const Scratch scratch;
    const std::string theirs = scratch.path / "theirs", ours = scratch.path / "ours";
    std::filesystem::create_directories(scratch.path);
    for (const auto mode : {tuttiDpNaive, tuttiDpBucketed, tuttiDpZero1, tuttiDpZero2, tuttiDpZero3})
        for (const bool saved : {false, true}) {
            CAPTURE(mode, saved);
            const tuttiDpConfig_t config = harness::config_for(mode);
            const bool replicated = mode == tuttiDpNaive || mode == tuttiDpBucketed;
            const tuttiUniqueId two = new_id(), again = new_id();
            std::atomic<int> right{0};
            harness::run(2, [&](int r) {
                // Values that can be read but not written: what Load finds out when all has been checked.
                const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
                void* const memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                check(memory != MAP_FAILED, "memory");
                const std::vector<tuttiDpParameter_t> parameters = {
                    {"w", nullptr, nullptr, 1000, tuttiFloat32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpTrained},
                    {"frozen", memory, nullptr, 3, tuttiInt32, tuttiDpSameType, 0, 0, 0, {}, tuttiDpFrozen}};
                const tuttiComm_t first = harness::join(two, r, 2, true), second = harness::join(again, r, 2, true);
                tuttiDp_t dp = nullptr;
                must_succeed(tuttiDpCreate(&dp, parameters.data(), 2, &config, first), "create");
                must_succeed(tuttiDpSave(dp, theirs.c_str()), "save");
                must_succeed(tuttiDpDestroy(dp), "destroy");
                must_succeed(tuttiDpCreate(&dp, parameters.data(), 2, &config, first), "create");
                const auto step = [&] {
                    must_succeed(tuttiDpBegin(dp), "begin");
                    std::fill_n(gradient(dp, 0), 1000, 1.0f);
                    must_succeed(tuttiDpGradReady(dp, 0), "ready");
                    end_iteration(dp);
                };
                step();
                if (saved) must_succeed(tuttiDpSave(dp, ours.c_str()), "save");
                step();
                check(mprotect(memory, page, PROT_READ) == 0, "mprotect");
                check(tuttiDpLoad(dp, theirs.c_str()) != tuttiSuccess && says("can't be read"), "half of a load");
                check(mprotect(memory, page, PROT_READ | PROT_WRITE) == 0, "mprotect");
                check(tuttiDpBegin(dp) != tuttiSuccess && says("can't be read"), "the layer has ended");
                check(tuttiDpAbandon(dp) == tuttiInvalidUsage,
                      std::string("nothing to go on with: ") + tuttiGetLastError(nullptr));
                const tuttiResult_t moved = tuttiDpMove(dp, second);
                const tuttiDpStatistics_t s = statistics(dp);
                right += !replicated && saved
                             ? moved == tuttiSuccess && s.steps == 1
                             : moved == tuttiInvalidUsage && says(replicated ? "half-way" : "no remaining rank has");
                tuttiDpDestroy(dp);
                tuttiCommDestroy(first);
                tuttiCommDestroy(second);
                munmap(memory, page);
            });
            REQUIRE(right == 2);
        }
}
