// Updates of whole parameters: config.wholeUpdates and tuttiDpMuon. Each parameter has one owner.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "dp/layout.hpp"
#include "dp/on_gpus.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr tuttiDpMode_t all_modes[] = {tuttiDpNaive, tuttiDpBucketed, tuttiDpServer, tuttiDpShardedServer,
                                       tuttiDpZero1, tuttiDpZero2,    tuttiDpZero3};

/// An optimizer that needs all of a parameter: a step along its gradient, which is made as long as its largest weight,
/// with a momentum. Refuses pieces.
struct Longest {
    const std::vector<std::size_t>& counts;

    static tuttiResult_t update(void* user, const tuttiDpPiece_t* piece) {
        const auto& self = *static_cast<const Longest*>(user);
        if (piece->first != 0 || piece->count != self.counts[piece->parameter]) return tuttiInvalidArgument;
        float largest = 0.01f;
        for (std::size_t i = 0; i < piece->count; ++i) largest = std::max(largest, std::fabs(piece->weights[i]));
        for (std::size_t i = 0; i < piece->count; ++i) {
            piece->state0[i] = 0.5f * piece->state0[i] + piece->gradients[i];
            piece->state1[i] += 1;
            piece->weights[i] -= static_cast<float>(piece->learningRate) * largest * piece->state0[i];
        }
        return piece->state1[0] == static_cast<float>(piece->step) ? tuttiSuccess : tuttiInternalError;
    }
};

Setup whole_setup(tuttiDpMode_t mode, int ranks, Longest& longest) {
    Setup s;
    s.ranks = ranks;
    s.config = config_for(mode, tuttiDpCallback);
    s.config.wholeUpdates = 1;
    s.config.optimizer.update = Longest::update;
    s.config.optimizer.user = &longest;
    return s;
}

using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& x, const Matrix& y) {
    Matrix z(x.size(), std::vector<double>(y[0].size()));
    for (std::size_t i = 0; i < z.size(); ++i)
        for (std::size_t j = 0; j < z[0].size(); ++j)
            for (std::size_t k = 0; k < y.size(); ++k) z[i][j] += x[i][k] * y[k][j];
    return z;
}

Matrix turned(const Matrix& x) {
    Matrix z(x[0].size(), std::vector<double>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i)
        for (std::size_t j = 0; j < x[0].size(); ++j) z[j][i] = x[i][j];
    return z;
}

/// Slow, in fp64, without transposing: X (a + b X'X + c (X'X)^2) five times.
Matrix orthogonal(Matrix x) {
    double squares = 0;
    for (const auto& row : x)
        for (const double each : row) squares += each * each;
    for (auto& row : x)
        for (double& each : row) each /= std::sqrt(squares) + 1e-7;
    for (int step = 0; step < 5; ++step) {
        Matrix gram = product(turned(x), x), square = product(gram, gram);
        for (std::size_t i = 0; i < gram.size(); ++i)
            for (std::size_t j = 0; j < gram.size(); ++j)
                gram[i][j] = -4.7750 * gram[i][j] + 2.0315 * square[i][j] + (i == j ? 3.4445 : 0);
        x = product(x, gram);
    }
    return x;
}

/// Trains matrices on ranks, all of which have gradients that depend on the weights and their number.
struct MuonRun {
    struct Parameter {
        const char* name;
        std::vector<std::size_t> shape;
        int group;
    };
    std::vector<Parameter> parameters = {{"wide", {5, 24}, 0},   {"tall", {40, 8}, 0},  {"bias", {24}, 1},
                                         {"cube", {6, 2, 7}, 0}, {"table", {30, 4}, 1}, {"square", {16, 16}, 0}};
    tuttiDpConfig_t config = config_for(tuttiDpBucketed, tuttiDpMuon);
    tuttiDpGroup_t groups[2] = {{1, 0.01, 0, 0}, {0.1, 0, 1, 0}};
    int ranks = 1, steps = 4, first_step = 0;
    std::string load, save;

    static std::size_t count_of(const Parameter& p) {
        return std::accumulate(p.shape.begin(), p.shape.end(), std::size_t{1}, std::multiplies{});
    }
    static float first_value(std::size_t p, std::size_t i) {
        return static_cast<float>((p * 37 + i * 11) % 29) * 0.0625f - 0.9f;
    }
    /// The gradient of one of `ranks` parts; sums over ranks are exact enough.
    static float gradient(int part, int step, std::size_t p, std::size_t i, float w) {
        return 0.5f * w + static_cast<float>((static_cast<std::size_t>(part * 7 + step * 5) + p * 3 + i * 13) % 17) -
               8.0f;
    }

    std::vector<std::vector<float>> run_on(int parts) {
        config.groups = groups;
        config.groupCount = 2;
        config.optimizer.momentum = 0.95;
        config.microBatches = parts / ranks;
        const tuttiUniqueId id = new_id();
        std::vector<std::vector<std::vector<float>>> ended(static_cast<std::size_t>(ranks));
        harness::run(ranks, [&](int r) {
            const tuttiComm_t comm = join(id, r, ranks, true);
            std::vector<tuttiDpParameter_t> all;
            std::vector<std::vector<float>> values;
            for (std::size_t p = 0; p < parameters.size(); ++p) {
                values.emplace_back(count_of(parameters[p]));
                for (std::size_t i = 0; i < values[p].size(); ++i) values[p][i] = first_value(p, i);
            }
            for (std::size_t p = 0; p < parameters.size(); ++p) {
                all.push_back({parameters[p].name, values[p].data(), nullptr, values[p].size(), tuttiFloat32,
                               tuttiDpSameType, parameters[p].group, static_cast<int>(p / 2),
                               static_cast<int>(parameters[p].shape.size())});
                std::ranges::copy(parameters[p].shape, all[p].shape);
            }
            tuttiDp_t dp = nullptr;
            must_succeed(tuttiDpCreate(&dp, all.data(), all.size(), &config, comm), "create");
            if (!load.empty()) must_succeed(tuttiDpLoad(dp, load.c_str()), "load");
            const auto each = [&](auto body) {
                const bool gathers = config.mode == tuttiDpZero3;
                for (std::size_t p = 0; p < all.size(); ++p) {
                    if (gathers && p % 2 == 0) must_succeed(tuttiDpGather(dp, static_cast<int>(p / 2)), "gather");
                    body(p, data_of(dp, p));
                    if (gathers && p % 2 == 1) must_succeed(tuttiDpRelease(dp, static_cast<int>(p / 2)), "release");
                }
            };
            for (int step = first_step; step < steps; ++step) {
                must_succeed(tuttiDpBegin(dp), "begin");
                for (int k = 0; k < parts / ranks; ++k) {
                    must_succeed(tuttiDpNoSync(dp, k + 1 < parts / ranks), "no_sync");
                    each([&](std::size_t p, const float* w) {
                        float* const g = harness::gradient(dp, p);
                        for (std::size_t i = 0; i < all[p].count; ++i)
                            g[i] += gradient(r * (parts / ranks) + k, step, p, i, w[i]);
                        must_succeed(tuttiDpGradReady(dp, p), "ready");
                    });
                }
                end_iteration(dp);
            }
            if (!save.empty()) must_succeed(tuttiDpSave(dp, save.c_str()), "save");
            each([&](std::size_t p, const float* w) {
                ended[static_cast<std::size_t>(r)].emplace_back(w, w + all[p].count);
            });
            tuttiDpDestroy(dp);
            tuttiCommDestroy(comm);
        });
        for (const auto& its : ended) check(its == ended[0], "ranks have different weights");
        return ended[0];
    }
};

}  // namespace

TEST_CASE("with whole updates each parameter has one owner, and owners about as many bytes", "[dp]") {
    std::vector<dp::Parameter> parameters;
    for (std::size_t i = 0; i < 60; ++i) {
        dp::Parameter p;
        p.name = "p" + std::to_string(i);
        p.data = p.grad = nullptr;
        p.count = 1 + i * 97 % 800;
        p.type = p.grad_type = p.main_type = i % 3 == 0 ? DataType::bfloat16 : DataType::float32;
        p.group = 0;
        p.unit = static_cast<int>(i / 5);
        parameters.push_back(p);
    }
    const std::vector<std::size_t> order = dp::backward_order(parameters);
    for (const bool by_unit : {false, true}) {
        const dp::Layout apart = dp::lay_out(parameters, order, {512, 8192, 1, false, by_unit, true});
        const dp::Layout layout = dp::lay_out(parameters, order, {512, 8192, 4, false, by_unit, true});
        REQUIRE(layout.bucket == apart.bucket);  // the same parameters share a bucket, whoever owns them
        std::vector<std::size_t> bytes(4, 0);
        std::size_t found = 0;
        for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
            const dp::BucketLayout& bucket = layout.buckets[b];
            std::size_t last = 0;
            for (const std::size_t p : bucket.parameters) {
                REQUIRE(layout.offset[p] >= last);
                last = layout.offset[p] + parameters[p].count;
            }
            REQUIRE(last <= bucket.count);
            for (int o = 0; o < 4; ++o) {
                REQUIRE(bucket.begin(o) * size_of(bucket.type) % 64 == 0);
                for (const dp::Piece& piece :
                     dp::pieces_of(layout, parameters, b, bucket.begin(o), bucket.begin(o) + bucket.shard(o))) {
                    REQUIRE(piece.count == parameters[piece.parameter].count);
                    bytes[static_cast<std::size_t>(o)] += piece.count * size_of(bucket.type);
                    ++found;
                }
            }
        }
        REQUIRE(found == parameters.size());
        REQUIRE(std::ranges::max(bytes) - std::ranges::min(bytes) <= 800 * 4);
    }
}

TEST_CASE("an update of the caller's gets whole parameters in every mode, to the same bits", "[exhaustive][long]") {
    Setup some;
    Longest longest{some.counts};
    for (const int ranks : {2, 3, 4}) {
        Setup alone = whole_setup(tuttiDpNaive, ranks, longest);
        const Trained reference = train_alone(alone);
        for (const tuttiDpMode_t mode : all_modes) {
            CAPTURE(ranks, mode);
            REQUIRE(difference(train(whole_setup(mode, ranks, longest)), reference) == 0);
        }
        Setup async = whole_setup(tuttiDpShardedServer, ranks, longest);
        async.config.staleness = 0;
        REQUIRE(difference(train(async), reference) == 0);
        Setup few = whole_setup(tuttiDpShardedServer, ranks, longest);
        few.config.servers = 1;
        REQUIRE(difference(train(few), reference) == 0);
    }
    for (const int hierarchical : {0, 1})
        for (const tuttiDpMode_t mode : {tuttiDpZero1, tuttiDpZero3}) {
            CAPTURE(hierarchical, mode);
            Setup groups = whole_setup(mode, 4, longest);
            groups.config.shardRanks = 2;
            groups.config.hierarchical = hierarchical;
            REQUIRE(difference(train(groups), train_alone(whole_setup(mode, 4, longest))) <= (hierarchical ? 1e-4 : 0));
        }
    for (const tuttiDpCompression_t compression : {tuttiDpBf16, tuttiDpTopK}) {
        Setup compressed = whole_setup(tuttiDpZero2, 3, longest);
        compressed.config.compression = compression;
        compressed.config.topK = 1;
        REQUIRE(difference(train(compressed), train_alone(whole_setup(tuttiDpZero2, 3, longest))) < 0.05);
    }
}

TEST_CASE("whole updates with 16 bits, loss scaling and clipping", "[dp]") {
    Setup some;
    Longest longest{some.counts};
    for (const tuttiDpMode_t mode : {tuttiDpBucketed, tuttiDpZero1, tuttiDpZero3}) {
        Setup s = whole_setup(mode, 3, longest);
        s.type = tuttiBfloat16;
        s.config.fp32Gradients = 1;
        s.config.lossScale = 1024;
        s.config.clipNorm = 0.5;
        Setup naive = s;
        naive.config.mode = tuttiDpNaive;
        CAPTURE(mode);
        REQUIRE(difference(train(s), train(naive)) < 1e-2);
    }
}

TEST_CASE("whole updates are made on the host for GPUs with offload", "[dp]") {
    Setup some;
    some.counts = {1, 7, 33, 600, 3, 1999};
    Longest longest{some.counts};
    for (const tuttiDpMode_t mode : {tuttiDpZero1, tuttiDpZero3}) {
        CAPTURE(mode);
        Gpus gpus(mode, tuttiDpCallback);
        gpus.setup.config = whole_setup(mode, gpu_ranks, longest).config;
        gpus.setup.config.offload = 1;
        REQUIRE(difference(train(gpus.setup), gpus.on_cpus()) == 0);
    }
}

TEST_CASE("Muon does what it does in fp64, for matrices; other parameters have AdamW", "[dp]") {
    MuonRun run;
    run.steps = 1;
    const auto ended = run.run_on(1);
    const double rate = run.config.optimizer.learningRate;
    for (std::size_t p = 0; p < run.parameters.size(); ++p) {
        const auto& [name, shape, group] = run.parameters[p];
        const std::size_t count = MuonRun::count_of(run.parameters[p]), rows = shape[0], columns = count / rows;
        CAPTURE(name);
        Matrix u(rows, std::vector<double>(columns));
        for (std::size_t i = 0; i < count; ++i)  // g + momentum * m, and m is g at the first step
            u[i / columns][i % columns] = 1.95 * MuonRun::gradient(0, 0, p, i, MuonRun::first_value(p, i));
        const Matrix o = orthogonal(u);
        const double longer = std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
        for (std::size_t i = 0; i < count; ++i) {
            const double w = MuonRun::first_value(p, i), g = MuonRun::gradient(0, 0, p, i, static_cast<float>(w));
            const double muon = w * (1 - rate * 0.01) - rate * longer * o[i / columns][i % columns];
            const double adam = w - 0.1 * rate * g / (std::fabs(g) + 1e-8);
            REQUIRE(std::fabs(ended[p][i] - (group == 0 ? muon : adam)) < 2e-5);
        }
        if (group != 0) continue;
        const Matrix gram = rows < columns ? product(o, turned(o)) : product(turned(o), o);
        for (std::size_t i = 0; i < gram.size(); ++i) REQUIRE(std::fabs(gram[i][i] - 1) < 0.6);  // about orthogonal
    }
}

TEST_CASE("Muon has the same bits in every mode, and goes on from a checkpoint of any other", "[dp]") {
    const std::string folder = (std::filesystem::temp_directory_path() / ("muon" + std::to_string(getpid()))).string();
    for (const int ranks : {2, 3}) {
        MuonRun alone;
        const auto reference = alone.run_on(ranks);
        for (const tuttiDpMode_t mode : all_modes) {
            CAPTURE(ranks, mode);
            MuonRun run;
            run.ranks = ranks;
            run.config.mode = mode;
            REQUIRE(run.run_on(ranks) == reference);
        }
        MuonRun half;
        half.ranks = ranks;
        half.config.mode = tuttiDpZero3;
        half.steps = 2;
        half.save = folder;
        half.run_on(ranks);
        MuonRun rest;
        rest.config.mode = tuttiDpZero1;
        rest.first_step = 2;
        rest.load = folder;
        REQUIRE(rest.run_on(ranks) == reference);  // one rank, which adds up their parts
        std::filesystem::remove_all(folder);
    }
}

TEST_CASE("whole updates are refused where there are none", "[dp]") {
    const tuttiUniqueId id = new_id();
    const tuttiComm_t comm = join(id, 0, 1, true);
    const auto refused = [&](const tuttiDpConfig_t& config, tuttiDataType_t type, const char* words) {
        const tuttiDpParameter_t one{"a", nullptr, nullptr, 4, type, tuttiDpSameType, 0, 0};
        tuttiDp_t dp = nullptr;
        REQUIRE(tuttiDpCreate(&dp, &one, 1, &config, comm) == tuttiInvalidArgument);
        CAPTURE(tuttiGetLastError(nullptr));
        REQUIRE(std::string(tuttiGetLastError(nullptr)).find(words) != std::string::npos);
    };
    tuttiDpConfig_t config = config_for(tuttiDpZero1, tuttiDpAdam);
    config.wholeUpdates = 1;
    refused(config, tuttiFloat32, "config.wholeUpdates is for tuttiDpCallback");
    refused(config_for(tuttiDpZero1, tuttiDpMuon), tuttiFloat64, "which tuttiDpMuon has not");
    config = config_for(tuttiDpServer, tuttiDpMuon);
    config.onArrival = 1;
    refused(config, tuttiFloat32, "which tuttiDpMuon needs");
    tuttiCommDestroy(comm);
}

TEST_CASE("what compression has kept stays with its parameter where a move deals parameters to other owners") {
    const std::vector<std::size_t> counts = {40, 1000, 333, 500, 77};
    const auto gradient_at = [](int step, std::size_t p, std::size_t i) {
        return static_cast<float>((i * 7 + p * 3 + static_cast<std::size_t>(step)) % 9) / 4 - 1;
    };
    for (const tuttiDpMode_t mode : {tuttiDpZero1, tuttiDpZero2}) {
        tuttiDpConfig_t config = config_for(mode, tuttiDpCallback);
        config.wholeUpdates = 1;
        config.compression = tuttiDpTopK;
        config.topK = 0.25;
        config.optimizer.update = [](void*, const tuttiDpPiece_t* piece) {
            for (std::size_t i = 0; i < piece->count; ++i) piece->weights[i] -= piece->gradients[i];
            return tuttiSuccess;
        };
        tuttiUniqueId two, single, three;
        for (tuttiUniqueId* id : {&two, &single, &three}) must_succeed(tuttiGetUniqueId(id), "id");
        harness::run(3, [&](int r) {
            std::vector<tuttiDpParameter_t> parameters;
            const char* const names[] = {"a", "b", "c", "d", "e"};
            for (std::size_t p = 0; p < counts.size(); ++p)
                parameters.push_back({names[p], nullptr, nullptr, counts[p], tuttiFloat32, tuttiDpSameType, 0, 0});
            const bool newcomer = r == 2;
            tuttiComm_t first = harness::join(newcomer ? single : two, newcomer ? 0 : r, newcomer ? 1 : 2, true);
            tuttiDp_t dp = nullptr;
            must_succeed(tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, first), "create");
            const auto step = [&](const auto& value_of) {
                must_succeed(tuttiDpBegin(dp), "begin");
                for (std::size_t p = counts.size(); p-- > 0;) {
                    float* const g = harness::gradient(dp, p);
                    for (std::size_t i = 0; i < counts[p]; ++i) g[i] = value_of(p, i);
                    must_succeed(tuttiDpGradReady(dp, p), "ready");
                }
                end_iteration(dp);
            };
            const auto weight = [&](std::size_t p, std::size_t i) { return data_of(dp, p)[i]; };
            constexpr int steps = 3;
            for (int s = 0; s < steps && !newcomer; ++s)
                step([&](std::size_t p, std::size_t i) { return gradient_at(s, p, i); });
            tuttiComm_t second = harness::join(three, r, 3, true);
            must_succeed(tuttiDpMove(dp, second), "move");
            // Without new gradients all that was kept goes on its way, and each element has had what it was given.
            for (int s = 0; s < 6; ++s) step([](std::size_t, std::size_t) { return 0.0f; });
            for (std::size_t p = 0; p < counts.size(); ++p)
                for (std::size_t i = 0; i < counts[p]; ++i) {
                    float all = 0;
                    for (int s = 0; s < steps; ++s) all += gradient_at(s, p, i);
                    check(std::fabs(weight(p, i) + all) < 1e-5f, "each parameter gets what was kept of its own");
                }
            must_succeed(tuttiDpDestroy(dp), "destroy");
            for (const tuttiComm_t comm : {first, second}) must_succeed(tuttiCommDestroy(comm), "destroy");
        });
    }
}
