// The parts alone: numbers, optimizers, layouts, compression, samplers, grids of ranks.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "dp/exact_sum.hpp"
#include "dp/layout.hpp"
#include "dp/numbers.hpp"
#include "dp/on_ranks.hpp"
#include "dp/optimizer.hpp"
#include "dp/training.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// The first rank to speak is either the one that failed, or one that was told.
bool fails_with(const Setup& setup, const char* own, const char* told) {
    try {
        harness::train(setup);
    } catch (const std::exception& error) {
        const std::string text = error.what();
        return text.find(own) != std::string::npos || text.find(told) != std::string::npos;
    }
    return false;
}

}  // namespace

TEST_CASE("16-bit floats there and back, and rounded to nearest, ties to even") {
    for (const auto type : {DataType::float16, DataType::bfloat16}) {
        for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
            const auto half = static_cast<std::uint16_t>(bits);
            float wide = 0;
            dp::convert(DataType::float32, &wide, type, &half, 1);
            std::uint16_t again = 0;
            dp::convert(type, &again, DataType::float32, &wide, 1);
            if (std::isnan(wide)) {
                dp::convert(DataType::float32, &wide, type, &again, 1);
                if (!std::isnan(wide)) FAIL("a NaN was lost");
                continue;
            }
            if (again != half) FAIL("not the same bits: " << bits);
            // Between two neighbours: to the even one; a little more: to the upper one.
            const auto above = static_cast<std::uint16_t>(bits + 1);
            float next = 0;
            dp::convert(DataType::float32, &next, type, &above, 1);
            if (!std::isfinite(next) || !std::isfinite(wide) || (bits & 0x8000) != (above & 0x8000)) continue;
            const float middle = wide + (next - wide) / 2;  // exact: fp32 has the bits
            dp::convert(type, &again, DataType::float32, &middle, 1);
            if (again != ((bits & 1) ? above : half)) FAIL("a tie went to the odd one: " << bits);
            const float more = std::nextafter(middle, next);
            dp::convert(type, &again, DataType::float32, &more, 1);
            if (again != above) FAIL("not the nearest: " << bits);
        }
    }
    float large[] = {1e6f, -1e6f, 65519.0f, 65520.0f};
    std::uint16_t halves[4];
    dp::convert(DataType::float16, halves, DataType::float32, large, 4);
    REQUIRE((halves[0] == 0x7c00 && halves[1] == 0xfc00 && halves[2] == 0x7bff && halves[3] == 0x7c00));
}

TEST_CASE("8-bit floats there and back, saturating") {
    for (std::uint32_t bits = 0; bits < 256; ++bits) {
        const auto b = static_cast<std::uint8_t>(bits);
        float wide = 0;
        dp::convert(DataType::float32, &wide, DataType::float8e4m3, &b, 1);
        std::uint8_t again = 0;
        dp::convert(DataType::float8e4m3, &again, DataType::float32, &wide, 1);
        REQUIRE(again == b);
    }
    const float values[] = {1000, -1000, 17, 19, 0x1p-10f, 0x1.8p-9f};
    std::uint8_t out[6];
    dp::convert(DataType::float8e4m3, out, DataType::float32, values, 6);
    float back[6];
    dp::convert(DataType::float32, back, DataType::float8e4m3, out, 6);
    REQUIRE(
        (back[0] == 448 && back[1] == -448 && back[2] == 16 && back[3] == 20 && back[4] == 0 && back[5] == 0x1p-8f));
}

TEST_CASE("sums, factors and the search for bad numbers") {
    std::vector<double> d(2500, 0.5);
    std::vector<float> f(2500, 0.25f);
    dp::add(DataType::float64, d.data(), DataType::float32, f.data(), d.size());
    dp::multiply(DataType::float64, d.data(), d.size(), 2);
    REQUIRE((d.front() == 1.5 && d.back() == 1.5));
    dp::Squares squares;
    dp::add_squares(DataType::float64, d.data(), d.size(), d.size(), squares);
    REQUIRE(squares.value() == 2500 * 2.25);
    dp::divide(DataType::float32, f.data(), f.size(), 3);
    REQUIRE(f[2499] == 0.25f / 3);
    REQUIRE(dp::first_bad(DataType::float32, f.data(), f.size()) == f.size());
    f[2000] = std::numeric_limits<float>::quiet_NaN();
    REQUIRE(dp::first_bad(DataType::float32, f.data(), f.size()) == 2000);
    d[7] = std::numeric_limits<double>::infinity();
    REQUIRE(dp::first_bad(DataType::float64, d.data(), d.size()) == 7);
}

TEST_CASE("optimizers are their formulas, however a parameter is cut") {
    const std::size_t n = 2311;
    for (const auto kind : {tuttiDpSgd, tuttiDpMomentum, tuttiDpNesterov, tuttiDpAdam, tuttiDpAdamW}) {
        const bool has_momentum = kind == tuttiDpMomentum || kind == tuttiDpNesterov;
        tuttiDpOptimizer_t o{kind, 0.01, 0.9, 0.9, 0.99, 1e-6, 0.1, nullptr, nullptr};
        std::vector<float> whole(n), cut(n), g(n);
        std::vector<double> w(n), m(n), v(n);
        for (std::size_t i = 0; i < n; ++i) w[i] = cut[i] = whole[i] = std::sin(static_cast<float>(i));
        std::vector<float> kept(4 * n);
        const auto array = [&](std::size_t i) { return reinterpret_cast<std::byte*>(kept.data() + i * n); };
        const dp::States one{nullptr, {array(0), array(1)}}, two{nullptr, {array(2), array(3)}};
        for (int step = 1; step <= 5; ++step) {
            for (std::size_t i = 0; i < n; ++i) g[i] = std::cos(static_cast<float>(i * static_cast<unsigned>(step)));
            const dp::Update how{&o, o.learningRate, o.weightDecay, step, 1.0 / 64};
            for (float& x : g) x *= 64;
            dp::update(how, {0, 0, n, 0}, DataType::float32, whole.data(), DataType::float32, g.data(), one);
            for (std::size_t at = 0, part = 1; at < n; at += part, part = std::min<std::size_t>(part * 3, n - at))
                dp::update(how, {0, at, part, at}, DataType::float32, cut.data() + at, DataType::float32, g.data() + at,
                           two);
            for (std::size_t i = 0; i < n; ++i) {
                const double grad = g[i] / 64 + (kind == tuttiDpAdamW ? 0 : 0.1 * w[i]);
                const double b1 = has_momentum ? 1 : 0.1;
                m[i] = 0.9 * m[i] + b1 * grad;
                v[i] = 0.99 * v[i] + 0.01 * grad * grad;
                const double step1 = 1 - std::pow(0.9, step), step2 = 1 - std::pow(0.99, step);
                if (kind == tuttiDpSgd) w[i] -= 0.01 * grad;
                if (kind == tuttiDpMomentum) w[i] -= 0.01 * m[i];
                if (kind == tuttiDpNesterov) w[i] -= 0.01 * (grad + 0.9 * m[i]);
                if (kind == tuttiDpAdamW) w[i] -= 0.01 * 0.1 * w[i];
                if (kind == tuttiDpAdam || kind == tuttiDpAdamW)
                    w[i] -= 0.01 * (m[i] / step1) / (std::sqrt(v[i] / step2) + 1e-6);
            }
        }
        REQUIRE(cut == whole);
        for (std::size_t i = 0; i < n; ++i)
            if (std::fabs(whole[i] - w[i]) > 1e-5) FAIL(kind << ": " << whole[i] << " instead of " << w[i]);
    }
}

TEST_CASE("update callbacks see every element once, and may fail") {
    struct Seen {
        std::atomic<int> elements{0};
        tuttiResult_t result = tuttiSuccess;
    } seen;
    Setup setup;
    setup.ranks = 2;
    setup.steps = 3;
    setup.config = harness::config_for(tuttiDpZero1, tuttiDpCallback);
    setup.config.optimizer.user = &seen;
    setup.config.optimizer.update = [](void* user, const tuttiDpPiece_t* piece) {
        auto* s = static_cast<Seen*>(user);
        s->elements += static_cast<int>(piece->count);
        for (std::size_t i = 0; i < piece->count; ++i)
            piece->weights[i] -= static_cast<float>(piece->learningRate) *
                                 (piece->gradients[i] + static_cast<float>(piece->weightDecay) * piece->weights[i]);
        return s->result;
    };
    const Trained own = harness::train(setup);
    REQUIRE(seen.elements == 3 * static_cast<int>(std::reduce(setup.counts.begin(), setup.counts.end())));
    setup.config.optimizer.kind = tuttiDpSgd;
    REQUIRE(own.weights == harness::train(setup).weights);
    setup.config.optimizer.kind = tuttiDpCallback;
    seen.result = tuttiSystemError;
    REQUIRE(fails_with(setup, "callback", "rank"));
}

TEST_CASE("layouts: every element has a place of its own, in a bucket of its types") {
    std::vector<dp::Parameter> parameters;
    for (std::size_t i = 0; i < 50; ++i) {
        dp::Parameter p{};
        p.name = std::to_string(i);
        p.count = 1 + i * i * 3;
        p.type = i % 5 == 0 ? DataType::bfloat16 : DataType::float32;
        p.grad_type = p.main_type = p.type;
        p.unit = static_cast<int>(i / 4);
        parameters.push_back(p);
    }
    std::vector<std::size_t> order(parameters.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    for (int owners : {1, 3})
        for (bool by_unit : {false, true}) {
            const dp::Layout layout = dp::lay_out(parameters, order, {512, 8192, owners, false, by_unit});
            std::size_t pieces = 0;
            std::vector<std::set<std::size_t>> taken(layout.buckets.size());
            for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
                const dp::BucketLayout& bucket = layout.buckets[b];
                REQUIRE(bucket.count == bucket.shard(0) * static_cast<std::size_t>(owners));
                if (!by_unit && bucket.parameters.size() > 1)
                    REQUIRE(bucket.count * size_of(bucket.type) <= 8192 + 512);
                std::set<int> units;
                for (const std::size_t p : bucket.parameters) {
                    REQUIRE(layout.bucket[p] == b);
                    REQUIRE(parameters[p].type == bucket.type);
                    REQUIRE(layout.offset[p] + parameters[p].count <= bucket.count);
                    units.insert(parameters[p].unit);
                    for (std::size_t i = 0; i < parameters[p].count; ++i)
                        if (!taken[b].insert(layout.offset[p] + i).second) FAIL("two elements in one place");
                }
                if (by_unit) REQUIRE(units.size() == 1);
                for (int o = 0; o < owners; ++o)
                    for (const dp::Piece& piece :
                         dp::pieces_of(layout, parameters, b, bucket.begin(o), bucket.begin(o) + bucket.shard(o)))
                        pieces += piece.count;
            }
            std::size_t all = 0;
            for (const dp::Parameter& p : parameters) all += p.count;
            REQUIRE(pieces == all);
        }
}

TEST_CASE("buckets whose size nobody gave are a sixteenth of all gradients, within bounds") {
    constexpr std::size_t mib = std::size_t{1} << 20;
    const auto sized = [](std::size_t elements, std::size_t bucket, std::size_t first) {
        std::vector<dp::Parameter> parameters(2);
        for (dp::Parameter& p : parameters) {
            p.count = elements / 2;
            p.main_type = DataType::float32;
        }
        dp::Options options{};
        options.bucketBytes = bucket;
        options.firstBucketBytes = first;
        dp::size_buckets(options, parameters);
        return std::pair(options.bucketBytes, options.firstBucketBytes);
    };
    REQUIRE(sized(16 * mib, 0, 0) == std::pair(4 * mib, mib));
    REQUIRE(sized(1000, 0, 0) == std::pair(mib, mib));
    REQUIRE(sized(1024 * mib, 0, 0) == std::pair(25 * mib, mib));
    REQUIRE(sized(1024 * mib, 4096, 0) == std::pair(std::size_t{4096}, std::size_t{4096}));
    REQUIRE(sized(1024 * mib, 0, 256) == std::pair(25 * mib, std::size_t{256}));
}

TEST_CASE("compression comes near the uncompressed result, as near as its kind allows") {
    Setup setup;
    setup.ranks = 3;
    setup.steps = 30;
    setup.counts = {900, 40};
    setup.slices = 3;
    setup.config = harness::config_for(tuttiDpBucketed, tuttiDpSgd);
    setup.config.optimizer.learningRate = 0.2;
    const Trained exact = harness::train(setup);
    const struct {
        tuttiDpCompression_t kind;
        double bound;
    } cases[] = {
        {tuttiDpFp16, 1e-3}, {tuttiDpBf16, 1e-2}, {tuttiDpFp8, 0.1}, {tuttiDpTopK, 0.2}, {tuttiDpPowerSgd, 0.4}};
    for (const auto& c : cases) {
        setup.config.compression = c.kind;
        setup.config.topK = 0.25;
        setup.config.powerRank = 6;
        const Trained compressed = harness::train(setup);
        CAPTURE(c.kind);
        const double off = harness::difference(compressed, exact);
        REQUIRE(off > 0);
        REQUIRE(off < c.bound);
        REQUIRE(compressed.losses.back() < compressed.losses.front());
    }
    setup.config.compression = tuttiDpTopK;  // all of it: another order of additions at most
    setup.config.topK = 1;
    REQUIRE(harness::difference(harness::train(setup), exact) < 1e-5);
}

TEST_CASE("PowerSGD: gradients of zero do not end a bucket; products of small and of large ones stay in range") {
    for (const float size : {1e-38f, 1e-21f, 1.0f, 1e20f}) {
        CAPTURE(size);
        constexpr std::size_t count = 64;
        tuttiDpConfig_t config = harness::config_for(tuttiDpBucketed, tuttiDpNoOptimizer);
        config.compression = tuttiDpPowerSgd;
        const std::vector<tuttiDpParameter_t> one{{"w", nullptr, nullptr, count, tuttiFloat32, tuttiDpSameType, 0, 0}};
        harness::on_ranks(2, one, config, [&](int, tuttiDp_t dp, tuttiComm_t) {
            const auto sent = [&](std::size_t i, float factor) {  // element i of a sum
                harness::must_succeed(tuttiDpBegin(dp), "begin");
                for (std::size_t e = 0; e < count; ++e)
                    harness::gradient(dp, 0)[e] = factor * static_cast<float>(1 + e * 7 % 11 + e / 8);
                harness::must_succeed(tuttiDpGradReady(dp, 0), "ready");
                harness::must_succeed(tuttiDpSynchronize(dp), "synchronize");
                return double{harness::gradient(dp, 0)[i]};
            };
            harness::check(sent(63, 0) == 0, "nothing");
            double sum = 0;
            for (int step = 0; step < 12; ++step) sum += sent(63, size);
            harness::check(std::fabs(sum / 12 / double{size} - 9) < 2, "about what all gradients have there");
        });
    }
}

TEST_CASE("compression where ranks own parts: as where all own all, as near as buckets are the same", "[exhaustive]") {
    for (const auto kind : {tuttiDpFp16, tuttiDpBf16, tuttiDpFp8, tuttiDpTopK, tuttiDpPowerSgd}) {
        Setup setup;
        setup.ranks = 3;
        setup.counts = {900, 40, 300};
        setup.config = harness::config_for(tuttiDpBucketed, tuttiDpSgd);
        setup.config.bucketBytes = setup.config.firstBucketBytes = 1 << 20;
        setup.config.compression = kind;
        setup.config.topK = 1;
        setup.config.powerRank = 64;  // all of it
        const Trained whole = harness::train(setup);
        for (const auto mode : {tuttiDpServer, tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero2, tuttiDpZero3}) {
            CAPTURE(kind, mode);
            setup.config.mode = mode;
            setup.config.servers = mode == tuttiDpShardedServer ? 2 : TUTTI_UNDEF_INT;
            const Trained parts = harness::train(setup);
            if (kind == tuttiDpFp16 || kind == tuttiDpBf16 || kind == tuttiDpTopK)  // element by element
                REQUIRE(parts.weights == whole.weights);
            else
                REQUIRE(harness::difference(parts, whole) < (kind == tuttiDpFp8 ? 0.05 : 1e-3));
        }
    }
}

TEST_CASE("what was not sent can be forgotten") {
    const auto trained = [](bool resets, int first_step) {
        Setup setup;
        setup.ranks = 2;
        setup.first_step = first_step;
        setup.steps = 3;
        setup.config = harness::config_for(tuttiDpZero1, tuttiDpSgd);
        setup.config.optimizer.learningRate = 0;  // gradients stay the same from step to step
        setup.config.optimizer.weightDecay = 0;
        setup.config.compression = tuttiDpTopK;
        setup.config.topK = 0.2;
        setup.after = [=](int, int step, tuttiDp_t dp) {
            if (step < 2 && resets) harness::must_succeed(tuttiDpResetErrorFeedback(dp), "reset");
            if (step == 1) harness::must_succeed(tuttiDpSetLearningRate(dp, 0.1), "rate");
        };
        return harness::train(setup);
    };
    const Trained fresh = trained(false, 1);  // has kept something once
    REQUIRE(trained(true, 0).weights != trained(false, 0).weights);
    REQUIRE(trained(true, 1).weights == trained(true, 0).weights);
    REQUIRE(fresh.weights != trained(true, 0).weights);
}

TEST_CASE("hooks of the caller's stand in for the all-reduce; one that fails ends the iteration on all ranks") {
    Setup setup;
    setup.ranks = 2;
    setup.config = harness::config_for(tuttiDpBucketed);
    const Trained plain = harness::train(setup);
    std::atomic<int> fails{0};
    setup.config.hookUser = &fails;
    setup.config.hook = [](void* user, const tuttiDpBucket_t* b, tuttiComm_t comm) {
        if (static_cast<std::atomic<int>*>(user)->load() != 0 && b->rank == 1) return tuttiSystemError;
        return tuttiAllReduce(b->data, b->data, b->count, b->type, b->divisor == b->ranks ? tuttiAvg : tuttiSum, comm,
                              nullptr);
    };
    REQUIRE(harness::train(setup).weights == plain.weights);
    fails = 1;
    REQUIRE(fails_with(setup, "hook", "rank 1"));
}

TEST_CASE("samplers deal out every sample, padded or cut, another way in every epoch") {
    for (const std::size_t length : {1u, 2u, 7u, 100u, 103u})
        for (int ranks : {1, 2, 3, 8})
            for (int drop : {0, 1}) {
                std::vector<std::size_t> all, other;
                for (int r = 0; r < ranks; ++r) {
                    tuttiDpSampler_t s{length, ranks, r, 1, drop, 5, 0};
                    std::size_t count = 0;
                    REQUIRE(tuttiDpSampleCount(&s, &count) == tuttiSuccess);
                    const auto n = static_cast<std::size_t>(ranks);
                    REQUIRE(count == (drop ? length / n : (length + n - 1) / n));
                    std::vector<std::size_t> mine(count);
                    REQUIRE(tuttiDpSample(&s, mine.data()) == tuttiSuccess);
                    all.insert(all.end(), mine.begin(), mine.end());
                    s.epoch = 1;
                    REQUIRE(tuttiDpSample(&s, mine.data()) == tuttiSuccess);
                    other.insert(other.end(), mine.begin(), mine.end());
                }
                if (length == 100) REQUIRE(all != other);
                const std::set<std::size_t> distinct(all.begin(), all.end());
                REQUIRE(distinct.size() == (drop ? all.size() : length));
                REQUIRE((distinct.empty() || *distinct.rbegin() < length));
            }
    tuttiDpSampler_t s{10, 3, 1, 0, 0, 0, 0};
    std::vector<std::size_t> plain(4);
    REQUIRE(tuttiDpSample(&s, plain.data()) == tuttiSuccess);
    REQUIRE(plain == std::vector<std::size_t>{1, 4, 7, 0});  // as PyTorch's DistributedSampler without shuffling
    s.rank = 3;
    REQUIRE(tuttiDpSample(&s, plain.data()) == tuttiInvalidArgument);
}

TEST_CASE("a sampler by length: every sample, ranks side by side, the longest first") {
    std::vector<std::size_t> lengths(103);
    for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = i * 37 % 101;
    const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
    for (const std::size_t window : {1u, 12u, 40u, 103u, 1000u})
        for (int shuffle : {0, 1}) {
            std::vector<std::size_t> all(104);  // in the order in which the ranks take them
            for (int r = 0; r < 4; ++r) {
                const tuttiDpSampler_t s{lengths.size(), 4, r, shuffle, 0, 5, 2};
                std::size_t mine[26];
                REQUIRE(tuttiDpSampleByLength(&s, lengths.data(), window, mine) == tuttiSuccess);
                for (std::size_t i = 0; i < 26; ++i) all[i * 4 + static_cast<std::size_t>(r)] = mine[i];
            }
            REQUIRE(std::set<std::size_t>(all.begin(), all.end()).size() == lengths.size());
            REQUIRE(lengths[all[0]] == longest);
            // The last window may have given its longest away.
            const std::size_t whole = window > lengths.size() ? lengths.size() : lengths.size() / window * window;
            for (std::size_t i = 1; i + 1 < whole; ++i)
                if ((i + 1) % window != 0) REQUIRE(lengths[all[i]] >= lengths[all[i + 1]]);
        }
    const tuttiDpSampler_t s{3, 1, 0, 0, 0, 0, 0};
    std::size_t one[3];
    REQUIRE(tuttiDpSampleByLength(&s, lengths.data(), 0, one) == tuttiInvalidArgument);
    REQUIRE(tuttiDpSampleByLength(&s, nullptr, 2, one) == tuttiInvalidArgument);
}

TEST_CASE("a sampler of a stream: blocks are shared, the last one is filled up or dropped") {
    const auto part = [](int rank, int drop, std::size_t block, std::size_t first) {
        const tuttiDpSampler_t s{0, 3, rank, 0, drop, 0, 0};
        std::size_t count = 9;
        std::vector<std::size_t> mine(2);
        REQUIRE(tuttiDpSampleStream(&s, 2, block, first, &count, mine.data()) == tuttiSuccess);
        mine.resize(count);
        return mine;
    };
    using Part = std::vector<std::size_t>;
    REQUIRE(part(1, 0, 6, 6) == Part{2, 3});
    REQUIRE(part(2, 1, 6, 6) == Part{4, 5});
    REQUIRE(part(1, 0, 3, 6) == Part{2, 3 + 0});  // one sample of the block, then the first of the first block
    REQUIRE(part(2, 0, 3, 6) == Part{3 + 1, 3 + 2});
    REQUIRE(part(2, 0, 1, 1) == Part{1 + 0, 1 + 0});  // a stream of one sample: again and again
    REQUIRE(part(0, 1, 5, 6).empty());
    REQUIRE(part(0, 0, 0, 6).empty());
    const tuttiDpSampler_t s{0, 3, 0, 0, 0, 0, 0};
    std::size_t count, mine[2];
    REQUIRE(tuttiDpSampleStream(&s, 2, 7, 7, &count, mine) == tuttiInvalidArgument);
    REQUIRE(tuttiDpSampleStream(&s, 2, 3, 2, &count, mine) == tuttiInvalidArgument);
    REQUIRE(tuttiDpSampleStream(&s, 2, 3, 3, nullptr, mine) == tuttiInvalidArgument);
}

TEST_CASE("a mesh: the ranks of every line meet") {
    std::atomic<int> fine{0}, refused{0};
    const tuttiUniqueId id = new_id();
    harness::run(6, [&](int r) {
        tuttiComm_t comm = harness::join(id, r, 6, false);
        const int dims[] = {2, 1, 3}, wrong[] = {2, 2};
        tuttiComm_t comms[3] = {};
        refused += tuttiDpMesh(comm, wrong, 2, comms) == tuttiInvalidArgument;
        harness::must_succeed(tuttiDpMesh(comm, dims, 3, comms), "mesh");
        const int expected_sum[] = {r % 3 * 2 + 3, r, r / 3 * 9 + 3};
        const int expected_rank[] = {r / 3, 0, r % 3};
        for (int i = 0; i < 3; ++i) {
            int sum = r, rank = -1;
            harness::must_succeed(tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiSum, comms[i], nullptr), "sum");
            harness::must_succeed(tuttiCommUserRank(comms[i], &rank), "rank");
            fine += sum == expected_sum[i] && rank == expected_rank[i];
            tuttiCommDestroy(comms[i]);
        }
        tuttiCommDestroy(comm);
    });
    REQUIRE(fine == 18);
    REQUIRE(refused == 6);
}
