// The network that a plugin reaches, for net::nets().
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/net/endpoint.hpp"
#include "transport/plugin/plugin.hpp"

namespace tutti::plugin {

class PluginNet : public net::Net {
  public:
    /// value: as of load(); demanded: if it does not serve, fabric() throws. Nothing is loaded before fabric() is
    /// asked.
    PluginNet(std::string value, bool demanded) : value_(std::move(value)), demanded_(demanded) {}

    std::string_view name() const override { return "plugin"; }
    /// Of those that use a plugin of the same name. Throws tuttiSystemError.
    std::uint64_t fabric() override;
    std::string absence() override;
    Line cost() const override;
    bool may_hang() const override { return true; }
    std::string obstacle(DeviceSlots* slots) override;
    std::unique_ptr<net::NetEndpoint> open(Rank self, Rank peer, const net::LinkMemory& memory,
                                           std::chrono::milliseconds silence_limit) override;

    /// Another one from now on, while no communicator uses this: for tests.
    void use(const std::string& value, bool demanded);

  private:
    void start();
    std::size_t choose(Rank self);
    std::shared_ptr<void> context_of(const Arena& arena);
    std::string try_memory(const DeviceSlots& slots);

    std::mutex mutex_;
    std::string value_;
    bool demanded_;
    bool started_ = false;
    std::shared_ptr<Plugin> plugin_;
    std::vector<Device> devices_;              // that serve, of the highest speed there is
    std::string why_;                          // there is none
    std::optional<std::string> gpu_obstacle_;  // once it was tried

    std::shared_ptr<std::vector<std::atomic<int>>> open_;    // connections, by device; leases outlive the net
    std::map<std::uint64_t, std::weak_ptr<void>> contexts_;  // by Arena::key()
};

/// What TUTTI_NET_PLUGIN or NCCL_NET_PLUGIN say.
PluginNet& plugin_net();

}  // namespace tutti::plugin
