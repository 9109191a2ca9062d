// All modes train the same model.
#include "dp/training.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// 12 slices can be dealt to all of these. Sanitizers see in three ranks what they see in others.
constexpr int least_ranks = harness::sanitized ? 3 : 1, most_ranks = harness::sanitized ? 3 : 4;

struct Mode {
    const char* name;
    tuttiDpMode_t mode;
    int servers = TUTTI_UNDEF_INT, server = TUTTI_UNDEF_INT, dedicated = TUTTI_UNDEF_INT, staleness = TUTTI_UNDEF_INT;
};
const Mode modes[] = {
    {"naive", tuttiDpNaive},
    {"bucketed", tuttiDpBucketed},
    {"server", tuttiDpServer},
    {"last rank serves", tuttiDpServer, TUTTI_UNDEF_INT, -1},
    {"dedicated server", tuttiDpServer, TUTTI_UNDEF_INT, 0, 1},
    {"one of several serves", tuttiDpShardedServer, 1},
    {"all but one serve", tuttiDpShardedServer, -1},
    {"sharded", tuttiDpShardedServer},
    {"asynchronous, staleness 0", tuttiDpShardedServer, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, 0},
    {"asynchronous server, staleness 0", tuttiDpServer, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, 0},
    {"ZeRO-1", tuttiDpZero1},
    {"ZeRO-2", tuttiDpZero2},
    {"ZeRO-3", tuttiDpZero3}};

/// -1: what depends on the number of ranks.
void configure(Setup& setup, const Mode& mode) {
    setup.config.mode = mode.mode;
    setup.config.servers = mode.servers == -1 ? std::max(1, setup.ranks - 1) : mode.servers;
    setup.config.server = mode.server == -1 ? setup.ranks - 1 : mode.server;
    setup.config.dedicated = mode.dedicated;
    setup.config.staleness = mode.staleness;
}

}  // namespace

TEST_CASE("every synchronous mode has the bits of one rank that adds the gradients in the same order") {
    int variant = 0;
    for (int n = least_ranks; n <= most_ranks; ++n) {
        Setup setup;
        setup.ranks = n;
        setup.config = harness::config_for(tuttiDpNaive);
        const Trained alone = harness::train_alone(setup);
        for (const Mode& mode : modes) {
            if (mode.dedicated == 1) continue;
            CAPTURE(n, mode.name);
            configure(setup, mode);
            setup.own_data = (variant & 1) != 0;
            setup.own_grad = (++variant & 2) != 0;
            const Trained together = harness::train(setup);
            REQUIRE(together.weights == alone.weights);
            for (std::size_t step = 0; step < alone.losses.size(); ++step)
                REQUIRE(together.losses[step] == Approx(alone.losses[step]).epsilon(1e-9));
        }
    }
}

TEST_CASE("a dedicated server has no batch, and the mean is over the others") {
    for (int n : {2, 3}) {
        Setup setup;
        setup.ranks = n;
        setup.config = harness::config_for(tuttiDpServer);
        setup.config.dedicated = 1;
        const Trained alone = harness::train_alone(setup);
        for (int staleness : {TUTTI_UNDEF_INT, 0}) {
            setup.config.staleness = staleness;
            // Sums differ where the server's zeros come first: 0 + x is x.
            REQUIRE(harness::train(setup).weights == alone.weights);
        }
    }
}

TEST_CASE("one all-gather of all gradients in place of all-reduces has the same bits") {
    for (int n = least_ranks; n <= most_ranks; ++n)
        for (const tuttiDataType_t type :
             {tuttiFloat32, tuttiFloat64, tuttiBfloat16}) {  // the last is reduced as it is
            Setup setup;
            setup.ranks = n;
            setup.type = type;
            setup.config = harness::config_for(tuttiDpBucketed);
            setup.config.bucketBytes = setup.config.firstBucketBytes = std::size_t{1} << 20;
            const Trained reduced = harness::train(setup);
            setup.config.compression = tuttiDpAllGather;
            const Trained gathered = harness::train(setup);
            CAPTURE(n, type);
            REQUIRE(gathered.weights == reduced.weights);
            REQUIRE(gathered.statistics[0].buckets == 1);
        }
}

TEST_CASE("several dedicated servers: the mean is over the others") {
    for (const int servers : {1, 2, 3}) {
        Setup setup;
        setup.ranks = servers + 2;
        setup.config = harness::config_for(tuttiDpShardedServer);
        setup.config.servers = servers;
        setup.config.dedicated = 1;
        const Trained alone = harness::train_alone(setup);
        for (int staleness : {TUTTI_UNDEF_INT, 0}) {
            CAPTURE(servers, staleness);
            setup.config.staleness = staleness;
            REQUIRE(harness::train(setup).weights == alone.weights);
        }
    }
}

TEST_CASE("all modes come to the same as the whole batch at once, whatever the optimizer") {
    for (const auto optimizer : {tuttiDpSgd, tuttiDpMomentum, tuttiDpAdam}) {
        Setup setup;
        setup.steps = 6;
        setup.config = harness::config_for(tuttiDpNaive, optimizer);
        const Trained whole = harness::train(setup);
        REQUIRE(whole.losses.back() < whole.losses.front());
        setup.ranks = 3;
        setup.reproducible = false;
        for (const auto mode : {tuttiDpBucketed, tuttiDpServer, tuttiDpZero3}) {
            CAPTURE(optimizer, mode);
            setup.config.mode = mode;
            const Trained together = harness::train(setup);
            REQUIRE(harness::difference(together, whole) < 1e-4);
            for (std::size_t step = 0; step < whole.losses.size(); ++step)
                REQUIRE(together.losses[step] == Approx(whole.losses[step]).epsilon(1e-6));
        }
    }
}

TEST_CASE("accumulation: k micro-batches are one batch of k") {
    for (const auto mode : {tuttiDpNaive, tuttiDpBucketed, tuttiDpShardedServer, tuttiDpZero2, tuttiDpZero3}) {
        for (bool own_grad : {false, true}) {
            CAPTURE(mode, own_grad);
            Setup setup;
            setup.ranks = 2;
            setup.own_grad = own_grad;
            setup.config = harness::config_for(mode, tuttiDpMomentum);
            const Trained once = harness::train(setup);
            setup.config.microBatches = 3;
            const Trained thrice = harness::train(setup);
            // Another order of additions: near, but not the same bits...
            REQUIRE(harness::difference(thrice, once) < 1e-5);
            // ...which naive has, too.
            setup.config.mode = tuttiDpNaive;
            REQUIRE(harness::train(setup).weights == thrice.weights);
        }
    }
}

TEST_CASE("parameters of 16 bits: masters, and main gradients with one rounding") {
    for (const auto type : {tuttiBfloat16, tuttiFloat16}) {
        Setup setup;
        setup.ranks = 3;
        setup.type = type;
        setup.config = harness::config_for(tuttiDpNaive);
        const Trained rounded = harness::train(setup);
        setup.own_grad = true;
        setup.config.fp32Gradients = 1;
        const Trained alone = harness::train_alone(setup);
        for (const auto mode : {tuttiDpNaive, tuttiDpBucketed, tuttiDpServer, tuttiDpZero1, tuttiDpZero3}) {
            CAPTURE(type, mode);
            setup.config.mode = mode;
            REQUIRE(harness::train(setup).weights == alone.weights);
        }
        REQUIRE(harness::difference(rounded, alone) < 0.05);  // 16 bits, added in 16 bits
        setup.own_grad = false;                               // written as fp32 at once
        REQUIRE(harness::difference(harness::train(setup), alone) < 0.01);
    }
}

TEST_CASE("types and doubles") {
    Setup setup;
    setup.ranks = 2;
    setup.type = tuttiFloat64;
    setup.config = harness::config_for(tuttiDpZero2);
    REQUIRE(harness::train(setup).weights == harness::train_alone(setup).weights);
    setup.type = tuttiFloat32;  // gradients of another type than the values
    setup.grad_type = tuttiBfloat16;
    const Trained coarse = harness::train(setup);
    setup.grad_type = tuttiFloat32;
    REQUIRE(harness::difference(coarse, harness::train(setup)) < 0.2);
}

TEST_CASE("clipping: the norm is over all shards, and has the bits of one rank", "[long]") {
    for (int n = least_ranks; n <= most_ranks; ++n)
        for (const tuttiDataType_t type : {tuttiFloat32, tuttiBfloat16}) {
            Setup setup;
            setup.ranks = n;
            setup.type = type;
            setup.config = harness::config_for(tuttiDpNaive, tuttiDpSgd);
            setup.config.clipNorm = 0.5;
            setup.config.fp32Gradients = 1;
            setup.config.lossScale = 8;
            const Trained alone = harness::train_alone(setup);
            REQUIRE(alone.statistics[0].norm > 0.5);  // or nothing was tried
            for (const Mode& mode : modes) {
                if (mode.dedicated == 1 || mode.staleness == 0) continue;
                CAPTURE(n, type, mode.name);
                configure(setup, mode);
                const Trained together = harness::train(setup);
                for (const tuttiDpStatistics_t& its : together.statistics)
                    REQUIRE(its.norm == alone.statistics[0].norm);
                REQUIRE(together.weights == alone.weights);
            }
        }
}

TEST_CASE("a sum instead of a mean; groups with rates of their own") {
    Setup setup;
    setup.ranks = 2;
    setup.config = harness::config_for(tuttiDpZero1, tuttiDpSgd);
    const Trained mean = harness::train(setup);
    setup.config.sum = 1;
    setup.config.optimizer.learningRate /= 2;
    setup.config.optimizer.weightDecay = 0;
    tuttiDpGroup_t group{1, 0.02};
    setup.config.groups = &group;
    setup.config.groupCount = 1;
    REQUIRE(harness::difference(harness::train(setup), mean) < 1e-5);
}

TEST_CASE("memory of ZeRO is what the formulas say: 2P + 2P + 12P bytes with masters and Adam") {
    const std::size_t count = harness::sanitized ? 4000 : 40000;
    const double p = 3.0 * static_cast<double>(count);
    for (int n : {1, 2, 4}) {
        const struct {
            const char* name;
            tuttiDpMode_t mode;
            double parameters, gradients, states;
        } rows[] = {{"bucketed", tuttiDpBucketed, 2 * p, 2 * p, 12 * p},
                    {"ZeRO-1", tuttiDpZero1, 2 * p, 2 * p, 12 * p / n},
                    {"ZeRO-2", tuttiDpZero2, 2 * p, 2 * p / n, 12 * p / n},
                    {"ZeRO-3", tuttiDpZero3, 2 * p / n, 2 * p / n, 12 * p / n}};
        for (const auto& row : rows) {
            Setup setup;
            setup.ranks = n;
            setup.steps = 1;
            setup.slices = 4;
            setup.counts = {count, count, count};
            setup.type = tuttiBfloat16;
            setup.own_data = false;
            setup.config = harness::config_for(row.mode);
            const tuttiDpMemory_t m = harness::train(setup).memory[0];
            CAPTURE(n, row.name);
            WARN(row.name << ", " << n << " ranks: " << m.parameters << " + " << m.gradients << " + " << m.states
                          << " bytes (formula " << row.parameters << " + " << row.gradients << " + " << row.states
                          << "), transient " << m.transient);
            const double slack = 64.0 * 3 * 4;  // shards and parameters begin in cache lines
            REQUIRE(std::abs(static_cast<double>(m.parameters) - row.parameters) <= slack);
            REQUIRE(std::abs(static_cast<double>(m.gradients) - row.gradients) <= slack);
            REQUIRE(std::abs(static_cast<double>(m.states) - row.states) <= 6 * slack);
        }
    }
}
