// config.join: ranks have different numbers of batches, and end with the same parameters, as plain loops say.
#include <unistd.h>

#include <filesystem>

#include "dp/on_gpus.hpp"
#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr std::size_t counts[] = {5, 700, 33, 2049};
constexpr int ranks = 3, most_batches = 5;

/// Batches of a rank in an epoch: one has none in the second one.
int batches_of(int rank, int epoch) {
    static constexpr int all[2][ranks] = {{2, most_batches, 3}, {4, 0, 1}};
    return all[epoch][rank];
}

float start_of(std::size_t p, std::size_t i) {
    return static_cast<float>((p * 31 + i * 7) % 23) * 0.125f - 1.0f;
}

/// The gradient of one micro-batch.
float gradient_of(int rank, int epoch, int batch, int micro, std::size_t i, float w) {
    const int noise = (rank * 5 + epoch * 3 + batch * 2 + micro + static_cast<int>(i % 13)) % 11;
    return 0.25f * w + static_cast<float>(noise) * 0.0625f;
}

using Weights = std::vector<std::vector<float>>;  // by parameter

struct Training {
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    int micro = 1;
    bool own_grad = false;
    bool updates = false;      // the caller does, by SGD
    GpuWorld* gpus = nullptr;  // where ranks are
};

constexpr double rate_of(int epoch, int batch) {
    return 0.0625 / (1 + epoch * most_batches + batch);
}

/// The same by plain loops, on one rank: with momentum where the layer updates.
Weights by_loops(const Training& c) {
    const int workers = c.config.dedicated == 1 ? ranks - 1 : ranks;
    Weights w, m;
    for (std::size_t p = 0; p < std::size(counts); ++p) {
        w.emplace_back(counts[p]);
        m.emplace_back(counts[p], 0.0f);
        for (std::size_t i = 0; i < counts[p]; ++i) w[p][i] = start_of(p, i);
    }
    for (int epoch = 0; epoch < 2; ++epoch)
        for (int batch = 0; batch < most_batches; ++batch) {
            int active = 0;
            for (int r = ranks - workers; r < ranks; ++r) active += batch < batches_of(r, epoch);
            if (active == 0) break;
            const int over = (c.config.join == TUTTI_DP_JOIN_ALL ? workers : active) * c.micro;
            const auto rate = static_cast<float>(rate_of(epoch, batch));
            for (std::size_t p = 0; p < w.size(); ++p)
                for (std::size_t i = 0; i < w[p].size(); ++i) {
                    float sum = 0;
                    for (int r = ranks - workers; r < ranks; ++r) {
                        if (batch >= batches_of(r, epoch)) continue;
                        float its = 0;
                        for (int k = 0; k < c.micro; ++k) its += gradient_of(r, epoch, batch, k, i, w[p][i]);
                        sum += its;
                    }
                    const float g = sum / static_cast<float>(over);
                    m[p][i] = c.updates ? g : 0.5f * m[p][i] + g;
                    w[p][i] -= rate * m[p][i];
                }
        }
    return w;
}

class Trainee {
  public:
    Trainee(const Training& c, int rank, tuttiComm_t comm) : c_(c), rank_(rank), gradients_(std::size(counts)) {
        std::vector<tuttiDpParameter_t> parameters;
        for (std::size_t p = 0; p < std::size(counts); ++p) {
            names_.push_back("w" + std::to_string(p));
            gradients_[p].resize(counts[p]);
            const std::size_t bytes = counts[p] * sizeof(float);
            if (is_on_gpu())
                values_.push_back(reinterpret_cast<float*>(c.gpus->gpus().allocate(c.gpus->device(rank), bytes)));
            else
                values_.push_back(new float[counts[p]]);
            for (std::size_t i = 0; i < counts[p]; ++i) values_[p][i] = start_of(p, i);
        }
        for (std::size_t p = 0; p < std::size(counts); ++p)
            parameters.push_back({names_[p].c_str(), values_[p], c.own_grad ? gradients_[p].data() : nullptr, counts[p],
                                  tuttiFloat32, tuttiDpSameType, 0, static_cast<int>(p / 2)});
        tuttiDpConfig_t config = c.config;
        if (is_on_gpu()) config.stream = c.gpus->stream(rank);
        must_succeed(tuttiDpCreate(&dp_, parameters.data(), parameters.size(), &config, comm), "create");
    }
    ~Trainee() {
        tuttiDpDestroy(dp_);
        for (float* const values : values_) {
            if (is_on_gpu())
                c_.gpus->gpus().free(c_.gpus->device(rank_), reinterpret_cast<std::byte*>(values));
            else
                delete[] values;
        }
    }
    Trainee(const Trainee&) = delete;

    void epoch(int epoch) {
        const bool serves = c_.config.dedicated == 1 && rank_ == 0;
        for (int batch = 0; batch < batches_of(rank_, epoch) && !serves; ++batch) iterate(epoch, batch);
        must_succeed(tuttiDpJoin(dp_), "join");
    }

    void iterate(int epoch, int batch) {
        must_succeed(tuttiDpBegin(dp_), "begin");
        for (int k = 0; k < c_.micro; ++k) {
            must_succeed(tuttiDpNoSync(dp_, k + 1 < c_.micro), "no_sync");
            for (std::size_t p = std::size(counts); p-- > 0;) {
                enter(p);
                const float* const w = data(p);
                float* const g = gradient(dp_, p);
                settle();
                for (std::size_t i = 0; i < counts[p]; ++i) g[i] += gradient_of(rank_, epoch, batch, k, i, w[i]);
                must_succeed(tuttiDpGradReady(dp_, p), "ready");
            }
            enter(std::size(counts));
        }
        must_succeed(tuttiDpSynchronize(dp_), "synchronize");
        if (!c_.updates) {
            must_succeed(tuttiDpSetLearningRate(dp_, rate_of(epoch, batch)), "rate");
            return must_succeed(tuttiDpStep(dp_), "step");
        }
        for (std::size_t p = 0; p < std::size(counts); ++p) {
            const float* const g = gradient(dp_, p);
            for (std::size_t i = 0; i < counts[p]; ++i)
                values_[p][i] -= static_cast<float>(rate_of(epoch, batch)) * g[i];
        }
    }

    Weights weights() {
        Weights all;
        for (std::size_t p = 0; p < std::size(counts); ++p) {
            enter(p);
            all.emplace_back(data(p), data(p) + counts[p]);
        }
        enter(std::size(counts));
        return all;
    }
    tuttiDp_t dp() const { return dp_; }

  private:
    bool is_on_gpu() const { return c_.gpus != nullptr && c_.gpus->device(rank_) >= 0; }
    void settle() {
        if (is_on_gpu()) c_.gpus->gpus().synchronize_stream(c_.gpus->stream(rank_));
    }
    const float* data(std::size_t p) {
        const float* const at = data_of(dp_, p);
        settle();
        return at;
    }
    /// ZeRO-3: the unit of p is here, and no other.
    void enter(std::size_t p) {
        if (c_.config.mode != tuttiDpZero3) return;
        const int unit = p < std::size(counts) ? static_cast<int>(p / 2) : -1;
        if (unit == unit_) return;
        if (unit_ >= 0) must_succeed(tuttiDpRelease(dp_, unit_), "release");
        if (unit >= 0) must_succeed(tuttiDpGather(dp_, unit), "gather");
        unit_ = unit;
    }

    const Training& c_;
    int rank_, unit_ = -1;
    tuttiDp_t dp_ = nullptr;
    std::vector<std::string> names_;
    std::vector<float*> values_;  // by parameter
    Weights gradients_;
};

/// body(rank) on three ranks with a layer each.
template <class Body>
void on_three(const Training& c, Body body) {
    const tuttiUniqueId id = new_id();
    Rendezvous created(ranks);
    run(ranks, [&](int r) {
        const tuttiComm_t comm = c.gpus != nullptr ? c.gpus->comm(r) : join(id, r, ranks, true);
        {
            Trainee rank(c, r, comm);
            created.wait();
            body(r, rank);
        }
        if (c.gpus == nullptr) tuttiCommDestroy(comm);
    });
}

void check_training(const Training& c) {
    const Weights expected = by_loops(c);
    on_three(c, [&](int r, Trainee& rank) {
        for (int epoch = 0; epoch < 2; ++epoch) rank.epoch(epoch);
        check(rank.weights() == expected, "rank " + std::to_string(r) + " has other weights than plain loops");
        const tuttiDpStatistics_t s = statistics(rank.dp());
        check(c.updates || s.steps == (c.config.dedicated == 1 ? most_batches + 1 : most_batches + 4),
              "the rank has made " + std::to_string(s.steps) + " steps");
    });
}

Training training_of(tuttiDpMode_t mode, int join) {
    Training c;
    c.config = config_for(mode, tuttiDpMomentum);
    c.config.optimizer.momentum = 0.5;
    c.config.optimizer.weightDecay = 0;
    c.config.join = join;
    return c;
}

}  // namespace

TEST_CASE("ranks with fewer batches join, in every synchronous mode, to the bits of plain loops", "[dp][long]") {
    for (const tuttiDpMode_t mode :
         {tuttiDpNaive, tuttiDpBucketed, tuttiDpServer, tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero2, tuttiDpZero3})
        for (const int over : {TUTTI_DP_JOIN_ALL, TUTTI_DP_JOIN_ACTIVE})
            for (const int micro : {1, 2}) {
                CAPTURE(mode, over, micro);
                Training c = training_of(mode, over);
                c.micro = c.config.microBatches = micro;
                c.own_grad = micro == 2;
                check_training(c);
            }
}

TEST_CASE("a server without batches joins in place of all iterations", "[dp]") {
    for (const int over : {TUTTI_DP_JOIN_ALL, TUTTI_DP_JOIN_ACTIVE}) {
        Training c = training_of(tuttiDpServer, over);
        c.config.dedicated = 1;
        check_training(c);
    }
    Training c = training_of(tuttiDpServer, TUTTI_DP_JOIN_ALL);
    c.config.dedicated = 1;
    on_three(c, [](int r, Trainee& rank) {
        if (r == 0) {
            check(tuttiDpBegin(rank.dp()) == tuttiInvalidUsage && says("calls tuttiDpJoin alone"), "a server begins");
        }
        must_succeed(tuttiDpJoin(rank.dp()), "join");
    });
}

TEST_CASE("who updates himself gets the values of a rank that had the most batches", "[dp]") {
    for (const tuttiDpMode_t mode : {tuttiDpNaive, tuttiDpBucketed})
        for (const bool own_grad : {false, true}) {
            Training c = training_of(mode, TUTTI_DP_JOIN_ACTIVE);
            c.config.optimizer.kind = tuttiDpNoOptimizer;
            c.config.optimizer.momentum = 0;
            c.updates = true;
            c.own_grad = own_grad;
            check_training(c);
        }
}

TEST_CASE("ranks on GPUs and on a CPU join", "[dp]") {
    for (const tuttiDpMode_t mode : {tuttiDpBucketed, tuttiDpZero1, tuttiDpZero3}) {
        CAPTURE(mode);
        const tuttiConfig_t config = reproducible();
        GpuWorld world({0, -1, 1}, true, &config);
        Training c = training_of(mode, TUTTI_DP_JOIN_ACTIVE);
        c.gpus = &world;
        check_training(c);
    }
}

TEST_CASE("a rank that has joined makes all calls of those that go on", "[dp]") {
    const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("join" + std::to_string(getpid()));
    for (const tuttiDpMode_t mode : {tuttiDpBucketed, tuttiDpZero1, tuttiDpZero3}) {
        CAPTURE(mode);
        Training c = training_of(mode, TUTTI_DP_JOIN_ALL);
        c.config.lossScale = 8;
        c.config.nanCheck = 1;
        Weights saved, ended;
        on_three(c, [&](int r, Trainee& rank) {
            const tuttiDp_t dp = rank.dp();
            if (r == 0) must_succeed(tuttiDpSetNote(dp, "batch", "none"), "note");
            for (int batch = 0; batch < 2 && r > 0; ++batch) {
                rank.iterate(0, batch);
                must_succeed(tuttiDpBegin(dp), "begin");
                int bad = 0;
                std::size_t parameter = 0;
                must_succeed(tuttiDpFindNan(dp, &bad, &parameter), "find");
                check(bad == -1, "somebody has a NaN");
                check(tuttiDpStep(dp) == tuttiInvalidUsage, "a step in the middle of a pass");
                for (std::size_t p = 0; p < std::size(counts); ++p) {
                    gradient(dp, p)[0] = 1e6f;
                    must_succeed(tuttiDpGradReady(dp, p), "ready");
                }
                must_succeed(tuttiDpSynchronize(dp), "synchronize");
                double norm = 0;
                must_succeed(tuttiDpClipValue(dp, 1e5), "clip values");
                must_succeed(tuttiDpClipNorm(dp, 1, &norm), "clip");
                check(norm > 1000, "the norm");
                must_succeed(tuttiDpStep(dp), "step");
                if (mode != tuttiDpZero3) must_succeed(tuttiDpCheckEqual(dp), "equal");
            }
            if (r > 0) {
                must_succeed(tuttiDpResetErrorFeedback(dp), "reset");
                const tuttiDpGroup_t twice{2, 0};
                must_succeed(tuttiDpSetGroup(dp, 0, &twice), "group");
                must_succeed(tuttiDpSetNote(dp, "batch", "four"), "note");
                must_succeed(tuttiDpSetNote(dp, "other", "gone"), "note");
                must_succeed(tuttiDpSetNote(dp, "other", nullptr), "note");
                must_succeed(tuttiDpSaveAsync(dp, folder.c_str()), "save");
                must_succeed(tuttiDpSaveWait(dp), "wait");
                rank.iterate(1, 0);
                const Weights now = rank.weights();
                if (r == 1) ended = now;
                must_succeed(tuttiDpLoad(dp, folder.c_str()), "load");
                must_succeed(tuttiDpSave(dp, folder.c_str()), "save");
                rank.iterate(1, 0);
                check(rank.weights() == now, "another end from the checkpoint");
            }
            must_succeed(tuttiDpJoin(dp), "join");
            check(rank.weights() == ended, "other weights after Join");
            char note[8];
            must_succeed(tuttiDpGetNote(dp, "batch", note, sizeof note), "note");
            check(std::string(note) == "four", "the first rank's own note");
            check(tuttiDpGetNote(dp, "other", note, sizeof note) == tuttiInvalidUsage, "a note that is gone");
            const tuttiDpStatistics_t s = statistics(dp);
            check(s.steps == 5, "the rank has made " + std::to_string(s.steps) + " steps");
        });
    }
    std::filesystem::remove_all(folder);
}

TEST_CASE("Join is refused where it has no meaning", "[dp]") {
    on_ranks(2, three(), config_for(tuttiDpBucketed), [](int, tuttiDp_t dp, tuttiComm_t) {
        check(tuttiDpJoin(dp) == tuttiInvalidUsage && says("config.join is 0"), "without config.join");
    });
    tuttiDpConfig_t config = config_for(tuttiDpBucketed);
    config.join = TUTTI_DP_JOIN_ALL;
    on_ranks(2, three(), config, [](int, tuttiDp_t dp, tuttiComm_t) {
        must_succeed(tuttiDpBegin(dp), "begin");
        check(tuttiDpJoin(dp) == tuttiInvalidUsage && says("has not been synchronized"), "within an iteration");
        for (std::size_t p = 0; p < 3; ++p) must_succeed(tuttiDpGradReady(dp, p), "ready");
        end_iteration(dp);
        for (int again = 0; again < 2; ++again) must_succeed(tuttiDpJoin(dp), "join");
    });
    config = config_for(tuttiDpShardedServer);
    config.join = TUTTI_DP_JOIN_ALL;
    config.staleness = 1;
    std::vector<tuttiDpParameter_t> parameters = three();
    const tuttiUniqueId id = new_id();
    const tuttiComm_t comm = join(id, 0, 1, true);
    tuttiDp_t dp = nullptr;
    CHECK(tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm) == tuttiInvalidArgument);
    CHECK(says("config.join is for synchronous modes"));
    tuttiCommDestroy(comm);
}

TEST_CASE("after an iteration that was given up, a rank that had joined joins again", "[dp]") {
    for (const tuttiDpMode_t mode : {tuttiDpBucketed, tuttiDpZero3}) {
        CAPTURE(mode);
        const Training c = training_of(mode, TUTTI_DP_JOIN_ALL);
        Rendezvous begun(ranks - 1);
        on_three(c, [&](int r, Trainee& rank) {
            if (r == 0) {
                check(tuttiDpJoin(rank.dp()) == tuttiRemoteError,
                      std::string("the others gave the iteration up: ") + tuttiGetLastError(nullptr));
            } else {
                must_succeed(tuttiDpBegin(rank.dp()), "begin");
                begun.wait();
            }
            must_succeed(tuttiDpAbandon(rank.dp()), "abandon");
            for (int epoch = 0; epoch < 2; ++epoch) rank.epoch(epoch);
            check(rank.weights() == by_loops(c), "other weights than plain loops");
        });
    }
}

TEST_CASE("a rate that is set after the last step holds on ranks that have joined, too", "[dp]") {
    for (const tuttiDpMode_t mode : {tuttiDpBucketed, tuttiDpZero2}) {
        CAPTURE(mode);
        tuttiDpConfig_t config = config_for(mode, tuttiDpSgd);
        config.optimizer.learningRate = 1;
        config.optimizer.weightDecay = 0;
        config.join = TUTTI_DP_JOIN_ACTIVE;
        on_ranks(2, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
            const auto iterate = [&] {
                must_succeed(tuttiDpBegin(dp), "begin");
                for (std::size_t p : {2, 1, 0}) must_succeed(offer(dp, p, 1), "a gradient");
                end_iteration(dp);
            };
            if (r == 0) {
                iterate();
                must_succeed(tuttiDpSetLearningRate(dp, 0.25), "rate");
            }
            must_succeed(tuttiDpJoin(dp), "join");
            iterate();
            for (std::size_t p = 0; p < 3; ++p) {
                check(*data_of(dp, p) == -1.25f, "a step of 1, and one of a quarter");
            }
        });
    }
}
