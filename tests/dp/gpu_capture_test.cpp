// A stream that is being captured into a graph is refused by the layer and by servers, before anything is enqueued.
#include "dp/on_gpus.hpp"
#include "dp/on_servers.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

bool refused(tuttiResult_t result) {
    return result == tuttiInvalidUsage && says("is being captured into a CUDA graph");
}

/// Runs body while the rank's stream is captured, and checks that nothing was.
template <class Body>
void in_capture(GpuWorld& world, void* stream, Body body) {
    world.gpus().begin_capture(stream);
    body();
    check(world.gpus().end_capture(stream).empty(), "nothing was captured");
}

}  // namespace

TEST_CASE("A captured stream is refused by the layer, which then goes on as if it had not been called") {
    struct Way {
        tuttiDpMode_t mode;
        int staleness, on_arrival;
    };
    for (const Way way : {Way{tuttiDpBucketed, TUTTI_UNDEF_INT, 0}, Way{tuttiDpZero3, TUTTI_UNDEF_INT, 0},
                          Way{tuttiDpServer, 1, 0}, Way{tuttiDpShardedServer, 1, 1}}) {
        CAPTURE(way.mode, way.staleness, way.on_arrival);
        const tuttiConfig_t how = harness::reproducible();
        const std::vector<float> ones(300, 1);  // outlives the streams, which copy it
        GpuWorld world({0, 1}, true, &how);
        world.each([&](int r, void* stream) {
            tuttiDpConfig_t config = harness::config_for(way.mode, tuttiDpSgd);
            config.staleness = way.staleness;
            config.onArrival = way.on_arrival;
            config.stream = stream;
            const tuttiDpParameter_t parameter = {"a", nullptr, nullptr, 300, tuttiFloat32,  tuttiDpSameType,
                                                  0,   0,       0,       {},  tuttiDpTrained};
            tuttiDp_t dp = nullptr;
            const auto create = [&] { return tuttiDpCreate(&dp, &parameter, 1, &config, world.comm(r)); };
            in_capture(world, stream, [&] { check(refused(create()), "create"); });
            must_succeed(create(), "create");
            void* data = nullptr;
            for (int step = 0; step < 2; ++step) {
                in_capture(world, stream, [&] { check(refused(tuttiDpBegin(dp)), "begin"); });
                must_succeed(tuttiDpBegin(dp), "begin");
                float* const grad = harness::gradient(dp, 0);
                world.gpus().copy(world.device(r), grad, ones.data(), 300 * sizeof(float), stream);
                in_capture(world, stream, [&] {
                    check(refused(tuttiDpGradReady(dp, 0)), "ready");
                    check(refused(tuttiDpData(dp, 0, &data)), "data");
                    check(refused(tuttiDpAbandon(dp)), "abandon");
                });
                must_succeed(tuttiDpGradReady(dp, 0), "ready");
                must_succeed(tuttiDpSynchronize(dp), "synchronize");
                in_capture(world, stream, [&] { check(refused(tuttiDpStep(dp)), "step"); });
                must_succeed(tuttiDpStep(dp), "step");
            }
            must_succeed(tuttiDpWait(dp), "wait");
            in_capture(world, stream, [&] { check(refused(tuttiDpSave(dp, "/nowhere")), "save"); });
            must_succeed(tuttiDpDestroy(dp), "destroy");
        });
    }
}

TEST_CASE("A captured stream is refused by servers for what is in the memory of a GPU") {
    const tuttiConfig_t how = harness::reproducible();
    GpuWorld world({0, 1}, true, &how);
    world.each([&](int r, void* stream) {
        constexpr std::size_t count = 8;
        const tuttiPsKey_t key{"w", count, tuttiFloat32, nullptr};
        tuttiPsConfig_t config = config_of(1, 0, tuttiDpSgd);
        config.stream = stream;
        tuttiPs_t ps = nullptr;
        must_succeed(tuttiPsCreate(&ps, &key, 1, &config, world.comm(r)), "create");
        std::byte* const there = world.gpus().allocate(world.device(r), count * sizeof(float));
        std::vector<float> here(count);
        in_capture(world, stream, [&] {
            check(refused(tuttiPsPush(ps, 0, there, nullptr)), "push");
            check(refused(tuttiPsPull(ps, 0, there, nullptr)), "pull");
            check(refused(tuttiPsPushPull(ps, 0, here.data(), there, nullptr)), "both");
            must_succeed(tuttiPsPull(ps, 0, here.data(), nullptr), "into the host's memory");
        });
        must_succeed(tuttiPsPush(ps, 0, there, nullptr), "push");
        must_succeed(tuttiPsDestroy(ps), "destroy");
        world.gpus().free(world.device(r), there);
    });
}
