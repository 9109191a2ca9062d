// Programs that were built with another dp.h, older or newer.
#include "dp/sized.hpp"

#include "dp/on_ranks.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using harness::says;

namespace {

/// The parameter of a later version.
struct Later {
    tuttiDpParameter_t known;
    long long more;
};

tuttiComm_t alone() {
    const tuttiUniqueId id = harness::new_id();
    return harness::join(id, 0, 1, true);
}

}  // namespace

TEST_CASE("arrays of parameters are walked in the caller's steps") {
    const tuttiComm_t comm = alone();
    const std::size_t first = dp::first_size<tuttiDpParameter_t>;
    std::vector<std::byte> old(2 * first);  // as a program of the first version has them, side by side
    const tuttiDpParameter_t a{"a", nullptr, nullptr, 3, tuttiFloat32, tuttiDpSameType, 0, 0},
        b{"b", nullptr, nullptr, 5, tuttiFloat32, tuttiDpSameType, 0, 0};
    std::memcpy(old.data(), &a, first);
    std::memcpy(old.data() + first, &b, first);
    tuttiDp_t dp = nullptr;
    const auto before = &tuttiDpCreate;  // no macro: the function
    REQUIRE(before(&dp, reinterpret_cast<const tuttiDpParameter_t*>(old.data()), 2, nullptr, comm) == tuttiSuccess);
    void* data = nullptr;
    CHECK(tuttiDpData(dp, 1, &data) == tuttiSuccess);
    tuttiDpStatistics_t statistics{};
    CHECK(tuttiDpGetStatisticsSized(8, dp, &statistics) == tuttiInvalidArgument);
    CHECK(says("8 bytes"));
    struct {
        tuttiDpMemory_t known;
        long long more = 7;
    } memory;
    CHECK(tuttiDpGetMemorySized(sizeof memory, dp, &memory.known) == tuttiSuccess);
    CHECK(memory.known.parameters >= 8 * sizeof(float));
    CHECK(memory.more == 0);  // as nobody knows it here
    CHECK(tuttiDpDestroy(dp) == tuttiSuccess);

    Later later[2] = {{a, 0}, {b, 0}};
    REQUIRE(tuttiDpCreateSized(sizeof(Later), &dp, &later[0].known, 2, nullptr, comm) == tuttiSuccess);
    CHECK(tuttiDpDestroy(dp) == tuttiSuccess);
    later[1].more = 1;
    CHECK(tuttiDpCreateSized(sizeof(Later), &dp, &later[0].known, 2, nullptr, comm) == tuttiInvalidArgument);
    CHECK(says("a newer dp.h"));
    CHECK(tuttiDpCreateSized(first - 1, &dp, &a, 1, nullptr, comm) == tuttiInvalidArgument);
    tuttiCommDestroy(comm);
}

TEST_CASE("a config without the size of groups has the first version's") {
    const tuttiComm_t comm = alone();
    const tuttiDpGroup_t groups[] = {{1, 0}, {0.5, 0.1}};
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.size = offsetof(tuttiDpConfig_t, groupSize);
    config.groups = groups;
    config.groupCount = 2;
    config.groupSize = 1;  // behind the caller's config: not looked at
    const tuttiDpParameter_t a{"a", nullptr, nullptr, 3, tuttiFloat32, tuttiDpSameType, 1, 0};
    tuttiDp_t dp = nullptr;
    REQUIRE(tuttiDpCreate(&dp, &a, 1, &config, comm) == tuttiSuccess);
    CHECK(tuttiDpDestroy(dp) == tuttiSuccess);
    config.size = sizeof config;
    CHECK(tuttiDpCreate(&dp, &a, 1, &config, comm) == tuttiInvalidArgument);
    CHECK(says("1 bytes"));
    tuttiCommDestroy(comm);
}

TEST_CASE("bytes behind the last field of a program that was built before are not looked at") {
    const tuttiComm_t comm = alone();
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.reserved = -1;
    config.size = offsetof(tuttiDpConfig_t, join);  // the size of the struct that ended with `hierarchical`
    static_assert(offsetof(tuttiDpConfig_t, join) % alignof(tuttiDpConfig_t) == 0);
    const tuttiDpParameter_t a{"a", nullptr, nullptr, 3, tuttiFloat32, tuttiDpSameType, 0, 0};
    tuttiDp_t dp = nullptr;
    REQUIRE(tuttiDpCreate(&dp, &a, 1, &config, comm) == tuttiSuccess);
    CHECK(tuttiDpJoin(dp) == tuttiInvalidUsage);
    CHECK(says("config.join is 0"));
    CHECK(tuttiDpDestroy(dp) == tuttiSuccess);
    tuttiCommDestroy(comm);
}

TEST_CASE("a shape has as many elements as there are") {
    const tuttiComm_t comm = alone();
    tuttiDpParameter_t a{"a", nullptr, nullptr, 6, tuttiFloat32, tuttiDpSameType, 0, 0, 2, {3, 2}};
    tuttiDp_t dp = nullptr;
    REQUIRE(tuttiDpCreate(&dp, &a, 1, nullptr, comm) == tuttiSuccess);
    CHECK(tuttiDpDestroy(dp) == tuttiSuccess);
    for (const std::size_t wrong : {0, 1, 3, 4}) {
        a.shape[1] = wrong;
        CHECK(tuttiDpCreate(&dp, &a, 1, nullptr, comm) == tuttiInvalidArgument);
        CHECK(says("the shape of parameter 'a'"));
    }
    a.dims = 9;
    CHECK(tuttiDpCreate(&dp, &a, 1, nullptr, comm) == tuttiInvalidArgument);
    CHECK(says("9 dimensions"));
    tuttiCommDestroy(comm);
}
