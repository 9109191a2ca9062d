// LAMB: an optimizer that needs whole parameters.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "dp/lamb.hpp"
#include "dp/numbers.hpp"
#include "dp/on_gpus.hpp"
#include "dp/training.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

TEST_CASE("LAMB: a sum of squares is exact, whatever its order and its parts") {
    std::mt19937_64 random(harness::seed());
    std::vector<double> all;
    for (int i = 0; i < 4000; ++i) {
        const float x =
            std::ldexp(std::uniform_real_distribution<float>(1, 2)(random), static_cast<int>(random() % 250) - 125);
        all.push_back(double{x} * x);
    }
    for (const float x : {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max(), 0.0f})
        all.push_back(double{x} * x);
    const auto sum_of = [](const std::vector<double>& some) {
        dp::ExactSum sum;
        for (const double x : some) sum.add(x);
        return sum.value();
    };
    const double sum = sum_of(all);
    std::ranges::shuffle(all, random);
    REQUIRE(sum_of(all) == sum);
    long double expected = 0;
    std::ranges::sort(all);
    for (const double x : all) expected += x;
    REQUIRE(sum == Approx(static_cast<double>(expected)).epsilon(1e-15));
    REQUIRE(sum_of({0x1p100, 1, 0x1p-298}) == 0x1p100);
    REQUIRE(sum_of({1, 0x1p-298}) == 1);
    REQUIRE(sum_of({0x1p-298}) == 0x1p-298);
    REQUIRE(sum_of({0x1p53, 1, 1}) == 0x1p53 + 2);  // which doubles would not see
    REQUIRE(sum_of({}) == 0);
    REQUIRE(std::isnan(sum_of({1, std::numeric_limits<double>::infinity()})));
    dp::BasicExactSum<double> wide;  // from the least double to the greatest
    for (const double x : {0x1p-1074, 0x1p1000, 0x1p-1022, 1.0, 0x1p-1074}) wide.add(x);
    REQUIRE(wide.value() == 0x1p1000);
    dp::BasicExactSum<double> least;
    for (int i = 0; i < 3; ++i) least.add(0x1p-1074);
    REQUIRE(least.value() == 0x1.8p-1073);
}

TEST_CASE("LAMB: its formula in fp64, however a parameter is cut") {
    for (const std::size_t n : {3, 50, 2304}) {
        tuttiDpOptimizer_t o{tuttiDpLamb, 0.01, 0.9, 0.9, 0.99, 1e-6, 0.1, nullptr, nullptr};
        std::vector<float> whole(n), cut(n), g(n), kept(4 * n);
        std::vector<double> w(n), m(n), v(n), u(n);
        for (std::size_t i = 0; i < n; ++i) w[i] = cut[i] = whole[i] = std::sin(static_cast<float>(i + 1));
        const auto array = [&](std::size_t i) { return reinterpret_cast<std::byte*>(kept.data() + i * n); };
        const dp::States one{nullptr, {array(0), array(1)}}, two{nullptr, {array(2), array(3)}};
        const auto step = [&](const dp::Update& how, std::vector<float>& values, const dp::States& states,
                              std::size_t part) {
            dp::Norms norms;
            for (std::size_t at = 0; at < n; at += part)
                dp::measure(how, {0, at, std::min(part, n - at), at}, n, DataType::float32, values.data() + at,
                            DataType::float32, g.data() + at, states, norms);
            for (std::size_t at = 0; at < n; at += part)
                dp::apply(how, dp::trust_ratio(norms), {0, at, std::min(part, n - at), at}, DataType::float32,
                          values.data() + at, DataType::float32, g.data() + at, states);
        };
        for (int t = 1; t <= 5; ++t) {
            for (std::size_t i = 0; i < n; ++i) g[i] = 64 * std::cos(static_cast<float>(i * static_cast<unsigned>(t)));
            const dp::Update how{&o, o.learningRate, o.weightDecay, t, 1.0 / 64};
            step(how, whole, one, n);
            step(how, cut, two, n < 64 ? 1 : 136);
            double of_w = 0, of_u = 0;
            for (std::size_t i = 0; i < n; ++i) {
                const double grad = g[i] / 64.0;
                m[i] = 0.9 * m[i] + 0.1 * grad;
                v[i] = 0.99 * v[i] + 0.01 * grad * grad;
                u[i] = m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.99, t))) + 1e-6) + 0.1 * w[i];
                of_w += w[i] * w[i];
                of_u += u[i] * u[i];
            }
            for (std::size_t i = 0; i < n; ++i) w[i] -= 0.01 * std::sqrt(of_w) / std::sqrt(of_u) * u[i];
        }
        REQUIRE(cut == whole);
        for (std::size_t i = 0; i < n; ++i)
            if (std::fabs(whole[i] - w[i]) > 1e-5) FAIL(n << ": " << whole[i] << " instead of " << w[i]);
    }
    REQUIRE(dp::trust_ratio({}) == 1);
}

TEST_CASE("LAMB: every synchronous mode has the bits of one rank, for 1 to 4 ranks", "[exhaustive][long]") {
    for (const auto type : {tuttiFloat32, tuttiBfloat16})
        for (int n = 1; n <= 4; ++n) {
            Setup setup;
            setup.ranks = n;
            setup.type = type;
            setup.config = harness::config_for(tuttiDpNaive, tuttiDpLamb);
            setup.config.fp32Gradients = 1;
            setup.config.lossScale = 4;
            const Trained alone = harness::train_alone(setup);
            REQUIRE(alone.losses.back() < alone.losses.front());
            for (const auto mode :
                 {tuttiDpBucketed, tuttiDpServer, tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero2, tuttiDpZero3})
                for (const int group : {0, 1, 2}) {
                    if (group > 0 && (mode < tuttiDpZero1 || n % group != 0)) continue;
                    CAPTURE(type, n, mode, group);
                    setup.config.mode = mode;
                    setup.config.shardRanks = group;
                    setup.own_data = mode != tuttiDpZero2;
                    REQUIRE(harness::train(setup).weights == alone.weights);
                }
        }
}

TEST_CASE("LAMB: GPUs with offload have the bits of CPUs; what can't be is refused") {
    harness::Gpus g(tuttiDpZero1, tuttiDpLamb);
    REQUIRE_THROWS_WITH(harness::train(g.setup), Catch::Matchers::Contains("tuttiDpLamb works on the host's memory"));
    g.setup.config.offload = 1;
    REQUIRE(harness::train(g.setup).weights == g.on_cpus().weights);
    Setup setup;
    setup.config = harness::config_for(tuttiDpServer, tuttiDpLamb);
    setup.config.staleness = 1;
    REQUIRE_THROWS_WITH(harness::train(setup), Catch::Matchers::Contains("synchronous"));
    setup.config.staleness = TUTTI_UNDEF_INT;
    setup.type = tuttiFloat64;
    REQUIRE_THROWS_WITH(harness::train(setup), Catch::Matchers::Contains("float64"));
}

TEST_CASE("squares of a parameter's shards add up to those of the whole, to the last bit") {
    for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float16, DataType::float64})
        for (const std::size_t count : {7u, 64u, 5000u}) {
            std::vector<float> x(count);
            for (std::size_t i = 0; i < count; ++i)
                x[i] = std::ldexp(std::sin(static_cast<float>(i + 1)), static_cast<int>(i * 7 % 12) - 6);
            std::vector<std::byte> values(count * size_of(type));
            dp::convert(type, values.data(), DataType::float32, x.data(), count);
            dp::Squares whole;
            dp::add_squares(type, values.data(), count, count, whole);
            dp::convert(DataType::float32, x.data(), type, values.data(), count);
            double nearly = 0;
            for (const float value : x) nearly += static_cast<double>(value) * value;
            CAPTURE(name_of(type), count);
            REQUIRE(whole.value() == Approx(nearly).epsilon(1e-12));
            const std::size_t line = count < 64 ? 1 : 64 / size_of(type);  // where shards may end
            for (const std::size_t lines : {1u, 3u, 70u}) {
                dp::Squares parts;
                for (std::size_t end = count, part = lines * line; end > 0;) {  // from the last shard to the first
                    const std::size_t begin = (end - 1) / part * part;
                    dp::add_squares(type, values.data() + begin * size_of(type), end - begin, count, parts);
                    end = begin;
                }
                REQUIRE(parts.value() == whole.value());
            }
        }
}
