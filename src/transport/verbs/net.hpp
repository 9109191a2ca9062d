// The network "verbs": InfiniBand and RoCE adapters, for the engine (net/net.hpp).
#pragma once

#include <mutex>
#include <optional>

#include "transport/net/endpoint.hpp"
#include "transport/net/net.hpp"
#include "transport/verbs/device.hpp"

namespace tutti::verbs {

/// One for the process. Any thread may call it; mutex_ guards the list of ports.
class Net : public net::Net {
  public:
    /// load: returns the library, or nullptr if there is no adapter, or throws tuttiSystemError. Called when the ports
    /// are first needed.
    Net(const Library* (*load)(), Wish wish) : wish_(std::move(wish)), load_(load) {}

    std::string_view name() const override { return "verbs"; }
    std::uint64_t fabric() override;
    std::string absence() override;
    Line cost() const override { return {4.0, 1.0 / 1e4}; }
    std::string obstacle(DeviceSlots* slots) override;
    std::vector<Registered> enlist(std::span<std::byte> memory) override;
    std::unique_ptr<net::NetEndpoint> open(Rank self, Rank peer, const net::LinkMemory& memory,
                                           std::chrono::milliseconds silence_limit) override;
    std::unique_ptr<net::NetEndpoint> detour(Rank self, Rank peer, const net::LinkMemory& memory,
                                             std::chrono::milliseconds silence_limit, std::uint64_t& broken) override;

    /// For tests: forgets the ports, and looks for them with this library from now on.
    void use(const Library* (*load)());

  private:
    const std::vector<Port>& ports();
    std::vector<Port> usable();

    const Wish wish_;
    std::mutex mutex_;  // guards what follows
    const Library* (*load_)();
    std::optional<std::vector<Port>> ports_;  // once looked for
    std::uint64_t process_ = 0;               // the process that found ports_
    std::string why_;                         // why there are no ports, or why some are left out
};

/// The process's network over verbs. Never destroyed.
Net& net_here();

}  // namespace tutti::verbs
