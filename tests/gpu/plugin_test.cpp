// Slots in the memory of GPUs that network plugins read and write: emulated GPUs and the tests' own plugin, by which
// nothing has arrived on a GPU until it is flushed.
#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "base/config.hpp"
#include "base/result.hpp"
#include "gpu/world.hpp"
#include "harness/catch.hpp"
#include "transport/net_plugins.hpp"
#include "transport/plugin/plugin_net.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

const Case sum{.what = Case::What::all_reduce, .count = 20'003, .where = harness::Where::in_place};

/// Bodies of messages, and the plugin's flushes.
struct Traffic {
    int sent_from_host, sent_from_gpu, received_on_host, received_on_gpu, flushes;
};

/// Ranks that only a plugin joins. faults: see net_plugin.cpp.
class PluginWorld {
  public:
    using Prepare = std::function<void(EmulatedGpus&)>;
    explicit PluginWorld(
        const char* file, std::vector<int> devices = {0, 1}, const char* faults = "",
        const Prepare& prepare = [](EmulatedGpus&) {})
        : library_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
        REQUIRE(library_ != nullptr);
        setenv("TEST_NET_PLUGIN_FAULTS", faults, 1);
        plugin::plugin_net().use(file, true);
        before_ = traffic();
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = "plugin";
        config.timeoutMs = 60'000;
        world_.emplace(std::move(devices), false, &config, 2, 16, [&](EmulatedGpus& gpus) {
            gpus.adapters.flush = reinterpret_cast<void (*)()>(dlsym(library_, "test_net_plugin_land"));
            prepare(gpus);
        });
    }
    ~PluginWorld() {
        world_.reset();
        unsetenv("TEST_NET_PLUGIN_FAULTS");
        plugin::plugin_net().use(config().net_plugin, config().net_plugin_demanded);
    }
    PluginWorld(const PluginWorld&) = delete;
    GpuWorld* operator->() { return &*world_; }

    /// Since it was made.
    Traffic bodies() const {
        const Traffic now = traffic();
        return {now.sent_from_host - before_.sent_from_host, now.sent_from_gpu - before_.sent_from_gpu,
                now.received_on_host - before_.received_on_host, now.received_on_gpu - before_.received_on_gpu,
                now.flushes - before_.flushes};
    }

  private:
    Traffic traffic() const {
        int numbers[5];
        reinterpret_cast<void (*)(int*)>(dlsym(library_, "test_net_plugin_traffic"))(numbers);
        return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
    }
    void* const library_;
    Traffic before_{};
    std::optional<GpuWorld> world_;
};

/// Messages that fit into cells, that would fit into a frame, and that don't.
std::vector<Case> cases_of_all_sizes(int ranks) {
    std::vector<Case> cases;
    for (const auto what : {Case::What::all_reduce, Case::What::broadcast, Case::What::all_to_all})
        for (const std::size_t count : {0, 1, 300, 9001})
            cases.push_back({what, count, tuttiFloat32, tuttiSum, ranks - 1});
    return cases;
}

}  // namespace

TEST_CASE("GPUDirect by plugins: they read and write GPU memory, which they flush, or the GPU's driver does") {
    for (const char* file : {NET_PLUGIN_11, NET_PLUGIN_9}) {
        PluginWorld world(file);
        world->run(cases_of_all_sizes(2));
        const Traffic bodies = world.bodies();
        CHECK(bodies.sent_from_host == 0);
        CHECK(bodies.received_on_host == 0);
        CHECK(bodies.sent_from_gpu > 10);
        CHECK(bodies.received_on_gpu == bodies.sent_from_gpu);
        const bool by_plugin = std::string(file) == NET_PLUGIN_11;
        CHECK((bodies.flushes == bodies.received_on_gpu) == by_plugin);
        CHECK((bodies.flushes == 0) != by_plugin);
        CHECK((world->gpus().flushes() == 0) == by_plugin);
        CHECK(world->gpus().pinned() < channel_slots_bytes);  // the FIFOs
    }
}

TEST_CASE("GPUDirect by plugins: each end decides for itself, so CPUs may be among the ranks") {
    PluginWorld world(NET_PLUGIN_12, {0, -1, 1});
    world->run(cases_of_all_sizes(3));
    const Traffic bodies = world.bodies();
    CHECK(bodies.sent_from_host > 0);
    CHECK(bodies.received_on_host > 0);
    CHECK(bodies.sent_from_gpu > 0);
    CHECK(bodies.received_on_gpu > 0);
}

TEST_CASE("GPUDirect by plugins: without the flush, kernels would add up what has not arrived") {
    PluginWorld world(NET_PLUGIN_11, {0, 1}, "iflush:none:0");
    CHECK_THROWS(world->run({sum}));
}

TEST_CASE("GPUDirect by plugins: where something is missing, slots are in host memory, and results are right") {
    struct Lack {
        const char *file, *faults;
        int exports = 16;
    };
    for (const Lack& lack : {Lack{NET_PLUGIN_8, ""}, Lack{NET_PLUGIN_11, "regMrDmaBuf:fail:1"},
                             Lack{NET_PLUGIN_11, "regMrDmaBuf:fail:4"}, Lack{NET_PLUGIN_11, "", 0}}) {
        CAPTURE(lack.file, lack.faults);
        PluginWorld world(lack.file, {0, 1}, lack.faults, [&](auto& gpus) { gpus.adapters.exports = lack.exports; });
        world->run({sum});
        const Traffic bodies = world.bodies();
        CHECK(bodies.sent_from_host > 0);
        CHECK(bodies.sent_from_gpu == 0);
        CHECK(bodies.received_on_gpu == 0);
        CHECK(world->gpus().pinned() > channel_slots_bytes);
    }
}

TEST_CASE("GPUDirect by plugins: a GPU that keeps writes in order needs no flush") {
    PluginWorld world(NET_PLUGIN_11, {0, 1}, "",
                      [](EmulatedGpus& gpus) { gpus.adapters.arrival = gpu::Arrival::at_once; });
    CHECK_THROWS(world->run({sum}));  // this plugin can't do without, and nobody has asked it to
    CHECK(world.bodies().received_on_gpu > 0);
    CHECK(world.bodies().flushes == 0);
}

TEST_CASE("GPUDirect by plugins: memory that is refused later loses the link, and nobody waits for it") {
    PluginWorld world(NET_PLUGIN_9, {0, 1}, "regMrDmaBuf:fail:5");  // both ends on both devices were tried before
    std::byte* data[] = {world->gpus().allocate(0, 40'000), world->gpus().allocate(1, 40'000)};
    for (int r : {0, 1})
        tuttiAllReduce(data[r], data[r], 10'000, tuttiFloat32, tuttiSum, world->comm(r), world->stream(r));
    // All ranks hear from the first of the two ends to report the loss: with the plugin's reason, or that the peer
    // closed.
    for (int r : {0, 1}) CHECK(await_error(world->comm(r)) == tuttiRemoteError);
    for (int r : {0, 1}) CHECK(harness::mentions(world->comm(r), {"lost its connection with"}));
    for (int r : {0, 1}) {
        world->gpus().synchronize_stream(world->stream(r));
        world->gpus().free(r, data[r]);
    }
}
