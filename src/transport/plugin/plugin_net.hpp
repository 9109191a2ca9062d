// The network "plugin": what a network plugin reaches, for the engine (net/net.hpp).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/net/endpoint.hpp"
#include "transport/net/net.hpp"
#include "transport/plugin/plugin.hpp"

namespace tutti::plugin {

/// One for the process. Any thread may call it, fabric() first; mutex_ guards it.
class PluginNet : public net::Net {
  public:
    /// value: as load() takes it. demanded: fabric() throws if the plugin can't be used. The plugin is loaded at the
    /// first call of fabric().
    PluginNet(std::string value, bool demanded) : value_(std::move(value)), demanded_(demanded) {}

    std::string_view name() const override { return "plugin"; }
    /// Equal on ranks whose plugins have the same name. Throws tuttiSystemError.
    std::uint64_t fabric() override;
    std::string absence() override;
    Line cost() const override;
    bool may_hang() const override { return true; }
    std::string obstacle(DeviceSlots* slots) override;
    std::unique_ptr<net::NetEndpoint> open(Rank self, Rank peer, const net::LinkMemory& memory,
                                           std::chrono::milliseconds silence_limit) override;

    /// For tests: uses another plugin from now on. Only while no communicator uses this one.
    void use(const std::string& value, bool demanded);

  private:
    void start();
    std::size_t choose(Rank self);
    std::shared_ptr<void> context_of(const Arena& arena);
    std::string try_memory(const DeviceSlots& slots);

    std::mutex mutex_;  // guards what follows
    std::string value_;
    bool demanded_;
    bool started_ = false;
    std::shared_ptr<Plugin> plugin_;
    std::vector<Device> devices_;              // that can be used, of the highest speed among those
    std::string why_;                          // why there is no plugin; empty if there is one
    std::optional<std::string> gpu_obstacle_;  // what try_memory() returned; nullopt before

    std::shared_ptr<std::vector<std::atomic<int>>> open_;  // connections, by index in devices_; shared with the leases
    std::map<std::uint64_t, std::weak_ptr<void>> contexts_;  // of communicators, by Arena::key() of the rank
};

/// The process's network over the plugin that TUTTI_NET_PLUGIN or NCCL_NET_PLUGIN names. Never destroyed.
PluginNet& plugin_net();

}  // namespace tutti::plugin
