// config.onArrival: checkpoints that one rank writes and reads.
#include <atomic>
#include <cmath>
#include <filesystem>

#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"
#include "harness/folder.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr std::size_t large = 1200000;  // elements: more than a part of 4 MiB

/// Servers are dedicated.
tuttiDpConfig_t config_of(int servers, tuttiDpOptimizerKind_t kind = tuttiDpAdamW) {
    tuttiDpConfig_t config = harness::config_for(servers == 1 ? tuttiDpServer : tuttiDpShardedServer, kind);
    config.onArrival = 1;
    config.dedicated = 1;
    if (servers > 1) config.servers = servers;
    return config;
}

/// `count` elements, a few, and some that are frozen.
std::vector<tuttiDpParameter_t> parameters_of(tuttiDataType_t type, std::size_t count = large) {
    std::vector<tuttiDpParameter_t> all = {{"large", nullptr, nullptr, count, type, tuttiDpSameType, 0, 0},
                                           {"few", nullptr, nullptr, 7, type, tuttiDpSameType, 0, 0},
                                           {"frozen", nullptr, nullptr, 3, tuttiInt32, tuttiDpSameType, 0, 0}};
    all[2].kind = tuttiDpFrozen;
    return all;
}

/// Gradients that depend on the step and the place. 0x3800 is 0.5 as a float16.
void iterate(tuttiDp_t dp, tuttiDataType_t type, std::size_t count, int step) {
    pass(dp, {1, 0}, [&](std::size_t p) {
        void* at = nullptr;
        must_succeed(tuttiDpGradient(dp, p, &at), "gradient");
        for (std::size_t i = 0; i < (p == 0 ? count : 7); ++i)
            if (type == tuttiFloat32)
                static_cast<float*>(at)[i] = std::sin(static_cast<float>(i + 100 * static_cast<std::size_t>(step)));
            else
                static_cast<std::uint16_t*>(at)[i] = static_cast<std::uint16_t>(0x3800 + (i * 7 + 50u * step) % 0x400);
    });
    must_succeed(tuttiDpStep(dp), "step");
}

std::vector<std::byte> all_values(tuttiDp_t dp, tuttiDataType_t type, std::size_t count) {
    const std::size_t size = type == tuttiFloat32 ? 4 : 2;
    std::vector<std::byte> all(data_of<std::byte>(dp, 0), data_of<std::byte>(dp, 0) + count * size);
    all.insert(all.end(), data_of<std::byte>(dp, 1), data_of<std::byte>(dp, 1) + 7 * size);
    all.insert(all.end(), data_of<std::byte>(dp, 2), data_of<std::byte>(dp, 2) + 3 * sizeof(int));
    return all;
}

}  // namespace

TEST_CASE("On arrival: training goes on from a checkpoint with the same bits, in this mode and in another") {
    for (const tuttiDataType_t type : {tuttiFloat32, tuttiFloat16}) {
        CAPTURE(type);
        const harness::Folder folder;
        std::vector<std::byte> end;
        on_ranks(3, parameters_of(type), config_of(2), [&](int r, tuttiDp_t dp, tuttiComm_t) {
            if (r < 2) {
                check(tuttiDpSave(dp, folder.path.c_str()) == tuttiInvalidUsage && says("only serves"), "a server");
                return;
            }
            data_of<int>(dp, 2)[1] = 77;
            for (int step = 0; step < 3; ++step) iterate(dp, type, large, step);
            must_succeed(tuttiDpSetLearningRate(dp, 0.25), "rate");
            must_succeed(tuttiDpSetNote(dp, "epoch", "3"), "note");
            must_succeed(tuttiDpSave(dp, folder.path.c_str()), "save");
            for (int step = 3; step < 5; ++step) iterate(dp, type, large, step);
            must_succeed(tuttiDpWait(dp), "wait");
            end = all_values(dp, type, large);
        });
        const auto go_on = [&](tuttiDp_t dp) {
            must_succeed(tuttiDpLoad(dp, folder.path.c_str()), "load");
            char note[8] = "";
            must_succeed(tuttiDpGetNote(dp, "epoch", note, sizeof note), "note");
            check(std::string(note) == "3", "the note");
            const tuttiDpStatistics_t s = statistics(dp);
            check(s.steps == 3, "steps");
            for (int step = 3; step < 5; ++step) iterate(dp, type, large, step);
            must_succeed(tuttiDpWait(dp), "wait");
            check(all_values(dp, type, large) == end, "another end");
        };
        on_ranks(2, parameters_of(type), config_of(1), [&](int r, tuttiDp_t dp, tuttiComm_t) {
            if (r == 1) go_on(dp);
        });
        tuttiDpConfig_t alone = harness::config_for(tuttiDpZero1);
        on_ranks(1, parameters_of(type), alone, [&](int, tuttiDp_t dp, tuttiComm_t) {
            go_on(dp);
            must_succeed(tuttiDpSave(dp, folder.path.c_str()), "save");
        });
        // And back.
        on_ranks(2, parameters_of(type), config_of(1), [&](int r, tuttiDp_t dp, tuttiComm_t) {
            if (r == 0) return;
            must_succeed(tuttiDpLoad(dp, folder.path.c_str()), "load");
            check(all_values(dp, type, large) == end, "other values");
        });
    }
    SUCCEED();
}

TEST_CASE(
    "On arrival: a checkpoint has every gradient of its rank, and of others' whole ones, also of ranks that died") {
    const harness::Folder folder;
    std::atomic<bool> saved{false};
    tuttiDpConfig_t config = config_of(1, tuttiDpSgd);
    config.optimizer.learningRate = 1;
    config.optimizer.weightDecay = 0;
    Rendezvous left(3);
    on_ranks(4, three(), config, [&](int r, tuttiDp_t dp, tuttiComm_t) {
        const auto add_one = [&] {
            pass(dp, {2, 1, 0}, [&](std::size_t p) {
                std::fill_n(gradient(dp, p), p == 2 ? 100 : p == 1 ? 1 : 5, -1.0f);
            });
            must_succeed(tuttiDpStep(dp), "step");
        };
        if (r == 3) {
            add_one();
            must_succeed(tuttiDpWait(dp), "wait");
            must_succeed(tuttiDpDestroy(dp), "destroy");  // it leaves
            left.wait();
        } else if (r == 2) {
            left.wait();
            for (int step = 0; step < 1000000 && !saved; ++step) add_one();
        } else if (r == 1) {
            left.wait();
            for (int step = 0; step < 5; ++step) add_one();
            must_succeed(tuttiDpSave(dp, folder.path.c_str()), "save");
            saved = true;
        }
    });
    tuttiDpConfig_t alone = harness::config_for(tuttiDpNaive, tuttiDpSgd);
    on_ranks(1, three(), alone, [&](int, tuttiDp_t dp, tuttiComm_t) {
        must_succeed(tuttiDpLoad(dp, folder.path.c_str()), "load");
        for (const std::size_t p : {0, 1, 2}) {
            const float* const w = data_of(dp, p);
            check(w[0] >= 6 && w[0] == std::floor(w[0]), "its own 5 and rank 3's");
            for (std::size_t i = 0; i < (p == 2 ? 100u : p == 1 ? 1u : 5u); ++i) check(w[i] == w[0], "half a gradient");
        }
    });
    SUCCEED();
}

TEST_CASE("On arrival: a save beside training is of the moment when it began, and holds from SaveWait on") {
    const harness::Folder folder;
    const std::string index = folder.path + "/model.safetensors.index.json";
    std::vector<std::byte> then;
    on_ranks(2, parameters_of(tuttiFloat32), config_of(1), [&](int r, tuttiDp_t dp, tuttiComm_t) {
        if (r == 0) return;
        const auto staging = [&] {
            tuttiDpMemory_t m;
            must_succeed(tuttiDpGetMemory(dp, &m), "memory");
            return m.staging;
        };
        for (int step = 0; step < 2; ++step) iterate(dp, tuttiFloat32, large, step);
        must_succeed(tuttiDpWait(dp), "wait");
        then = all_values(dp, tuttiFloat32, large);
        check(staging() == 0, "no copy yet");
        must_succeed(tuttiDpSaveAsync(dp, folder.path.c_str()), "save");
        check(staging() >= 3 * large * sizeof(float), "values and two states");
        for (int step = 2; step < 4; ++step) iterate(dp, tuttiFloat32, large, step);
        check(!std::filesystem::exists(index), "it holds before its time");
        must_succeed(tuttiDpSaveWait(dp), "wait");
        check(std::filesystem::exists(index) && staging() == 0, "it holds");
        must_succeed(tuttiDpSaveAsync(dp, folder.path.c_str()), "given up in Destroy");
    });
    on_ranks(1, parameters_of(tuttiFloat32), harness::config_for(tuttiDpNaive), [&](int, tuttiDp_t dp, tuttiComm_t) {
        must_succeed(tuttiDpLoad(dp, folder.path.c_str()), "load");
        check(all_values(dp, tuttiFloat32, large) == then, "values of another moment");
        const tuttiDpStatistics_t s = statistics(dp);
        check(s.steps == 2, "steps");
    });
    SUCCEED();
}

TEST_CASE("On arrival: what can't be saved or loaded is refused, and changes nothing") {
    const harness::Folder folder;
    on_ranks(2, three(), config_of(1), [&](int r, tuttiDp_t dp, tuttiComm_t) {
        if (r == 0) return;
        const std::string path = folder.path;
        check(tuttiDpSave(dp, "") == tuttiInvalidArgument && says("path is empty"), "no path");
        check(tuttiDpLoad(dp, nullptr) == tuttiInvalidArgument, "no path");
        check(tuttiDpSaveAsync(dp, "") == tuttiInvalidArgument && says("tuttiDpSaveAsync: path"), "no path");
        must_succeed(tuttiDpSaveWait(dp), "nothing to wait for");
        must_succeed(tuttiDpSaveAsync(dp, (path + "/none/such").c_str()), "found out beside training");
        check(tuttiDpSaveWait(dp) == tuttiInvalidUsage && says("none/such"), "a folder that can't be made");
        check(tuttiDpLoad(dp, path.c_str()) == tuttiInvalidUsage && says("no checkpoint"), "nothing there");
        must_succeed(tuttiDpSave(dp, path.c_str()), "save");
        must_succeed(tuttiDpBegin(dp), "begin");
        check(tuttiDpSave(dp, path.c_str()) == tuttiInvalidUsage && says("between"), "in an iteration");
        check(tuttiDpLoad(dp, path.c_str()) == tuttiInvalidUsage && says("between"), "in an iteration");
        *gradient(dp, 1) = 1;
        for (const std::size_t p : {2, 1, 0}) must_succeed(tuttiDpGradReady(dp, p), "ready");
        end_iteration(dp);
        must_succeed(tuttiDpWait(dp), "wait");
        const float before = *data_of(dp, 1);
        check(before != 0, "a step");
        for (const auto& entry : std::filesystem::directory_iterator(path))
            if (entry.path().filename().string().starts_with("optimizer-")) std::filesystem::resize_file(entry, 100);
        check(tuttiDpLoad(dp, path.c_str()) == tuttiInvalidUsage && says("torn"), "a torn file");
        must_succeed(tuttiDpWait(dp), "wait");
        check(*data_of(dp, 1) == before, "as it was");
    });
    SUCCEED();
}
