// Parameters that are not trained: frozen ones and buffers, beside others, in all modes.
#include <filesystem>

#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr tuttiDpMode_t all_modes[] = {tuttiDpNaive, tuttiDpBucketed, tuttiDpServer, tuttiDpShardedServer,
                                       tuttiDpZero1, tuttiDpZero2,    tuttiDpZero3};
constexpr std::size_t counts[] = {5, 130, 3};

std::vector<tuttiDpParameter_t> trained() {
    return {{"first", nullptr, nullptr, counts[0], tuttiFloat32, tuttiDpSameType, 0, 0},
            {"second", nullptr, nullptr, counts[1], tuttiFloat32, tuttiDpSameType, 0, 2},
            {"third", nullptr, nullptr, counts[2], tuttiFloat32, tuttiDpSameType, 0, 2}};
}

/// Among them: 7 frozen numbers, alone in a unit, and a counter. In the layer's memory.
std::vector<tuttiDpParameter_t> with_others() {
    std::vector<tuttiDpParameter_t> all = trained();
    all.insert(all.begin() + 1,
               {"frozen", nullptr, nullptr, 7, tuttiBfloat16, tuttiDpSameType, 0, 1, 0, {}, tuttiDpFrozen});
    all.insert(all.begin() + 2,
               {"counter", nullptr, nullptr, 2, tuttiInt64, tuttiDpSameType, 0, 1, 0, {}, tuttiDpBuffer});
    return all;
}

/// Some steps; the trained values then. numbers: of the trained parameters.
std::vector<float> train(tuttiDp_t dp, int rank, tuttiDpMode_t mode, const std::vector<std::size_t>& numbers,
                         int last_unit, int steps = 3) {
    const auto units = [&](auto body) {
        for (int unit = 0; unit <= last_unit && mode == tuttiDpZero3; ++unit)
            if (last_unit == 2 && numbers[1] == 1 && unit == 1)
                continue;  // without the others there is no such unit
            else
                must_succeed(body(unit), "unit");
    };
    const auto gather = [&](int unit) { return tuttiDpGather(dp, unit); };
    const auto release = [&](int unit) { return tuttiDpRelease(dp, unit); };
    for (int step = 0; step < steps; ++step) {
        must_succeed(tuttiDpBegin(dp), "begin");
        units(gather);
        for (std::size_t i = numbers.size(); i-- > 0;) {
            float* const g = gradient(dp, numbers[i]);
            for (std::size_t k = 0; k < counts[i]; ++k)
                g[k] = static_cast<float>((rank + 1) * (step + 1)) / static_cast<float>(k + i + 3);
            must_succeed(tuttiDpGradReady(dp, numbers[i]), "ready");
        }
        units(release);
        end_iteration(dp);
    }
    must_succeed(tuttiDpWait(dp), "wait");
    std::vector<float> all;
    units(gather);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const float* const at = data_of(dp, numbers[i]);
        all.insert(all.end(), at, at + counts[i]);
    }
    units(release);
    return all;
}

}  // namespace

TEST_CASE("frozen parameters and buffers change nothing for the others, and stay, in all modes", "[exhaustive]") {
    const std::string path = "/tmp/tutti-dp-kinds-" + std::to_string(::getpid());
    for (int n = 1; n <= (harness::sanitized ? 2 : 4); ++n)
        for (const tuttiDpMode_t mode : all_modes) {
            CAPTURE(n, mode);
            tuttiDpConfig_t config = harness::config_for(mode);
            config.bucketBytes = config.firstBucketBytes = 64;
            config.rebuild = mode == tuttiDpBucketed ? 1 : TUTTI_UNDEF_INT;
            std::vector<float> expected;
            harness::on_ranks(n, trained(), config, [&](int rank, tuttiDp_t dp, tuttiComm_t) {
                std::vector<float> mine = train(dp, rank, mode, {0, 1, 2}, 2);
                if (rank == 0) expected = std::move(mine);
            });
            harness::on_ranks(n, with_others(), config, [&](int rank, tuttiDp_t dp, tuttiComm_t) {
                auto* const frozen = data_of<std::uint16_t>(dp, 1);
                auto* const counter = data_of<std::int64_t>(dp, 2);
                for (int i = 0; i < 7; ++i) frozen[i] = static_cast<std::uint16_t>(100 * rank + i);
                for (int i = 0; i < 2; ++i) counter[i] = (std::int64_t{1} << 40) + 10 * rank + i;
                must_succeed(tuttiDpBroadcast(dp, n - 1), "broadcast");
                check(frozen[6] == 100 * (n - 1) + 6, "the last rank's");
                check(counter[1] == (std::int64_t{1} << 40) + 10 * (n - 1) + 1, "the last rank's");
                check(train(dp, rank, mode, {0, 3, 4}, 2) == expected, "as without the others");
                check(data_of<std::uint16_t>(dp, 1) == frozen && frozen[6] == 100 * (n - 1) + 6, "it stays");
                counter[1] += rank;
                must_succeed(tuttiDpBroadcast(dp, n - 1), "broadcast after steps");
                check(counter[1] == (std::int64_t{1} << 40) + 11 * (n - 1) + 1, "the last rank's");
                check(train(dp, rank, mode, {0, 3, 4}, 2, 0) == expected, "what is trained stays");
                counter[0] += 5 + rank;
                if (mode != tuttiDpZero3) must_succeed(tuttiDpCheckEqual(dp), "buffers may differ");
                must_succeed(tuttiDpSave(dp, path.c_str()), "save");
            });
            config.mode = mode == tuttiDpZero3 ? tuttiDpZero1 : tuttiDpZero3;
            config.rebuild = TUTTI_UNDEF_INT;
            harness::on_ranks(5 - n, with_others(), config, [&](int, tuttiDp_t dp, tuttiComm_t) {
                must_succeed(tuttiDpLoad(dp, path.c_str()), "load");
                const auto* const frozen = data_of<std::uint16_t>(dp, 1);
                const auto* const counter = data_of<std::int64_t>(dp, 2);
                for (int i = 0; i < 7; ++i) check(frozen[i] == 100 * (n - 1) + i, "as they were saved");
                check(counter[0] == (std::int64_t{1} << 40) + 10 * (n - 1) + 5, "rank 0's");
            });
        }
    std::filesystem::remove_all(path);
}

TEST_CASE("what is not trained has no gradient, and is refused as what it is") {
    harness::on_ranks(1, with_others(), harness::config_for(tuttiDpBucketed), [&](int, tuttiDp_t dp, tuttiComm_t comm) {
        must_succeed(tuttiDpBegin(dp), "begin");
        void* at = nullptr;
        check(tuttiDpGradReady(dp, 1) == tuttiInvalidUsage && says("'frozen' is frozen"), "ready");
        check(tuttiDpGradient(dp, 2, &at) == tuttiInvalidUsage && says("'counter' is a buffer"), "gradient");
        check(tuttiDpSynchronize(dp) == tuttiInvalidUsage && says("3 of 5 parameters"), "what is missing is trained");
        const auto refused = [&](const char* words, auto change) {
            std::vector<tuttiDpParameter_t> all = with_others();
            change(all);
            tuttiDp_t none = nullptr;
            check(tuttiDpCreate(&none, all.data(), all.size(), nullptr, comm) == tuttiInvalidArgument && says(words),
                  tuttiGetLastError(nullptr));
        };
        std::int64_t gradient[2];
        refused("'counter' is not trained, but has a gradient", [&](auto& all) { all[2].grad = gradient; });
        refused("the kind of parameter 'counter' is 9", [](auto& all) { all[2].kind = static_cast<tuttiDpKind_t>(9); });
        refused("the type of parameter 'counter' is 99",
                [](auto& all) { all[2].type = static_cast<tuttiDataType_t>(99); });
        refused("the type of parameter 'first'", [](auto& all) { all[0].type = tuttiInt64; });
        refused("none of 1 parameters is trained", [](auto& all) { all = {all[1]}; });
    });
}
