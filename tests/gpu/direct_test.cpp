// Slots in the memory of GPUs that network adapters read and write themselves: emulated GPUs, whose driver gives their
// memory away, and mock adapters, which take it.
#include <optional>

#include "base/result.hpp"
#include "gpu/direct.hpp"
#include "gpu/world.hpp"
#include "harness/catch.hpp"
#include "transport/fake_verbs.hpp"
#include "transport/verbs/net.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

const Case sum{.what = Case::What::all_reduce, .count = 20'003, .where = harness::Where::in_place};

/// Ranks that only adapters join. What those write to a GPU does not arrive until it is flushed.
class DirectWorld {
  public:
    using Prepare = std::function<void(EmulatedGpus&)>;
    explicit DirectWorld(
        std::vector<int> devices, const Prepare& prepare = [](EmulatedGpus&) {},
        const verbs::Library* (*library)() = harness::fake_library) {
        fake_verbs().late = true;
        verbs::net_here().use(library);
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = "verbs";
        config.timeoutMs = 60'000;
        world_.emplace(std::move(devices), false, &config, 2, 16, [&](EmulatedGpus& gpus) {
            gpus.adapters.flush = harness::land;
            prepare(gpus);
        });
    }
    ~DirectWorld() {
        world_.reset();
        verbs::net_here().use(verbs::load_library);
    }
    DirectWorld(const DirectWorld&) = delete;
    GpuWorld* operator->() { return &*world_; }

    /// Bodies of messages since it was made.
    harness::FakeVerbsTally bodies() const {
        harness::FakeVerbsTally now = harness::fake_verbs_tally();
        now.sent_from_host -= before_.sent_from_host, now.sent_from_gpu -= before_.sent_from_gpu;
        now.sent_to_host -= before_.sent_to_host, now.sent_to_gpu -= before_.sent_to_gpu;
        return now;
    }

  private:
    const harness::FakeVerbsReset reset_;
    const harness::FakeVerbsTally before_ = harness::fake_verbs_tally();
    std::optional<GpuWorld> world_;
};

std::vector<Case> many_cases(int ranks) {
    using What = Case::What;
    std::vector<Case> cases;
    for (What what : {What::all_reduce, What::reduce_scatter, What::all_gather, What::broadcast, What::reduce,
                      What::all_to_all, What::gather, What::scatter})
        for (std::size_t count : {0, 1, 1025, 40'001})
            if (!harness::sanitized || count < 2000) cases.push_back({what, count, tuttiFloat32, tuttiSum, ranks - 1});
    cases.push_back({What::all_reduce, 70'003, tuttiBfloat16, tuttiAvg, 0, harness::Where::in_place});
    return cases;
}

}  // namespace

TEST_CASE("GPUDirect: adapters read and write GPU memory, and no message lies in host memory") {
    for (const std::vector<int>& devices : {std::vector{0, 1}, {0, 1, 0}}) {
        CAPTURE(devices.size());
        DirectWorld world(devices);
        world->run(many_cases(static_cast<int>(devices.size())));
        world->each([&](int rank, void* stream) {  // and what one sends to another
            float* const data = reinterpret_cast<float*>(world->gpus().allocate(world->device(rank), 4000));
            std::fill(data, data + 1000, static_cast<float>(rank));
            if (rank == 0) tuttiSend(data, 1000, tuttiFloat32, 1, world->comm(0), stream);
            if (rank == 1) tuttiRecv(data, 1000, tuttiFloat32, 0, world->comm(1), stream);
            world->gpus().synchronize_stream(stream);
            harness::check(rank != 1 || (data[0] == 0 && data[999] == 0), "what was sent is not what came");
            world->gpus().free(world->device(rank), reinterpret_cast<std::byte*>(data));
        });
        const harness::FakeVerbsTally bodies = world.bodies();
        CHECK(bodies.sent_from_host == 0);
        CHECK(bodies.sent_to_host == 0);
        CHECK(bodies.sent_to_gpu > 20);
        CHECK(world->gpus().flushes() > 0);
        CHECK(world->gpus().flushes() <= bodies.sent_to_gpu);
        CHECK(world->gpus().pinned() < channel_slots_bytes);  // the FIFOs
    }
}

TEST_CASE("GPUDirect: each end decides for itself, so CPUs may be among the ranks") {
    DirectWorld world({0, -1, 1});
    world->run(many_cases(3));
    const harness::FakeVerbsTally bodies = world.bodies();
    CHECK(bodies.sent_from_host > 0);
    CHECK(bodies.sent_to_host > 0);
    CHECK(bodies.sent_from_gpu > 0);
    CHECK(bodies.sent_to_gpu > 0);
}

TEST_CASE("GPUDirect: without the flush, kernels would add up what has not arrived") {
    DirectWorld world({0, 1}, [](EmulatedGpus& gpus) { gpus.adapters.flush = [] {}; });
    CHECK_THROWS(world->run({sum}));
}

TEST_CASE("GPUDirect: GPUs that keep writes in order are not flushed") {
    DirectWorld world({0, 1}, [](EmulatedGpus& gpus) {
        gpus.adapters.arrival = gpu::Arrival::at_once;
        fake_verbs().late = false;
    });
    world->run({sum});
    CHECK(world.bodies().sent_to_gpu > 0);
    CHECK(world.bodies().sent_to_host == 0);
    CHECK(world->gpus().flushes() == 0);
}

TEST_CASE("GPUDirect: where something is missing, slots are in host memory, and results are right") {
    struct Lack {
        const char* what;
        DirectWorld::Prepare prepare;
        const verbs::Library* (*library)() = harness::fake_library;
        bool sends = false;  // from GPU memory all the same
    };
    for (const Lack& lack :
         {Lack{"no dma-buf", [](EmulatedGpus& gpus) { gpus.adapters.exports = 0; }},
          Lack{"no flush", [](EmulatedGpus& gpus) { gpus.adapters.arrival = gpu::Arrival::unsure; },
               harness::fake_library, true},
          Lack{"no ibv_reg_dmabuf_mr", [](EmulatedGpus&) {}, harness::old_fake_library},
          Lack{"refused", [](EmulatedGpus&) { fake_verbs().gpu_registrations = 0; }},
          Lack{"refused by the second adapter", [](EmulatedGpus&) { fake_verbs().gpu_registrations = 1; }}}) {
        CAPTURE(lack.what);
        DirectWorld world({0, 1}, lack.prepare, lack.library);
        world->run({sum});
        const harness::FakeVerbsTally bodies = world.bodies();
        CHECK(bodies.sent_to_gpu == 0);
        CHECK(bodies.sent_to_host > 0);
        CHECK((bodies.sent_from_gpu > 0) == lack.sends);
        CHECK((bodies.sent_from_host > 0) != lack.sends);
        CHECK(world->gpus().flushes() == 0);
        CHECK(world->gpus().pinned() > channel_slots_bytes);
    }
}

TEST_CASE("GPUDirect: one end has it, the other has not") {
    DirectWorld world({0, 1}, [](EmulatedGpus& gpus) { gpus.adapters.exports = 1; });
    world->run({sum});
    const harness::FakeVerbsTally bodies = world.bodies();
    CHECK(bodies.sent_to_gpu > 0);
    CHECK(bodies.sent_to_host > 0);
}

TEST_CASE("GPUDirect: a port that fails is replaced, with the same slots") {
    DirectWorld world({0, 1});
    world->run({sum});
    fake_verbs().gpu_registrations = 0;  // no more are needed
    fake_verbs().cut_every = 7;
    fake_verbs().cuts = 5;
    for (int round = 0; round < 40 && fake_verbs().cuts > 0; ++round) world->run({sum});
    world->run({sum});
    CHECK(fake_verbs().cuts == 0);
    CHECK(world.bodies().sent_to_host == 0);
    CHECK(world.bodies().sent_from_host == 0);
}

TEST_CASE("GPUDirect: a flush that fails is the reason why a link is lost") {
    DirectWorld world({0, 1}, [](EmulatedGpus& gpus) {
        gpus.adapters.flush = [] { fail(tuttiUnhandledCudaError, "the GPU has fallen off the bus"); };
    });
    std::byte* data[] = {world->gpus().allocate(0, 4000), world->gpus().allocate(1, 4000)};
    for (int r : {0, 1})
        CHECK(tuttiAllReduce(data[r], data[r], 1000, tuttiFloat32, tuttiSum, world->comm(r), world->stream(r)) ==
              tuttiSuccess);
    for (int r : {0, 1}) CHECK(await_error(world->comm(r)) == tuttiRemoteError);
    CHECK((harness::mentions(world->comm(0), {"has fallen off the bus"}) ||
           harness::mentions(world->comm(1), {"has fallen off the bus"})));
    for (int r : {0, 1}) {
        world->gpus().synchronize_stream(world->stream(r));
        world->gpus().free(r, data[r]);
    }
}

TEST_CASE("GPUDirect: why not is said") {
    EmulatedGpus gpus;
    std::string why;
    const auto make = [&](const gpu::DirectWish& wish) {
        why.clear();
        return gpu::direct_slots(gpus, 0, wish, why);
    };
    const auto whole = make({});
    REQUIRE((whole && whole->out && whole->in));
    CHECK(why.empty());
    CHECK(whole->out.channel(channels_per_link) == whole->in.base);
    CHECK(whole->in.channel(channels_per_link) == whole->memory.data() + whole->memory.size());
    CHECK(make({.any = false}) == nullptr);
    CHECK(why.find("TUTTI_NET_GDR") != std::string::npos);
    const auto written = make({.reads = false});
    REQUIRE((written && !written->out && written->in));
    CHECK(why.find("NCCL_NET_GDR_READ") != std::string::npos);
    gpus.adapters.arrival = gpu::Arrival::unsure;
    CHECK(make({.reads = false}) == nullptr);
    const auto read = make({});
    REQUIRE((read && read->out && !read->in));
    CHECK(why.find("nor flushes") != std::string::npos);
    gpus.adapters.exports = 0;
    CHECK(make({}) == nullptr);
    CHECK(why.find("dma-buf") != std::string::npos);
}
