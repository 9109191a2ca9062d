// One process that drives many devices.
#include <numeric>

#include "dp/on_ranks.hpp"
#include "gpu/world.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr std::size_t samples = 7;  // 3, 2 and 2 of three devices

/// y = a x + b for each sample; gradients of the sum of all y.
struct Line {
    harness::EmulatedGpus* gpus = nullptr;
    int fails_on = -1;
    static tuttiResult_t work(void* user, const tuttiDpReplica_t* r) {
        const Line& line = *static_cast<Line*>(user);
        if (line.gpus != nullptr) line.gpus->synchronize_stream(r->stream);
        if (r->device == line.fails_on) return tuttiSystemError;
        const auto* x = static_cast<const float*>(r->input);
        auto* y = static_cast<double*>(r->output);
        for (std::size_t i = 0; i < r->samples; ++i) {
            y[i] = *static_cast<float*>(r->values[0]) * x[i] + *static_cast<float*>(r->values[1]);
            *static_cast<float*>(r->gradients[0]) += x[i];
        }
        return r->gradients[1] == nullptr ? tuttiSuccess : tuttiInternalError;  // nobody asked for it
    }
};

struct Pass {
    float values[2] = {3, 4}, gradient = 99, x[samples];
    double y[samples] = {};
    Line line;
    std::vector<tuttiDpParameter_t> parameters{{"a", &values[0], &gradient, 1, tuttiFloat32, tuttiDpSameType, 0, 0},
                                               {"b", &values[1], nullptr, 1, tuttiFloat32, tuttiDpSameType, 0, 0}};
    tuttiDpBatch_t batch{samples, x, sizeof(float), y, sizeof(double)};
    Pass() { std::iota(x, x + samples, 1.0f); }
    tuttiResult_t run(const std::vector<tuttiComm_t>& comms, const tuttiStream_t* streams = nullptr) {
        return tuttiDpDataParallel(comms.data(), static_cast<int>(comms.size()), streams, parameters.data(), 2, &batch,
                                   Line::work, &line);
    }
};

struct Comms {
    explicit Comms(int n) : all(static_cast<std::size_t>(n)) {
        must_succeed(tuttiCommInitAll(all.data(), n, nullptr), "init");
    }
    ~Comms() {
        for (tuttiComm_t comm : all) tuttiCommDestroy(comm);
    }
    std::vector<tuttiComm_t> all;
};

}  // namespace

TEST_CASE("one process, many devices: outputs and gradients are those of the whole batch") {
    for (int devices : {1, 3, 9}) {  // of nine, two have no sample
        CAPTURE(devices);
        Comms comms(devices);
        Pass pass;
        for (int twice = 0; twice < 2; ++twice) {
            must_succeed(pass.run(comms.all), "call");
            REQUIRE(pass.gradient == 28);
            for (std::size_t i = 0; i < samples; ++i) REQUIRE(pass.y[i] == 3 * pass.x[i] + 4);
        }
    }
}

TEST_CASE("GPUs: one process, many devices") {
    constexpr int devices = 3;
    GpuWorld world(devices);
    std::vector<tuttiComm_t> comms;
    std::vector<tuttiStream_t> streams;
    for (int d = 0; d < devices; ++d) {
        comms.push_back(world.comm(d));
        streams.push_back(world.stream(d));
    }
    Pass pass;
    pass.line.gpus = &world.gpus();
    auto* const first = new (world.gpus().allocate(0, sizeof(Pass))) Pass(pass);  // emulated memory can be read
    first->parameters[0].data = &first->values[0];
    first->parameters[0].grad = &first->gradient;
    first->parameters[1].data = &first->values[1];
    first->batch.input = first->x;
    first->batch.output = first->y;
    must_succeed(first->run(comms, streams.data()), "call");
    REQUIRE(first->gradient == 28);
    for (std::size_t i = 0; i < samples; ++i) REQUIRE(first->y[i] == 3 * first->x[i] + 4);
    first->~Pass();
    world.gpus().free(0, reinterpret_cast<std::byte*>(first));
}

TEST_CASE("one process, many devices: work that fails, and bad input") {
    Comms comms(3);
    Pass pass;
    pass.line.fails_on = 1;
    REQUIRE(pass.run(comms.all) == tuttiSystemError);
    REQUIRE(says("on device 1"));
    pass.line.fails_on = -1;
    REQUIRE(pass.run(comms.all) == tuttiSuccess);  // nothing is broken by that
    REQUIRE(pass.run({comms.all[1], comms.all[0], comms.all[2]}) == tuttiInvalidArgument);
    REQUIRE(says("comms[0] is rank 1 of 3"));
    REQUIRE(pass.run({comms.all[0], comms.all[1]}) == tuttiInvalidArgument);
    pass.parameters[1].data = nullptr;
    REQUIRE(pass.run(comms.all) == tuttiInvalidArgument);
    REQUIRE(says("'b' has no values"));
    pass.parameters[1].data = &pass.values[1];
    pass.batch.output = nullptr;
    REQUIRE(pass.run(comms.all) == tuttiInvalidArgument);
    REQUIRE(says("output is NULL"));
    pass.parameters[0].type = tuttiInt32;
    REQUIRE(pass.run(comms.all) == tuttiInvalidArgument);
}
