// Ranks that call a collective with different counts: they are told so, and nobody writes beyond another one's buffer
// before that. What a single message may do is tests/transport/posted_receive_test.cpp.
#include <cstring>
#include <vector>

#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/guarded.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using harness::check;

TEST_CASE("ranks whose counts differ are told so, and write nothing beyond a buffer's end") {
    constexpr int n = 3;
    constexpr std::size_t most = 50000;
    for (const char* const name : {"", "ring", "tree", "flat", "direct"})
        for (const std::size_t least : {std::size_t{13}, std::size_t{30000}})
            for (int few = 0; few < n; ++few) {  // the rank that calls with less
                CAPTURE(name, least, few);
                const tuttiUniqueId id = harness::new_id();
                REQUIRE_NOTHROW(harness::run(n, [&](int r) {
                    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
                    config.algorithm = name;
                    tuttiComm_t comm = nullptr;
                    harness::must_succeed(tuttiCommInitRankConfig(&comm, n, id, r, &config), "init");
                    const std::size_t count = r == few ? least : most;
                    using harness::Guarded;
                    const Guarded in(count * sizeof(float), Guarded::At::back);
                    const Guarded out(count * sizeof(float), Guarded::At::back);
                    auto* const from = reinterpret_cast<float*>(in.data());
                    auto* const to = reinterpret_cast<float*>(out.data());
                    std::memset(from, 0, count * sizeof(float));
                    const tuttiResult_t result = tuttiAllReduce(from, to, count, tuttiFloat32, tuttiSum, comm, nullptr);
                    check(result == tuttiInvalidUsage || result == tuttiRemoteError, "the counts were not compared");
                    tuttiCommDestroy(comm);
                }));
            }
}

TEST_CASE("ranks whose counts differ are told so where steps only copy, however short the messages are") {
    constexpr int n = 3;
    struct Counts {
        std::size_t least, most;
    };
    for (const char* const name : {"", "ring", "direct"})
        for (const Counts counts : {Counts{1, 2}, Counts{5, 300}, Counts{300, 40000}})
            for (int few = 0; few < n; ++few) {
                CAPTURE(name, counts.least, counts.most, few);
                const tuttiUniqueId id = harness::new_id();
                REQUIRE_NOTHROW(harness::run(n, [&](int r) {
                    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
                    config.algorithm = name;
                    tuttiComm_t comm = nullptr;
                    harness::must_succeed(tuttiCommInitRankConfig(&comm, n, id, r, &config), "init");
                    const std::size_t count = r == few ? counts.least : counts.most;
                    std::vector<float> in(count);
                    const harness::Guarded out(n * count * sizeof(float), harness::Guarded::At::back);
                    const tuttiResult_t result =
                        tuttiAllGather(in.data(), out.data(), count, tuttiFloat32, comm, nullptr);
                    check(result == tuttiInvalidUsage || result == tuttiRemoteError, "the counts were not compared");
                    tuttiCommDestroy(comm);
                }));
            }
}
