// Uneven collectives with wrong arguments: each is named with its index and value, before anything is issued.
#include <cstdint>
#include <string>
#include <vector>

#include "harness/catch.hpp"
#include "tutti/tutti.h"

namespace {

using Counts = std::vector<size_t>;

/// Rank 1 of 3; nothing here gets as far as its peers.
struct World {
    World() { REQUIRE(tuttiCommInitAll(comms, 3, nullptr) == tuttiSuccess); }
    ~World() {
        for (tuttiComm_t c : comms) tuttiCommDestroy(c);
    }
    tuttiResult_t all_to_all(const Counts& sends, const Counts& sends_at, const Counts& receives,
                             const Counts& receives_at) {
        const auto data = [](const Counts& c) { return c.empty() ? nullptr : c.data(); };
        return tuttiAlltoAllv(in, data(sends), data(sends_at), out, data(receives), data(receives_at), tuttiFloat32,
                              comms[1], nullptr);
    }
    tuttiResult_t all_gather(size_t count, const Counts& counts, const Counts& displs) {
        return tuttiAllGatherv(in, count, out, counts.data(), displs.data(), tuttiFloat32, comms[1], nullptr);
    }
    tuttiComm_t comms[3];
    float in[64] = {}, out[64] = {};
};

bool says(const std::string& words) {
    INFO(tuttiGetLastError(nullptr));
    CHECK(std::string(tuttiGetLastError(nullptr)).find(words) != std::string::npos);
    return std::string(tuttiGetLastError(nullptr)).find(words) != std::string::npos;
}

const Counts ones{1, 1, 1}, places{0, 4, 8};

}  // namespace

TEST_CASE("uneven: missing arrays") {
    World w;
    REQUIRE(w.all_to_all({}, places, ones, places) == tuttiInvalidArgument);
    REQUIRE(says("tuttiAlltoAllv: sendcounts is NULL"));
    REQUIRE(w.all_to_all(ones, {}, ones, places) == tuttiInvalidArgument);
    REQUIRE(says("sdispls is NULL"));
    REQUIRE(w.all_to_all(ones, places, {}, places) == tuttiInvalidArgument);
    REQUIRE(says("recvcounts is NULL"));
    REQUIRE(w.all_to_all(ones, places, ones, {}) == tuttiInvalidArgument);
    REQUIRE(says("rdispls is NULL"));
    REQUIRE(tuttiReduceScatterv(w.in, w.out, nullptr, tuttiFloat32, tuttiSum, w.comms[1], nullptr) ==
            tuttiInvalidArgument);
    REQUIRE(says("tuttiReduceScatterv: recvcounts is NULL"));
    REQUIRE(tuttiGatherv(w.in, 1, w.out, ones.data(), nullptr, tuttiFloat32, 1, w.comms[1], nullptr) ==
            tuttiInvalidArgument);
    REQUIRE(says("tuttiGatherv: displs is NULL"));
    REQUIRE(tuttiScatterv(w.in, nullptr, places.data(), w.out, 1, tuttiFloat32, 1, w.comms[1], nullptr) ==
            tuttiInvalidArgument);
    REQUIRE(says("tuttiScatterv: sendcounts is NULL"));
}

TEST_CASE("uneven: counts and displacements that can't be") {
    World w;
    const size_t minus_five = static_cast<size_t>(-5);
    REQUIRE(w.all_gather(1, {1, 1, minus_five}, places) == tuttiInvalidArgument);
    REQUIRE(says("recvcounts[2] is 18446744073709551611"));
    REQUIRE(w.all_gather(1, ones, {0, 4, SIZE_MAX / 8}) == tuttiInvalidArgument);
    REQUIRE(says("displs[2] is "));
    REQUIRE(w.all_gather(minus_five, ones, places) == tuttiInvalidArgument);
    REQUIRE(says("sendcount is 18446744073709551611"));
    REQUIRE(w.all_to_all({SIZE_MAX / 4, 1, 1}, places, ones, places) == tuttiInvalidArgument);
    REQUIRE(says("sendcounts[0]"));
    const size_t third = SIZE_MAX / 12;  // three of them are too many bytes
    const Counts huge{third, third, third};
    REQUIRE(tuttiReduceScatterv(w.in, w.out, huge.data(), tuttiFloat64, tuttiSum, w.comms[1], nullptr) ==
            tuttiInvalidArgument);
    REQUIRE(says("recvcounts[0]"));
}

TEST_CASE("uneven: what a rank has for itself") {
    World w;
    REQUIRE(w.all_gather(2, ones, places) == tuttiInvalidArgument);
    REQUIRE(says("sendcount is 2, but recvcounts[1] is 1"));
    REQUIRE(w.all_to_all({1, 3, 1}, places, {1, 2, 1}, places) == tuttiInvalidArgument);
    REQUIRE(says("sendcounts[1] is 3, but recvcounts[1] is 2"));
    REQUIRE(tuttiGatherv(w.in, 2, w.out, ones.data(), places.data(), tuttiFloat32, 1, w.comms[1], nullptr) ==
            tuttiInvalidArgument);
    REQUIRE(says("sendcount is 2, but recvcounts[1] is 1"));
    REQUIRE(tuttiScatterv(w.in, ones.data(), places.data(), w.out, 3, tuttiFloat32, 1, w.comms[1], nullptr) ==
            tuttiInvalidArgument);
    REQUIRE(says("sendcounts[1] is 1, but recvcount is 3"));
}

TEST_CASE("uneven: overlaps") {
    World w;
    REQUIRE(w.all_gather(4, {4, 4, 4}, {0, 8, 3}) == tuttiInvalidArgument);
    REQUIRE(says("rows 0 and 2 of recvbuff overlap: "));
    REQUIRE(says("recvcounts[0] = 4, displs[0] = 0; recvcounts[2] = 4, displs[2] = 3"));

    // In place is this rank's own row, exactly; the rows' neighbourhood may be anybody's.
    const auto from = [&](const float* in, const Counts& counts, const Counts& displs) {
        return tuttiAllGatherv(in, counts[1], w.out, counts.data(), displs.data(), tuttiFloat32, w.comms[1], nullptr);
    };
    REQUIRE(from(w.out + 5, {4, 4, 4}, {0, 4, 8}) == tuttiInvalidArgument);
    REQUIRE(says("overlap without being in place"));
    REQUIRE(from(w.out, {4, 4, 4}, {0, 4, 8}) == tuttiInvalidArgument);
    const Counts two{2, 2, 2};
    REQUIRE(tuttiAlltoAllv(w.out, two.data(), places.data(), w.out, two.data(), places.data(), tuttiFloat32, w.comms[1],
                           nullptr) == tuttiInvalidArgument);
    REQUIRE(says("overlap without being in place: "));
    REQUIRE(says("sendcounts[0] = 2, sdispls[0] = 0; recvcounts[0] = 2, rdispls[0] = 0"));
    REQUIRE(tuttiReduceScatterv(w.in, w.in, two.data(), tuttiFloat32, tuttiSum, w.comms[1], nullptr) ==
            tuttiInvalidArgument);
}

TEST_CASE("uneven: buffers, types and roots as for even ones") {
    World w;
    REQUIRE(tuttiAllGatherv(nullptr, 1, w.out, ones.data(), places.data(), tuttiFloat32, w.comms[1], nullptr) ==
            tuttiInvalidArgument);
    REQUIRE(says("tuttiAllGatherv: sendbuff is NULL"));
    REQUIRE(tuttiAllGatherv(reinterpret_cast<char*>(w.in) + 1, 1, w.out, ones.data(), places.data(), tuttiFloat32,
                            w.comms[1], nullptr) == tuttiInvalidArgument);
    REQUIRE(says("aligned"));
    REQUIRE(tuttiGatherv(w.in, 1, nullptr, nullptr, nullptr, tuttiFloat32, 3, w.comms[1], nullptr) ==
            tuttiInvalidArgument);
    REQUIRE(says("root is 3"));
    REQUIRE(tuttiReduceScatterv(w.in, w.out, ones.data(), tuttiFloat32, static_cast<tuttiRedOp_t>(77), w.comms[1],
                                nullptr) == tuttiInvalidArgument);
    REQUIRE(says("op 77"));
}
