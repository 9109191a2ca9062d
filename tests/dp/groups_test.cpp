// ZeRO in groups: each has a copy of all shards (HSDP).
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "dp/on_gpus.hpp"
#include "dp/on_ranks.hpp"
#include "dp/owners.hpp"
#include "dp/training.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr tuttiDpMode_t zeros[] = {tuttiDpZero1, tuttiDpZero2, tuttiDpZero3};

struct Scratch {
    Scratch() : path(std::filesystem::temp_directory_path() / ("tutti-groups-" + std::to_string(getpid()))) {}
    ~Scratch() { std::filesystem::remove_all(path); }
    const std::filesystem::path path;
};

}  // namespace

TEST_CASE("groups: each rank has one shard, each group all of them") {
    dp::Options o{};
    o.mode = tuttiDpZero3;
    o.shardRanks = 2;
    const std::vector<std::uint64_t> hosts = {7, 9, 9, 7, 7, 9};
    std::vector<dp::Shards> all = dp::deal_shards(o, hosts, true);
    REQUIRE(all.size() == 6);
    for (int r = 0; r < 6; ++r) {
        const dp::Shards& s = all[static_cast<std::size_t>(r)];
        REQUIRE((s.owners == 2 && s.own == r % 2 && s.copies == 3 && s.copy == r / 2));
    }
    o.shardRanks = TUTTI_DP_SHARD_HOST;
    all = dp::deal_shards(o, hosts, true);
    const int places[] = {0, 0, 1, 1, 2, 2}, groups[] = {0, 1, 1, 0, 0, 1};
    for (std::size_t r = 0; r < 6; ++r)
        REQUIRE((all[r].owners == 3 && all[r].own == places[r] && all[r].copies == 2 && all[r].copy == groups[r]));
    const std::uint64_t uneven[] = {1, 1, 2};
    REQUIRE_THROWS_WITH(dp::deal_shards(o, uneven, true), Catch::Matchers::Contains("2 ranks, and another one 1"));
    REQUIRE(dp::deal_shards(o, uneven, false)[2].owners == 3);  // after a death they are one group
    o.shardRanks = 4;
    REQUIRE_THROWS_WITH(dp::deal_shards(o, hosts, true), Catch::Matchers::Contains("there are 6 ranks"));
    REQUIRE(dp::deal_shards(o, hosts, false)[5].own == 5);
    REQUIRE(dp::deal_shards(o, {hosts.data(), 1}, true)[0].owners == 1);  // as newcomers begin
}

TEST_CASE("groups: the bits of one rank, for every size of groups that there can be", "[exhaustive][long]") {
    int variant = 0;
    for (int n = 1; n <= 4; ++n) {
        Setup setup;
        setup.ranks = n;
        setup.config = harness::config_for(tuttiDpNaive);
        const Trained alone = harness::train_alone(setup);
        for (const auto mode : zeros)
            for (int size = 1; size <= n; ++size) {
                if (n % size != 0) continue;
                CAPTURE(n, mode, size);
                setup.config.mode = mode;
                setup.config.shardRanks = size;
                setup.own_data = (variant & 1) != 0;
                setup.own_grad = (++variant & 2) != 0;
                REQUIRE(harness::train(setup).weights == alone.weights);
                setup.config.hierarchical = 1;  // the same numbers in another order
                REQUIRE(harness::difference(harness::train(setup), alone) < 1e-5);
                setup.config.hierarchical = TUTTI_UNDEF_INT;
            }
    }
}

TEST_CASE("groups: masters, fp32 gradients, micro-batches, loss scaling and an overflow, with the same bits",
          "[exhaustive][long]") {
    for (const auto type : {tuttiBfloat16, tuttiFloat16})
        for (const bool main : {false, true}) {
            Setup setup;
            setup.ranks = 4;
            setup.type = type;
            setup.config = harness::config_for(tuttiDpNaive);
            setup.config.lossScale = 1024;
            setup.config.fp32Gradients = main;
            setup.config.microBatches = 3;
            // In the second step one rank's gradient overflows, and nobody makes it.
            setup.spoils = [](int rank, int step, std::size_t p) { return rank == 3 && step == 1 && p == 5; };
            setup.config.mode = tuttiDpZero2;
            const Trained whole = harness::train(setup);
            REQUIRE(whole.statistics[0].steps == setup.steps - 1);
            for (const auto mode : zeros) {
                CAPTURE(type, main, mode);
                setup.config.mode = mode;
                setup.config.shardRanks = 2;
                REQUIRE(harness::train(setup).weights == whole.weights);
                setup.config.hierarchical = 1;
                REQUIRE(harness::difference(harness::train(setup), whole) < 0.05);
                setup.config.hierarchical = setup.config.shardRanks = TUTTI_UNDEF_INT;
            }
        }
}

TEST_CASE("groups: doubles, frozen parameters, unused ones") {
    Setup setup;
    setup.ranks = 4;
    setup.type = tuttiFloat64;
    setup.config = harness::config_for(tuttiDpZero3);
    setup.config.findUnusedParameters = 1;
    setup.skips = [](int rank, int step, std::size_t p) { return p == 3 ? rank != 1 : p == 4 && step != 2; };
    const Trained whole = harness::train(setup);
    for (const int size : {1, 2}) {
        setup.config.shardRanks = size;
        REQUIRE(harness::train(setup).weights == whole.weights);
    }
}

TEST_CASE("groups: the norm counts one copy of each shard") {
    Setup setup;
    setup.ranks = 4;
    setup.config = harness::config_for(tuttiDpNaive, tuttiDpSgd);
    setup.config.clipNorm = 0.5;
    const Trained alone = harness::train_alone(setup);
    REQUIRE(alone.statistics[0].norm > 0.5);  // or nothing was tried
    for (const auto mode : zeros) {
        CAPTURE(mode);
        setup.config.mode = mode;
        setup.config.shardRanks = 2;
        const Trained together = harness::train(setup);
        REQUIRE(together.statistics[3].norm == together.statistics[0].norm);
        REQUIRE(together.statistics[3].norm == alone.statistics[0].norm);
        REQUIRE(together.weights == alone.weights);
    }
}

TEST_CASE("groups: compressed gradients are those of ranks that share out all", "[exhaustive][long]") {
    for (const auto kind : {tuttiDpFp16, tuttiDpBf16, tuttiDpFp8, tuttiDpTopK, tuttiDpPowerSgd, tuttiDpAllGather}) {
        Setup setup;
        setup.ranks = 4;
        setup.config = harness::config_for(tuttiDpZero2);
        setup.config.compression = kind;
        setup.config.topK = 0.5;
        const Trained whole = harness::train(setup);
        for (const int hierarchical : {0, 1}) {
            CAPTURE(kind, hierarchical);
            setup.config.shardRanks = 2;
            setup.config.hierarchical = hierarchical;
            const Trained grouped = harness::train(setup);
            // Shards of other sizes pad buckets with other zeros, so top-k's part and PowerSGD's rows differ.
            const bool cut_alike = kind != tuttiDpTopK && kind != tuttiDpPowerSgd;
            REQUIRE((!cut_alike || hierarchical == 1 || grouped.weights == whole.weights));
            REQUIRE(harness::difference(grouped, whole) < 0.2);
        }
    }
}

TEST_CASE("GPUs: groups have the bits of CPUs, with a CPU among the ranks, and offloaded states, too", "[long]") {
    using Devices = std::vector<int>;
    const Devices gpus = harness::sanitized ? Devices{0, 1} : Devices{0, 1, 0, 1};
    for (const bool mixed : {false, true}) {
        harness::Gpus g(tuttiDpZero2, tuttiDpAdamW, mixed ? Devices{0, -1, 1, 0} : gpus);
        g.setup.type = tuttiBfloat16;
        g.setup.steps = 2;
        g.setup.config.shardRanks = static_cast<int>(gpus.size() / 2);
        g.setup.config.clipNorm = 0.5;
        for (const auto mode : {tuttiDpZero1, tuttiDpZero3})
            for (const int hierarchical : {0, 1}) {
                CAPTURE(mixed, mode, hierarchical);
                g.setup.config.mode = mode;
                g.setup.config.hierarchical = hierarchical;
                g.setup.config.offload = mode == tuttiDpZero1;
                const Trained there = harness::train(g.setup), here = g.on_cpus();
                REQUIRE(there.weights == here.weights);
                REQUIRE(there.statistics[1].norm == here.statistics[0].norm);
            }
    }
}

TEST_CASE("groups: memory is that of as many ranks as a group has") {
    const std::size_t count = harness::sanitized ? 4000 : 40000;
    const double p = 3.0 * static_cast<double>(count), g = 2;
    const struct {
        tuttiDpMode_t mode;
        double parameters, gradients;
    } rows[] = {{tuttiDpZero1, 2 * p, 2 * p}, {tuttiDpZero2, 2 * p, 2 * p / g}, {tuttiDpZero3, 2 * p / g, 2 * p / g}};
    for (const auto& row : rows) {
        Setup setup;
        setup.ranks = 4;
        setup.steps = 1;
        setup.slices = 4;
        setup.counts = {count, count, count};
        setup.type = tuttiBfloat16;
        setup.own_data = false;
        setup.config = harness::config_for(row.mode);
        setup.config.shardRanks = 2;
        for (const tuttiDpMemory_t& m : harness::train(setup).memory) {
            CAPTURE(row.mode, m.parameters, m.gradients, m.states);
            const double slack = 64.0 * 3 * 4;
            REQUIRE(std::abs(static_cast<double>(m.parameters) - row.parameters) <= slack);
            REQUIRE(std::abs(static_cast<double>(m.gradients) - row.gradients) <= slack);
            REQUIRE(std::abs(static_cast<double>(m.states) - 12 * p / g) <= 6 * slack);
        }
    }
}

TEST_CASE("groups: a checkpoint is written once, by all, and goes on with other ranks, groups and modes",
          "[exhaustive][long]") {
    const Scratch folder;
    Setup setup;
    setup.ranks = 4;
    setup.type = tuttiBfloat16;  // with masters
    setup.config = harness::config_for(tuttiDpZero3);
    setup.steps = 6;
    const Trained straight = harness::train(setup);
    struct Way {
        tuttiDpMode_t mode;
        int size;
    };
    const Way ways[] = {{tuttiDpZero3, 2}, {tuttiDpZero1, 1}, {tuttiDpZero2, TUTTI_UNDEF_INT}, {tuttiDpBucketed, 0}};
    for (const Way& from : ways)
        for (const Way& to : ways) {
            CAPTURE(from.mode, from.size, to.mode, to.size);
            Setup first = setup, second = setup;
            first.config.mode = from.mode;
            first.config.shardRanks = from.size;
            first.steps = 3;
            first.after = [&](int, int step, tuttiDp_t dp) {
                if (step == 2) harness::must_succeed(tuttiDpSave(dp, folder.path.c_str()), "save");
            };
            harness::train(first);
            second.config.mode = to.mode;
            second.config.shardRanks = to.size;
            second.first_step = 3;
            second.created = [&](int, tuttiDp_t dp) {
                harness::must_succeed(tuttiDpLoad(dp, folder.path.c_str()), "load");
            };
            REQUIRE(harness::train(second).weights == straight.weights);
        }
    // A change is seen by every copy.
    std::filesystem::path file;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path))
        if (entry.path().filename().string().starts_with("optimizer-")) file = entry.path();
    {
        std::fstream last(file, std::ios::binary | std::ios::in | std::ios::out);
        last.seekg(-1, std::ios::end);
        const int byte = last.get();
        last.seekp(-1, std::ios::end);
        last.put(static_cast<char>(byte ^ 1));
    }
    tuttiDpConfig_t config = harness::config_for(tuttiDpZero3);
    config.shardRanks = 2;
    std::atomic<int> refused{0};
    Setup torn = setup;
    torn.config = config;
    torn.steps = 0;
    torn.created = [&](int, tuttiDp_t dp) {
        refused += tuttiDpLoad(dp, folder.path.c_str()) == tuttiInvalidUsage && harness::says("torn or was changed");
    };
    harness::train(torn);
    REQUIRE(refused == 4);
}

TEST_CASE("groups: an iteration that is given up, equality, a NaN") {
    tuttiDpConfig_t config = harness::config_for(tuttiDpZero2, tuttiDpSgd);
    config.shardRanks = 2;
    harness::Rendezvous equal(4);  // who gives up must not do so while others compare
    harness::on_ranks(4, harness::three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
        const auto pass = [&](float g) {
            harness::must_succeed(tuttiDpBegin(dp), "begin");
            for (std::size_t p : {2, 1, 0})
                if (const tuttiResult_t result = harness::offer(dp, p, g); result != tuttiSuccess) return result;
            return tuttiDpSynchronize(dp);
        };
        harness::must_succeed(pass(1), "a pass");
        harness::must_succeed(tuttiDpStep(dp), "step");
        harness::must_succeed(tuttiDpCheckEqual(dp), "equal");
        equal.wait();
        if (r == 3)
            harness::must_succeed(tuttiDpBegin(dp), "begin");
        else
            harness::check(pass(1) == tuttiRemoteError, "rank 3 gives up");
        harness::must_succeed(tuttiDpAbandon(dp), "abandon");
        harness::must_succeed(pass(r == 2 ? INFINITY : 1), "a pass");
        int rank = -1;
        std::size_t parameter = 0;
        harness::must_succeed(tuttiDpFindNan(dp, &rank, &parameter), "find");
        harness::check(rank >= 0, "somebody has it");
    });
}

TEST_CASE("groups: what makes no sense is refused on all ranks, and names the field") {
    const struct {
        const char* word;
        int ranks;
        void (*change)(tuttiDpConfig_t&);
    } cases[] = {{"config.shardRanks is for", 2, [](auto& c) { c.mode = tuttiDpBucketed, c.shardRanks = 1; }},
                 {"config.shardRanks is 3; -1 to 2", 2, [](auto& c) { c.shardRanks = 3; }},
                 {"there are 3 ranks", 3, [](auto& c) { c.shardRanks = 2; }},
                 {"config.hierarchical needs", 2, [](auto& c) { c.hierarchical = 1; }}};
    for (const auto& c : cases) {
        CAPTURE(c.word);
        const tuttiUniqueId id = new_id();
        std::atomic<int> told{0};
        harness::run(c.ranks, [&](int r) {
            tuttiComm_t comm = harness::join(id, r, c.ranks, true);
            tuttiDpConfig_t config = harness::config_for(tuttiDpZero1);
            c.change(config);
            const auto parameters = harness::three();
            tuttiDp_t dp = nullptr;
            told += tuttiDpCreate(&dp, parameters.data(), 3, &config, comm) == tuttiInvalidArgument &&
                    harness::says(c.word);
            harness::must_succeed(tuttiBarrier(comm, nullptr), "the communicator is as it was");
            tuttiCommDestroy(comm);
        });
        REQUIRE(told == c.ranks);
    }
}
