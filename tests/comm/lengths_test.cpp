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

namespace {

/// Rank `few` of 3 calls with `least` elements, the others with `most`. call(count, comm): the collective.
template <typename Call>
void must_be_told(const char* algorithm, std::size_t least, std::size_t most, int few, Call&& call) {
    constexpr int n = 3;
    CAPTURE(algorithm, least, most, few);
    const tuttiUniqueId id = harness::new_id();
    REQUIRE_NOTHROW(harness::run(n, [&](int r) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.algorithm = algorithm;
        tuttiComm_t comm = nullptr;
        harness::must_succeed(tuttiCommInitRankConfig(&comm, n, id, r, &config), "init");
        const tuttiResult_t result = call(r == few ? least : most, comm);
        check(result == tuttiInvalidUsage || result == tuttiRemoteError, "the counts were not compared");
        tuttiCommDestroy(comm);
    }));
}

tuttiResult_t all_reduce(std::size_t count, tuttiComm_t comm) {
    using harness::Guarded;
    const Guarded in(count * sizeof(float), Guarded::At::back), out(count * sizeof(float), Guarded::At::back);
    std::memset(in.data(), 0, count * sizeof(float));
    return tuttiAllReduce(in.data(), out.data(), count, tuttiFloat32, tuttiSum, comm, nullptr);
}

tuttiResult_t all_gather(std::size_t count, tuttiComm_t comm) {
    const std::vector<float> in(count);
    const harness::Guarded out(3 * count * sizeof(float), harness::Guarded::At::back);
    return tuttiAllGather(in.data(), out.data(), count, tuttiFloat32, comm, nullptr);
}

}  // namespace

TEST_CASE("ranks whose counts differ are told so, and write nothing beyond a buffer's end") {
    for (const char* const name : {"", "ring", "tree", "flat", "direct"})
        for (const std::size_t least : {std::size_t{13}, std::size_t{30000}})
            for (int few = 0; few < 3; ++few) must_be_told(name, least, 50000, few, all_reduce);
}

TEST_CASE("ranks whose counts differ are told so where steps only copy, however short the messages are") {
    for (const char* const name : {"", "ring", "direct"})
        for (int few = 0; few < 3; ++few) {
            must_be_told(name, 1, 2, few, all_gather);
            must_be_told(name, 5, 300, few, all_gather);
            must_be_told(name, 300, 40000, few, all_gather);
        }
}
