// What the caller writes to parameters between two steps, what it may register, and how updates are counted.
#include <cmath>
#include <string>
#include <vector>

#include <unistd.h>

#include "dp/numbers.hpp"
#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr std::size_t count = 3000;  // more than a block of the update

tuttiDpConfig_t plain(tuttiDpMode_t mode) {  // w -= g
    tuttiDpConfig_t config = harness::config_for(mode, tuttiDpSgd);
    config.optimizer.learningRate = 1;
    config.optimizer.weightDecay = 0;
    return config;
}

float shown(tuttiDataType_t type, const void* at, std::size_t i) {
    float value = 0;
    const auto t = static_cast<DataType>(type);
    dp::convert(DataType::float32, &value, t, static_cast<const std::byte*>(at) + i * size_of(t), 1);
    return value;
}

void put(tuttiDataType_t type, void* at, std::size_t i, float value) {
    const auto t = static_cast<DataType>(type);
    dp::convert(t, static_cast<std::byte*>(at) + i * size_of(t), DataType::float32, &value, 1);
}

/// One iteration in which all gradients of the one parameter are g.
void iterate(tuttiDp_t dp, tuttiDataType_t type, float g) {
    must_succeed(tuttiDpBegin(dp), "begin");
    void* at = gradient(dp, 0);
    for (std::size_t i = 0; i < count; ++i) put(type, at, i, g);
    must_succeed(tuttiDpGradReady(dp, 0), "ready");
    end_iteration(dp);
}

/// Steps of SGD, with values that all ranks write in between.
void write_between(tuttiDpMode_t mode, tuttiDataType_t type, bool own) {
    const tuttiUniqueId id = new_id();
    const tuttiDpConfig_t config = plain(mode);
    harness::run(2, [&](int r) {
        std::vector<double> memory(count);
        const tuttiDpParameter_t p{"w", own ? memory.data() : nullptr, nullptr, count, type, tuttiDpSameType, 0, 0};
        tuttiComm_t comm = harness::join(id, r, 2, true);
        tuttiDp_t dp = nullptr;
        must_succeed(tuttiDpCreate(&dp, &p, 1, &config, comm), "create");
        void* const w = data_of<void>(dp, 0);
        const std::size_t written[] = {0, 1500, count - 1};
        for (const std::size_t i : written) put(type, w, i, 100);
        iterate(dp, type, 1);
        for (const std::size_t i : written) check(shown(type, w, i) == 99, "written before the first step");
        for (const std::size_t i : written) put(type, w, i, -50);
        iterate(dp, type, 1);
        for (const std::size_t i : written) check(shown(type, w, i) == -51, "written between two steps");
        check(shown(type, w, 1) == -2 && shown(type, w, 2000) == -2, "what was not written goes on");
        must_succeed(tuttiDpCheckEqual(dp), "equal");
        tuttiDpDestroy(dp);
        tuttiCommDestroy(comm);
    });
}

int refused_at_create(const char* word, const char* other, const std::vector<tuttiDpParameter_t>& parameters,
                      const tuttiDpConfig_t& config) {
    tuttiComm_t comm = nullptr;
    must_succeed(tuttiCommInitAll(&comm, 1, nullptr), "comm");
    tuttiDp_t dp = nullptr;
    const tuttiResult_t result = tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm);
    const bool refused = result == tuttiInvalidArgument && says(word) && says(other);
    if (dp != nullptr) tuttiDpDestroy(dp);
    tuttiCommDestroy(comm);
    return refused;
}

}  // namespace

TEST_CASE("values that the caller writes between two steps count, in all modes that have them, with masters, too") {
    for (const auto mode :
         {tuttiDpNaive, tuttiDpBucketed, tuttiDpServer, tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero2})
        for (const auto type : {tuttiFloat32, tuttiBfloat16, tuttiFloat16})
            for (const bool own : {false, true}) {
                CAPTURE(mode, type, own);
                write_between(mode, type, own);
            }
}

TEST_CASE("a master keeps what is smaller than its parameter shows, as long as nobody writes there") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero1})
        on_ranks(2, {{"w", nullptr, nullptr, count, tuttiBfloat16, tuttiDpSameType, 0, 0}}, plain(mode),
                 [](int, tuttiDp_t dp, tuttiComm_t) {
                     iterate(dp, tuttiBfloat16, -256);
                     for (int i = 0; i < 4; ++i) iterate(dp, tuttiBfloat16, -0.5f);  // bfloat16 shows steps of 2 here
                     check(shown(tuttiBfloat16, data_of<void>(dp, 0), 7) == 258, "four halves");
                 });
}

TEST_CASE("parameters that share memory are refused by name: tied weights are registered once") {
    float a[10] = {}, b[10] = {};
    const auto with = [&](void* data, void* grad, void* other_data, void* other_grad) {
        return std::vector<tuttiDpParameter_t>{
            {"wte", data, grad, 6, tuttiFloat32, tuttiDpSameType, 0, 0},
            {"between", nullptr, nullptr, 6, tuttiFloat32, tuttiDpSameType, 0, 0},
            {"head", other_data, other_grad, 4, tuttiFloat32, tuttiDpSameType, 0, 0}};
    };
    REQUIRE(refused_at_create("'wte'", "'head'", with(a, nullptr, a, nullptr), plain(tuttiDpBucketed)));
    REQUIRE(refused_at_create("'wte'", "'head'", with(a, nullptr, a + 5, nullptr), plain(tuttiDpZero3)));
    REQUIRE(refused_at_create("'wte'", "gradient", with(nullptr, b, nullptr, b + 2), plain(tuttiDpNaive)));
    REQUIRE(refused_at_create("values", "gradient", with(a, a, nullptr, nullptr), plain(tuttiDpZero1)));
    REQUIRE_FALSE(refused_at_create("", "", with(a, b, a + 6, b + 6), plain(tuttiDpZero1)));  // neighbours
}

TEST_CASE("an update of the caller's for a parameter of float64 is refused by Create") {
    tuttiDpConfig_t config = harness::config_for(tuttiDpBucketed, tuttiDpCallback);
    config.optimizer.update = [](void*, const tuttiDpPiece_t*) { return tuttiSuccess; };
    auto parameters = three();
    parameters[1].type = tuttiFloat64;
    REQUIRE(refused_at_create("'b'", "float64", parameters, config));
}

TEST_CASE("Adam counts the updates of each parameter, which a checkpoint keeps") {
    // Parameter 1 is used from the third step on. Adam's first update is of the size of the learning rate.
    const std::string path = "/tmp/tutti-dp-updates-" + std::to_string(::getpid());
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero1}) {
        CAPTURE(mode);
        tuttiDpConfig_t config = harness::config_for(mode, tuttiDpAdam);
        config.optimizer.weightDecay = 0;
        config.findUnusedParameters = 1;
        const auto iterate_some = [](tuttiDp_t dp, bool second) {
            must_succeed(tuttiDpBegin(dp), "begin");
            for (const std::size_t p : {2, 1, 0}) {
                if (p == 1 && !second) continue;
                *gradient(dp, p) = 0.25f;
                must_succeed(tuttiDpGradReady(dp, p), "ready");
            }
            end_iteration(dp);
        };
        const auto value = [](tuttiDp_t dp, std::size_t p) { return *data_of(dp, p); };
        const auto near = [](float a, float b) { return std::fabs(a - b) < 1e-4f; };
        std::vector<float> straight(2);
        on_ranks(2, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
            for (int i = 0; i < 2; ++i) iterate_some(dp, false);
            check(value(dp, 1) == 0, "not used");
            iterate_some(dp, true);
            check(near(value(dp, 1), -0.05f), "its first update");
            check(near(value(dp, 0), -0.15f), "the third of the others");
            must_succeed(tuttiDpSave(dp, path.c_str()), "save");
            iterate_some(dp, true);
            straight[static_cast<std::size_t>(r)] = value(dp, 1);
        });
        on_ranks(2, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
            must_succeed(tuttiDpLoad(dp, path.c_str()), "load");
            iterate_some(dp, true);
            check(value(dp, 1) == straight[static_cast<std::size_t>(r)], "as if it had gone on");
        });
        REQUIRE(near(straight[0], -0.1f));
        REQUIRE(std::system(("rm -rf " + path).c_str()) == 0);
    }
}

TEST_CASE("buckets are rebuilt after a checkpoint was loaded, too") {
    const std::string path = "/tmp/tutti-dp-rebuilt-" + std::to_string(::getpid());
    tuttiDpConfig_t config = harness::config_for(tuttiDpBucketed, tuttiDpMomentum);
    config.rebuild = 1;
    config.bucketBytes = 256;
    on_ranks(2, three(), config, [&](int, tuttiDp_t dp, tuttiComm_t) {
        must_succeed(tuttiDpSave(dp, path.c_str()), "save");
        must_succeed(tuttiDpLoad(dp, path.c_str()), "load");
        for (int i = 0; i < 2; ++i) {
            pass(dp, {0, 1, 2}, [&](std::size_t p) { *gradient(dp, p) = 1; });
            must_succeed(tuttiDpStep(dp), "step");
        }
        tuttiDpBucketStatistics_t first;
        must_succeed(tuttiDpGetBucketStatistics(dp, 0, &first), "statistics");
        check(first.firstParameter == 0, "what is ready first goes first");
    });
    REQUIRE(std::system(("rm -rf " + path).c_str()) == 0);
}
