#include "transport/plugin/plugin_net.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/caught.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "base/os.hpp"
#include "base/result.hpp"
#include "transport/plugin/endpoint.hpp"

namespace tutti::plugin {
namespace {

constexpr int connections_of_endpoint = 4;
constexpr std::chrono::seconds try_at_most{5};
constexpr std::chrono::microseconds try_again{50};

}  // namespace

/// Loads the plugin, and chooses the fastest of the devices that can be used. Throws tuttiSystemError.
void PluginNet::start() {
    plugin_ = load(value_);
    const int count = plugin_->devices();
    int fastest = 0;
    for (int number = 0; number < count; ++number) {
        Device d = plugin_->device(number);
        log(Level::info, "network plugin %s, device %d: %s, %d Mbit/s", plugin_->name().c_str(), number, d.name.c_str(),
            d.speed);
        if (!d.host_memory || d.most_bytes < longest_slot_bytes || d.speed < fastest) continue;
        if (d.speed > fastest) devices_.clear();
        fastest = d.speed;
        devices_.push_back(std::move(d));
    }
    if (devices_.empty())
        fail(tuttiSystemError,
             "network plugin %s (%s) has %d devices, and none that takes messages of %zu bytes from the host's memory",
             plugin_->file().c_str(), plugin_->name().c_str(), count, longest_slot_bytes);
    open_ = std::make_shared<std::vector<std::atomic<int>>>(devices_.size());
}

std::uint64_t PluginNet::fabric() {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(started_, true)) {
        try {
            if (value_.empty() || value_ == "none")
                why_ = "no network plugin is named: TUTTI_NET_PLUGIN takes the file, or the name, of one";
            else
                start();
        } catch (...) {
            why_ = caught().what();
            if (!demanded_)
                log(Level::warn, "the network plugin that NCCL_NET_PLUGIN names is not used: %s", why_.c_str());
        }
    }
    if (demanded_ && value_ != "none" && !why_.empty())
        fail(tuttiSystemError,
             "the network plugin that TUTTI_NET_PLUGIN names can't be used: %s (TUTTI_NET_PLUGIN=none goes without)",
             why_.c_str());
    return why_.empty() ? std::max<std::uint64_t>(1, fnv(plugin_->name())) : 0;
}

std::string PluginNet::absence() {
    return why_;
}

Line PluginNet::cost() const {
    return {10.0, 1.0 / 10e3};  // a guess, not the device's speed: it must be the same on all ranks
}

/// The device with the fewest connections among those with room for an endpoint's; among equals, ranks of a process
/// begin at different ones. devices_.size() if none has room.
std::size_t PluginNet::choose(Rank self) {
    std::size_t best = devices_.size();
    for (std::size_t i = 0; i < devices_.size(); ++i) {
        const std::size_t d = (static_cast<std::size_t>(self) + i) % devices_.size();
        const int most = devices_[d].most_connections;
        if (most > 0 && (*open_)[d] + connections_of_endpoint > most) continue;
        if (best == devices_.size() || (*open_)[d] < (*open_)[best]) best = d;
    }
    return best;
}

/// The context for the rank that has this arena, in its communicator. The rank's links share it.
std::shared_ptr<void> PluginNet::context_of(const Arena& arena) {
    std::erase_if(contexts_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<void>& known = contexts_[arena.key()];
    std::shared_ptr<void> context = known.lock();
    if (!context) known = context = plugin_->context();
    return context;
}

/// Memory is registered with a connection, not with a device. So whether the plugin takes a GPU's memory is tried
/// once, on connections of the process with itself, before the first link relies on it.
std::string PluginNet::obstacle(DeviceSlots* slots) {
    const std::lock_guard lock(mutex_);
    if (!plugin_->can_take_gpus() || !std::ranges::all_of(devices_, &Device::gpu_memory))
        return text("network plugin %s takes no memory of GPUs (regMrDmaBuf)", plugin_->name().c_str());
    if (slots != nullptr && !gpu_obstacle_) gpu_obstacle_ = try_memory(*slots);
    return gpu_obstacle_.value_or("");
}

std::string PluginNet::try_memory(const DeviceSlots& slots) {
    try {
        const std::shared_ptr<void> context = plugin_->context();
        for (const Device& device : devices_) {
            const Connector connector{plugin_, context, device.number};
            Requests in(connector, Requests::Way::in), out(connector, Requests::Way::out);
            out.handle() = in.handle();
            const Deadline limit = Clock::now() + try_at_most;
            for (bool one = false, other = false; !one || !other;) {
                one = in.open(), other = out.open();
                if (Clock::now() > limit) return device.name + " does not connect with itself, to try a GPU's memory";
                std::this_thread::sleep_for(try_again);
            }
            for (Requests* end : {&in, &out}) end->gpu_memory(slots.memory, slots.fd);
        }
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

void PluginNet::use(const std::string& value, bool demanded) {
    const std::lock_guard lock(mutex_);
    value_ = value;
    demanded_ = demanded;
    started_ = false;
    devices_.clear();
    why_.clear();
    gpu_obstacle_.reset();
}

std::unique_ptr<net::NetEndpoint> PluginNet::open(Rank self, Rank peer, const net::LinkMemory& memory,
                                                  std::chrono::milliseconds) {
    Frames::tend_kept();
    const std::lock_guard lock(mutex_);
    const std::size_t d = choose(self);
    if (d == devices_.size())
        fail(tuttiSystemError, "network plugin %s: %s and each device as fast allow no more than %d connections",
             plugin_->file().c_str(), devices_[0].name.c_str(), devices_[0].most_connections);
    (*open_)[d] += connections_of_endpoint;
    std::shared_ptr<void> lease(nullptr, [open = open_, d](void*) { (*open)[d] -= connections_of_endpoint; });
    const Connector connector{plugin_, context_of(memory.mine), devices_[d].number};
    return std::make_unique<Endpoint>(connector, devices_[d], std::move(lease), peer, memory);
}

PluginNet& plugin_net() {
    // Never destroyed: communicators that are destroyed at the process's exit may still have connections.
    static auto* const instance = new PluginNet(config().net_plugin, config().net_plugin_demanded);
    return *instance;
}

}  // namespace tutti::plugin
