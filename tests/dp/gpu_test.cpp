// Gradients in the memory of GPUs: pointers and streams.
#include "dp/training.hpp"
#include "gpu/world.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using harness::check;
using harness::must_succeed;

TEST_CASE("GPUs: gradients are reduced where they lie") {
    GpuWorld world(2);
    for (const auto mode : {tuttiDpNaive, tuttiDpBucketed})
        world.each([&](int rank, void* stream) {
            const std::size_t counts[] = {5, 3000, 1};
            std::byte* grads[3];
            std::vector<tuttiDpParameter_t> parameters;
            const char* names[] = {"a", "b", "c"};
            for (std::size_t p = 0; p < 3; ++p) {
                grads[p] = world.gpus().allocate(world.device(rank), counts[p] * sizeof(float));
                parameters.push_back({names[p], nullptr, grads[p], counts[p], tuttiFloat32, tuttiDpSameType, 0, 0});
            }
            tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
            config.mode = mode;
            config.bucketBytes = 1024;
            config.zero = 0;
            config.stream = stream;
            tuttiDp_t dp = nullptr;
            must_succeed(tuttiDpCreate(&dp, parameters.data(), 3, &config, world.comm(rank)), "create");
            for (int iteration = 0; iteration < 2; ++iteration) {
                must_succeed(tuttiDpBegin(dp), "begin");
                for (std::size_t p = 3; p-- > 0;) {
                    const std::vector<float> mine(counts[p], static_cast<float>(10 * p) + static_cast<float>(rank));
                    world.gpus().upload(world.device(rank), grads[p], mine.data(), counts[p] * sizeof(float));
                    must_succeed(tuttiDpGradReady(dp, p), "ready");
                }
                must_succeed(tuttiDpSynchronize(dp), "synchronize");
                world.gpus().synchronize_stream(stream);
                for (std::size_t p = 0; p < 3; ++p)  // emulated memory can be read
                    for (std::size_t i = 0; i < counts[p]; ++i)
                        check(reinterpret_cast<float*>(grads[p])[i] == static_cast<float>(10 * p) + 0.5f, "the mean");
            }
            check(tuttiDpBroadcast(dp, 0) == tuttiInvalidUsage, "not on GPUs");
            must_succeed(tuttiDpDestroy(dp), "destroy");
            config.optimizer.kind = tuttiDpSgd;
            check(tuttiDpCreate(&dp, parameters.data(), 3, &config, world.comm(rank)) == tuttiInvalidUsage, "refused");
            for (std::byte* grad : grads) world.gpus().free(world.device(rank), grad);
        });
}
