// Bad input: refused with a clear text before anything is issued, and the communicator works on.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "tutti/tutti.h"

using namespace tutti::harness;

namespace {

/// One rank of one: everything can be checked by one thread.
struct Single {
    Single() { REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess); }
    ~Single() { tuttiCommDestroy(comm); }
    tuttiComm_t comm = nullptr;
    float in[64] = {}, out[64] = {};
};

}  // namespace

TEST_CASE("null and misaligned pointers, counts, types, ops and roots are refused by name") {
    Single s;
    const auto all_reduce = [&](const void* in, void* out, size_t count, int type = tuttiFloat32, int op = tuttiSum) {
        return tuttiAllReduce(in, out, count, static_cast<tuttiDataType_t>(type), static_cast<tuttiRedOp_t>(op), s.comm,
                              nullptr);
    };
    REQUIRE(all_reduce(nullptr, s.out, 1) == tuttiInvalidArgument);
    REQUIRE(says("sendbuff is NULL"));
    REQUIRE(all_reduce(s.in, nullptr, 1) == tuttiInvalidArgument);
    REQUIRE(says("recvbuff is NULL"));
    REQUIRE(all_reduce(reinterpret_cast<char*>(s.in) + 1, s.out, 1) == tuttiInvalidArgument);
    REQUIRE(says("aligned"));
    REQUIRE(all_reduce(s.in, s.out, static_cast<size_t>(-5)) == tuttiInvalidArgument);
    REQUIRE(says("negative"));
    REQUIRE(all_reduce(s.in, s.out, SIZE_MAX / 4) == tuttiInvalidArgument);
    for (int type : {-1, static_cast<int>(tuttiNumTypes), 1000}) {
        REQUIRE(all_reduce(s.in, s.out, 1, type) == tuttiInvalidArgument);
        REQUIRE(says("type"));
    }
    for (int op : {-1, 5, 77}) {
        REQUIRE(all_reduce(s.in, s.out, 1, tuttiFloat32, op) == tuttiInvalidArgument);
        REQUIRE(says("op"));
    }
    for (int root : {-1, 1}) {
        REQUIRE(tuttiBroadcast(s.in, s.out, 1, tuttiFloat32, root, s.comm, nullptr) == tuttiInvalidArgument);
        REQUIRE(says("root"));
        REQUIRE(tuttiSend(s.in, 1, tuttiFloat32, root, s.comm, nullptr) == tuttiInvalidArgument);
        REQUIRE(says("peer"));
    }
    for (int root : {-1, 1}) {
        REQUIRE(tuttiGather(s.in, s.out, 1, tuttiFloat32, root, s.comm, nullptr) == tuttiInvalidArgument);
        REQUIRE(says("tuttiGather: root"));
        REQUIRE(tuttiScatter(s.in, s.out, 1, tuttiFloat32, root, s.comm, nullptr) == tuttiInvalidArgument);
        REQUIRE(says("tuttiScatter: root"));
    }
    REQUIRE(tuttiAlltoAll(s.in, nullptr, 1, tuttiFloat32, s.comm, nullptr) == tuttiInvalidArgument);
    REQUIRE(says("tuttiAlltoAll: recvbuff is NULL"));
    REQUIRE(tuttiAlltoAll(s.in, s.in, 1, tuttiFloat32, s.comm, nullptr) == tuttiInvalidArgument);
    REQUIRE(says("overlap"));
    REQUIRE(tuttiBarrier(nullptr, nullptr) == tuttiInvalidArgument);
    REQUIRE(tuttiBarrier(s.comm, nullptr) == tuttiSuccess);
    REQUIRE(tuttiSend(s.in, 1, tuttiFloat32, 0, s.comm, nullptr) == tuttiInvalidUsage);
    REQUIRE(says("itself"));
    REQUIRE(all_reduce(s.in, s.out, 64) == tuttiSuccess);  // nothing was lost
    REQUIRE(all_reduce(nullptr, nullptr, 0) == tuttiSuccess);
}

TEST_CASE("buffers may be equal but not overlap otherwise") {
    Single s;
    REQUIRE(tuttiAllReduce(s.in, s.in, 64, tuttiFloat32, tuttiSum, s.comm, nullptr) == tuttiSuccess);
    REQUIRE(tuttiAllReduce(s.in, s.in + 63, 64, tuttiFloat32, tuttiSum, s.comm, nullptr) == tuttiInvalidArgument);
    REQUIRE(says("overlap"));
    REQUIRE(tuttiAllReduce(s.in + 1, s.in, 63, tuttiFloat32, tuttiSum, s.comm, nullptr) == tuttiInvalidArgument);
    REQUIRE(tuttiAllReduce(s.in, s.in + 32, 32, tuttiFloat32, tuttiSum, s.comm, nullptr) == tuttiSuccess);
    // In place of all-gather and reduce-scatter: this rank's part of the large buffer.
    std::vector<tuttiComm_t> comms(2);
    REQUIRE(tuttiCommInitAll(comms.data(), 2, nullptr) == tuttiSuccess);
    REQUIRE(tuttiAllGather(s.in, s.in, 32, tuttiFloat32, comms[1], nullptr) == tuttiInvalidArgument);
    REQUIRE(tuttiReduceScatter(s.in, s.in, 32, tuttiFloat32, tuttiSum, comms[1], nullptr) == tuttiInvalidArgument);
    REQUIRE_NOTHROW(run(2, [&](int r) {
        float big[64] = {};
        const auto k = static_cast<size_t>(r);
        check(tuttiAllGather(big + r * 32, big, 32, tuttiFloat32, comms[k], nullptr) == tuttiSuccess, "ag");
        check(tuttiReduceScatter(big, big + r * 32, 32, tuttiFloat32, tuttiSum, comms[k], nullptr) == tuttiSuccess,
              "rs");
    }));
    for (tuttiComm_t comm : comms) REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("a call like the last one has its buffers checked all the same, and any other one all") {
    Single s;
    std::vector<float> more(64);
    const auto sum = [&](const void* in, void* out, tuttiRedOp_t op = tuttiSum, tuttiDataType_t type = tuttiFloat32) {
        return tuttiAllReduce(in, out, 8, type, op, s.comm, nullptr);
    };
    for (int i = 0; i < 8; ++i) s.in[i] = static_cast<float>(i);
    for (int turn = 0; turn < 3; ++turn) {
        std::ranges::fill(more, -1.0f);
        REQUIRE(sum(s.in, more.data()) == tuttiSuccess);
        REQUIRE(more[7] == 7);
        REQUIRE(more[8] == -1);
        REQUIRE(sum(s.in, s.out) == tuttiSuccess);
        REQUIRE(s.out[7] == 7);
        REQUIRE(sum(nullptr, s.out) == tuttiInvalidArgument);
        REQUIRE(says("tuttiAllReduce: sendbuff is NULL"));
        REQUIRE(sum(s.in, reinterpret_cast<char*>(s.out) + 2) == tuttiInvalidArgument);
        REQUIRE(says("recvbuff"));
        REQUIRE(sum(s.in, s.in + 4) == tuttiInvalidArgument);
        REQUIRE(says("overlap"));
        for (const int beyond : {77, 256, -256})  // 256: as the last one in the lowest byte
            REQUIRE(sum(s.in, s.out, static_cast<tuttiRedOp_t>(tuttiSum + beyond)) == tuttiInvalidArgument);
        for (const int beyond : {99, 256, -256})
            REQUIRE(sum(s.in, s.out, tuttiSum, static_cast<tuttiDataType_t>(tuttiFloat32 + beyond)) ==
                    tuttiInvalidArgument);
        REQUIRE(tuttiBroadcast(s.in, s.out, 8, tuttiFloat32, 1, s.comm, nullptr) == tuttiInvalidArgument);
    }
    float two = 2;
    tuttiRedOp_t doubled;
    REQUIRE(tuttiRedOpCreatePreMulSum(&doubled, &two, tuttiFloat32, tuttiScalarHostImmediate, s.comm) == tuttiSuccess);
    for (int turn = 0; turn < 2; ++turn) {
        REQUIRE(sum(s.in, s.out, doubled) == tuttiSuccess);
        REQUIRE(s.out[7] == 14);
        REQUIRE(sum(s.in, s.out) == tuttiSuccess);
        REQUIRE(s.out[7] == 7);
    }
    REQUIRE(sum(s.in, s.out, doubled) == tuttiSuccess);
    REQUIRE(tuttiRedOpDestroy(doubled, s.comm) == tuttiSuccess);
    REQUIRE(sum(s.in, s.out, doubled) == tuttiInvalidArgument);
    REQUIRE(sum(s.in, s.out) == tuttiSuccess);
    REQUIRE(tuttiCommFinalize(s.comm) == tuttiSuccess);
    REQUIRE(sum(s.in, s.out) == tuttiInvalidUsage);
}

TEST_CASE("null, destroyed and finalized communicators are refused") {
    float x = 1;
    REQUIRE(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, nullptr, nullptr) == tuttiInvalidArgument);
    REQUIRE(says("NULL"));
    REQUIRE(tuttiCommDestroy(nullptr) == tuttiInvalidArgument);
    tuttiComm_t comm;
    REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
    REQUIRE(tuttiCommFinalize(comm) == tuttiSuccess);
    REQUIRE(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comm, nullptr) == tuttiInvalidUsage);
    REQUIRE(says("finalized"));
    REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
    REQUIRE(tuttiCommDestroy(comm) == tuttiInvalidArgument);
    REQUIRE(says("destroyed"));
    int n = 7;
    REQUIRE(tuttiCommCount(comm, &n) == tuttiInvalidArgument);
    REQUIRE(n == 7);
    uint64_t bytes = 7;
    tuttiResult_t state = tuttiNumResults;
    REQUIRE(tuttiCommMemory(comm, &bytes) == tuttiInvalidArgument);
    REQUIRE(bytes == 7);
    REQUIRE(tuttiCommGetAsyncError(comm, &state) == tuttiInvalidArgument);
    REQUIRE(state == tuttiNumResults);
    REQUIRE(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comm, nullptr) == tuttiInvalidArgument);
    REQUIRE(tuttiCommAbort(comm) == tuttiInvalidArgument);
}

TEST_CASE("a reduction operation that was destroyed, or is of another communicator, is refused for good") {
    Single s, other;
    float three = 3;
    tuttiRedOp_t first, second;
    const auto make = [&](tuttiRedOp_t* op) {
        return tuttiRedOpCreatePreMulSum(op, &three, tuttiFloat32, tuttiScalarHostImmediate, s.comm);
    };
    const auto sum = [&](tuttiRedOp_t op, tuttiComm_t comm) {
        return tuttiAllReduce(s.in, s.out, 1, tuttiFloat32, op, comm, nullptr);
    };
    REQUIRE(make(&first) == tuttiSuccess);
    REQUIRE(tuttiRedOpDestroy(first, other.comm) == tuttiInvalidArgument);
    REQUIRE(tuttiRedOpDestroy(first, s.comm) == tuttiSuccess);
    REQUIRE(make(&second) == tuttiSuccess);
    REQUIRE(sum(first, s.comm) == tuttiInvalidArgument);
    REQUIRE(says("destroyed"));
    REQUIRE(tuttiRedOpDestroy(first, s.comm) == tuttiInvalidArgument);
    tuttiRedOp_t others;
    REQUIRE(tuttiRedOpCreatePreMulSum(&others, &three, tuttiFloat32, tuttiScalarHostImmediate, other.comm) ==
            tuttiSuccess);
    REQUIRE(sum(second, other.comm) == tuttiInvalidArgument);
    s.in[0] = 2;
    REQUIRE(sum(second, s.comm) == tuttiSuccess);
    REQUIRE(s.out[0] == 6);
    REQUIRE(tuttiRedOpDestroy(second, s.comm) == tuttiSuccess);
    REQUIRE(tuttiRedOpDestroy(tuttiSum, s.comm) == tuttiInvalidArgument);
}

TEST_CASE("ranks, numbers of ranks and ids are checked before anybody is waited for") {
    tuttiComm_t comm = nullptr;
    tuttiUniqueId id = new_id();
    for (int n : {0, -1}) REQUIRE(tuttiCommInitRank(&comm, n, id, 0) == tuttiInvalidArgument);
    for (int r : {-1, 2, 5}) {
        REQUIRE(tuttiCommInitRank(&comm, 2, id, r) == tuttiInvalidArgument);
        REQUIRE(says("rank"));
    }
    REQUIRE(tuttiCommInitRank(nullptr, 2, id, 0) == tuttiInvalidArgument);
    REQUIRE(tuttiCommInitAll(&comm, 0, nullptr) == tuttiInvalidArgument);
    REQUIRE(tuttiCommInitAll(&comm, -3, nullptr) == tuttiInvalidArgument);
    const int device = 9999;  // where there is no GPU at all, that is the error
    const tuttiResult_t no_device = tuttiCommInitAll(&comm, 1, &device);
    REQUIRE((no_device == tuttiInvalidArgument || no_device == tuttiUnhandledCudaError));
    REQUIRE(says("CUDA"));
    REQUIRE(tuttiGetUniqueId(nullptr) == tuttiInvalidArgument);
    tuttiUniqueId foreign;
    std::memset(&foreign, 0x5a, sizeof foreign);
    REQUIRE(tuttiCommInitRank(&comm, 2, foreign, 0) == tuttiInvalidArgument);
    std::memset(id.internal + 64, 0, 64);  // truncated
    REQUIRE(tuttiCommInitRank(&comm, 2, id, 0) == tuttiInvalidArgument);
    REQUIRE(comm == nullptr);
}

TEST_CASE("a rank that does not come is named when the time is over") {
    const tuttiUniqueId id = new_id();
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.initTimeoutMs = 300;
    tuttiComm_t comm = nullptr;
    REQUIRE(tuttiCommInitRankConfig(&comm, 2, id, 0, &config) == tuttiTimeout);
    REQUIRE(says("1"));
    REQUIRE(comm == nullptr);
}

TEST_CASE("configurations") {
    const tuttiUniqueId id = new_id();
    tuttiComm_t comm = nullptr;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.magic = 1;
    REQUIRE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiInvalidArgument);
    config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = -4;
    REQUIRE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiInvalidArgument);
    REQUIRE(says("timeoutMs"));
    config = TUTTI_CONFIG_INITIALIZER;
    config.algorithm = "magic";
    REQUIRE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiInvalidUsage);
    REQUIRE(says("ring"));
    // A caller compiled against an older, shorter struct: what lies behind its end is not looked at.
    struct {
        tuttiConfig_t known = TUTTI_CONFIG_INITIALIZER;
    } old;
    old.known.size = offsetof(tuttiConfig_t, algorithm);
    old.known.algorithm = reinterpret_cast<const char*>(8);
    REQUIRE(tuttiCommInitRankConfig(&comm, 1, id, 0, &old.known) == tuttiSuccess);
    REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("memory") {
    void* p = nullptr;
    REQUIRE(tuttiMemAlloc(&p, 100) == tuttiSuccess);
    REQUIRE(reinterpret_cast<std::uintptr_t>(p) % 4096 == 0);
    for (int i = 0; i < 100; ++i) REQUIRE(static_cast<char*>(p)[i] == 0);
    REQUIRE(tuttiMemFree(static_cast<char*>(p) + 1) == tuttiInvalidArgument);
    REQUIRE(tuttiMemFree(p) == tuttiSuccess);
    REQUIRE(tuttiMemFree(p) == tuttiInvalidArgument);
    REQUIRE(tuttiMemFree(nullptr) == tuttiSuccess);
    REQUIRE(tuttiMemAlloc(&p, 0) == tuttiSuccess);
    REQUIRE(tuttiMemFree(p) == tuttiSuccess);
    REQUIRE(tuttiMemAlloc(&p, SIZE_MAX) == tuttiInvalidArgument);
    REQUIRE(tuttiMemAlloc(&p, size_t{1} << 60) == tuttiSystemError);
    REQUIRE(tuttiMemAlloc(nullptr, 1) == tuttiInvalidArgument);
}

TEST_CASE("groups") {
    Single s;
    REQUIRE(tuttiGroupEnd() == tuttiInvalidUsage);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    s.in[0] = 3;
    REQUIRE(tuttiAllReduce(s.in, s.out, 1, tuttiFloat32, tuttiSum, s.comm, nullptr) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    REQUIRE(s.out[0] == 0);  // nothing ran before the outermost end
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    REQUIRE(s.out[0] == 3);
    // A refused call spoils the group: nothing of it runs.
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    s.in[0] = 4;
    REQUIRE(tuttiAllReduce(s.in, s.out, 1, tuttiFloat32, tuttiSum, s.comm, nullptr) == tuttiSuccess);
    REQUIRE(tuttiAllReduce(nullptr, s.out, 1, tuttiFloat32, tuttiSum, s.comm, nullptr) == tuttiInvalidArgument);
    REQUIRE(tuttiGroupEnd() == tuttiInvalidArgument);
    REQUIRE(s.out[0] == 3);
    // A group that has no price leaves nothing of it to the next one.
    tuttiComm_t part = nullptr;
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    REQUIRE(tuttiCommSplit(s.comm, 0, 0, &part, nullptr) == tuttiSuccess);
    REQUIRE(tuttiAllReduce(nullptr, s.out, 1, tuttiFloat32, tuttiSum, s.comm, nullptr) == tuttiInvalidArgument);
    REQUIRE(tuttiGroupSimulateEnd(nullptr) == tuttiInvalidUsage);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    REQUIRE(tuttiAllReduce(s.in, s.out, 1, tuttiFloat32, tuttiSum, s.comm, nullptr) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    REQUIRE((s.out[0] == 4 && part == nullptr));
    // Joining inside a group.
    const tuttiUniqueId id = new_id();
    tuttiComm_t comms[3] = {};
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < 3; ++r) REQUIRE(tuttiCommInitRank(&comms[r], 3, id, r) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    int sums[3] = {1, 2, 3};
    for (int r = 0; r < 3; ++r)
        REQUIRE(tuttiAllReduce(&sums[r], &sums[r], 1, tuttiInt32, tuttiSum, comms[r], nullptr) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    for (int r = 0; r < 3; ++r) {
        REQUIRE(sums[r] == 6);
        int n = 0, rank = -1;
        REQUIRE(tuttiCommCount(comms[r], &n) == tuttiSuccess);
        REQUIRE(tuttiCommUserRank(comms[r], &rank) == tuttiSuccess);
        REQUIRE((n == 3 && rank == r));
        REQUIRE(tuttiCommDestroy(comms[r]) == tuttiSuccess);
    }
}

TEST_CASE("streams and texts") {
    tuttiStream_t stream = nullptr;
    REQUIRE(tuttiStreamCreate(nullptr) == tuttiInvalidArgument);
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    REQUIRE(tuttiStreamQuery(stream) == tuttiSuccess);
    REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
    REQUIRE(tuttiStreamSynchronize(stream) == tuttiInvalidArgument);
    REQUIRE(tuttiStreamDestroy(nullptr) == tuttiInvalidArgument);
    REQUIRE(tuttiStreamSynchronize(nullptr) == tuttiSuccess);
    for (int i = -1; i < 12; ++i) REQUIRE(std::strlen(tuttiGetErrorString(static_cast<tuttiResult_t>(i))) > 0);
    int version = 0;
    REQUIRE(tuttiGetVersion(&version) == tuttiSuccess);
    REQUIRE(version == TUTTI_VERSION_CODE);
    REQUIRE(tuttiGetVersion(nullptr) == tuttiInvalidArgument);
}
