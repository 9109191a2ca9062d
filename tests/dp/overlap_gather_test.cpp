// config.overlapParamGather: Step returns when a rank's own part is updated, and the others' values come beside the
// next forward pass.
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr tuttiDpMode_t modes[] = {tuttiDpServer, tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero2};

/// Three units of a parameter each, and buckets of one.
std::vector<tuttiDpParameter_t> three_units() {
    std::vector<tuttiDpParameter_t> all = three();
    for (std::size_t p = 0; p < all.size(); ++p) all[p].unit = static_cast<int>(p);
    return all;
}

tuttiDpConfig_t overlapped(tuttiDpMode_t mode) {
    tuttiDpConfig_t config = config_for(mode, tuttiDpSgd);
    config.overlapParamGather = 1;
    config.optimizer.learningRate = 1;
    config.optimizer.weightDecay = 0;
    config.bucketBytes = config.firstBucketBytes = 8;
    return config;
}

void step_by(tuttiDp_t dp, float g) {
    pass(dp, {2, 1, 0}, [&](std::size_t p) { std::fill_n(gradient(dp, p), three()[p].count, g); });
    must_succeed(tuttiDpStep(dp), "step");
}

/// Checks all values of a parameter.
void has(tuttiDp_t dp, std::size_t p, float expected, const char* when) {
    float* const at = data_of(dp, p);
    for (std::size_t i = 0; i < three()[p].count; ++i)
        check(at[i] == expected,
              std::string(when) + ": parameter " + std::to_string(p) + " is " + std::to_string(at[i]));
}

}  // namespace

TEST_CASE("values that come beside the forward pass have the bits of those that come in Step") {
    for (const int n : sanitized ? std::vector{3} : std::vector{1, 2, 3, 4})
        for (const tuttiDataType_t type : {tuttiFloat32, tuttiBfloat16}) {
            Setup setup;
            setup.ranks = n;
            setup.type = type;
            for (const tuttiDpMode_t mode : modes)
                for (const int shard : {0, 2}) {
                    if (shard != 0 && (mode < tuttiDpZero1 || n != 4)) continue;
                    CAPTURE(n, type, mode, shard);
                    setup.config = config_for(mode);
                    setup.config.shardRanks = shard;
                    setup.own_data = mode != tuttiDpZero1;
                    const Trained in_step = train(setup);
                    setup.config.overlapParamGather = 1;
                    REQUIRE(train(setup).weights == in_step.weights);
                }
        }
}

TEST_CASE("Step does not wait for the values of other ranks, and Gather does") {
    for (const tuttiDpMode_t mode : {tuttiDpShardedServer, tuttiDpZero1, tuttiDpZero2}) {
        CAPTURE(mode);
        // Rank 1's update waits until rank 0 is out of Step.
        struct Gate {
            std::mutex mutex;
            std::condition_variable changed;
            bool open = false;
            static tuttiResult_t update(void* user, const tuttiDpPiece_t* piece) {
                for (std::size_t i = 0; i < piece->count; ++i) piece->weights[i] -= piece->gradients[i];
                if (user == nullptr) return tuttiSuccess;
                Gate& gate = *static_cast<Gate*>(user);
                std::unique_lock lock(gate.mutex);
                const bool in_time = gate.changed.wait_for(lock, std::chrono::seconds(60), [&] { return gate.open; });
                return in_time ? tuttiSuccess : tuttiSystemError;
            }
        } gate;
        const tuttiUniqueId id = new_id();
        run(2, [&](int r) {
            Held held{join(id, r, 2, true)};
            tuttiDpConfig_t config = overlapped(mode);
            config.optimizer.kind = tuttiDpCallback;
            config.optimizer.update = Gate::update;
            config.optimizer.user = r == 1 ? &gate : nullptr;
            const std::vector<tuttiDpParameter_t> parameters = three_units();
            must_succeed(tuttiDpCreate(&held.dp, parameters.data(), parameters.size(), &config, held.comm), "create");
            step_by(held.dp, 1);
            if (r == 0) {
                std::lock_guard lock(gate.mutex);
                gate.open = true;
                gate.changed.notify_all();
            }
            must_succeed(tuttiDpBegin(held.dp), "begin");
            for (const int unit : {0, 1, 2, 1}) {
                must_succeed(tuttiDpGather(held.dp, unit), "gather");
                has(held.dp, static_cast<std::size_t>(unit), -1, "gathered");
                must_succeed(tuttiDpRelease(held.dp, unit), "nothing has to be released");
            }
            check(tuttiDpGather(held.dp, 3) == tuttiInvalidArgument && says("unit 3"), "there are three");
        });
    }
}

TEST_CASE("what needs all values waits for those that are on their way") {
    const auto path = std::filesystem::temp_directory_path() / ("tutti-overlap-" + std::to_string(getpid()));
    for (const tuttiDpMode_t mode : modes) {
        CAPTURE(mode);
        on_ranks(3, three_units(), overlapped(mode), [&](int, tuttiDp_t dp, tuttiComm_t) {
            step_by(dp, 1);
            must_succeed(tuttiDpCheckEqual(dp), "equal");
            step_by(dp, 1);
            must_succeed(tuttiDpSave(dp, path.c_str()), "save");
            step_by(dp, 1);
            must_succeed(tuttiDpWait(dp), "wait");
            for (std::size_t p = 0; p < 3; ++p) has(dp, p, -3, "after three steps");
            step_by(dp, 1);
            must_succeed(tuttiDpLoad(dp, path.c_str()), "load");
            for (std::size_t p = 0; p < 3; ++p) has(dp, p, -2, "loaded");
            step_by(dp, 1);
            must_succeed(tuttiDpBroadcast(dp, 2), "broadcast");
            for (std::size_t p = 0; p < 3; ++p) has(dp, p, -3, "broadcast");
            step_by(dp, 1);  // and Destroy
        });
    }
    std::filesystem::remove_all(path);
}

TEST_CASE("an iteration that is given up while values are on their way: the step is whole on all ranks") {
    for (const tuttiDpMode_t mode : modes) {
        CAPTURE(mode);
        on_ranks(3, three_units(), overlapped(mode), [](int r, tuttiDp_t dp, tuttiComm_t comm) {
            for (int round = 1; round <= 3; ++round) {
                pass(dp, {2, 1, 0}, [&](std::size_t p) { std::fill_n(gradient(dp, p), three()[p].count, 1.0f); });
                must_succeed(tuttiDpStep(dp), "step");
                must_succeed(tuttiBarrier(comm, nullptr), "all have made the step");
                if (r == round % 3)
                    if (const tuttiResult_t result = tuttiDpGather(dp, 0); result != tuttiRemoteError)
                        must_succeed(result, "gather");
                must_succeed(tuttiDpAbandon(dp), "abandon");
                for (int unit = 0; unit < 3; ++unit) {
                    must_succeed(tuttiDpGather(dp, unit), "gather");
                    has(dp, static_cast<std::size_t>(unit), -static_cast<float>(round), "given up");
                }
            }
            must_succeed(tuttiDpCheckEqual(dp), "equal");
        });
    }
}

TEST_CASE("asynchronous modes refuse config.overlapParamGather, and others that need no gather ignore it") {
    tuttiDpConfig_t config = overlapped(tuttiDpServer);
    config.staleness = 1;
    const tuttiUniqueId id = new_id();
    tuttiComm_t comm = join(id, 0, 1, true);
    tuttiDp_t dp = nullptr;
    const std::vector<tuttiDpParameter_t> parameters = three_units();
    CHECK(tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm) == tuttiInvalidArgument);
    CHECK(says("config.overlapParamGather is for synchronous modes"));
    tuttiCommDestroy(comm);
    for (const tuttiDpMode_t mode : {tuttiDpNaive, tuttiDpBucketed})
        on_ranks(2, three_units(), overlapped(mode), [](int, tuttiDp_t layer, tuttiComm_t) {
            step_by(layer, 1);
            must_succeed(tuttiDpGather(layer, 0), "gather");
            has(layer, 0, -1, "updated here");
        });
}
