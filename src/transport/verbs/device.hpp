// Adapters that are open, and their ports. A process opens each once; all its ranks share them.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/service.hpp"
#include "transport/slots.hpp"
#include "transport/verbs/gid.hpp"
#include "transport/verbs/library.hpp"
#include "transport/verbs/registrations.hpp"

namespace tutti::verbs {

/// When ports went down, by their numbers, in ticks of Clock; 0: they have not.
using DownSince = std::array<std::atomic<Clock::rep>, 256>;

class Device {
  public:
    /// Throws tuttiSystemError.
    Device(const Library& library, ibv_device* device);
    ~Device();

    const Library& library() const { return library_; }
    const std::string& name() const { return name_; }
    ibv_context* context() const { return context_.get(); }
    ibv_pd* domain() const { return domain_.get(); }
    const ibv_device_attr& limits() const { return limits_; }
    ibv_port_attr query(int port) const;
    /// It went down so long ago, as the adapter has told, and did not come up again.
    bool is_down_for(std::uint8_t port, std::chrono::milliseconds at_least) const;

    /// The adapter may read it and, if the peer is to write there, write it. Throws tuttiSystemError that says what to
    /// do.
    Owned<ibv_mr> enlist(void* memory, std::size_t bytes) const;
    /// Those of a GPU, likewise; the library has reg_dmabuf_mr.
    Owned<ibv_mr> enlist(const DeviceSlots& slots) const;
    Registrations& registrations() const { return *registrations_; }

  private:
    void watch();

    const Library& library_;
    const std::string name_;
    Owned<ibv_context> context_;
    Owned<ibv_pd> domain_;
    ibv_device_attr limits_{};
    const std::unique_ptr<Registrations> registrations_;
    const std::shared_ptr<DownSince> down_since_ = std::make_shared<DownSince>();
    std::shared_ptr<bootstrap::Service> service_;  // tells what the adapter has to say
};

struct Port {
    std::shared_ptr<const Device> device;
    std::uint8_t number = 1;
    Gid gid;
    unsigned rail = 0;         // its number among those that are used
    std::string text() const;  // "mlx5_0 port 1"
};

/// What the environment asks for.
struct Wish {
    std::string adapters;  // see HcaList
    int gid_index = -1;
    bool none = false;  // no adapter at all
};

/// The active ports, all on the fabric of the first. None: why says so for each that there is. Throws tuttiSystemError
/// and tuttiInvalidUsage.
std::vector<Port> find_ports(const Library& library, const Wish& wish, std::string& why);

}  // namespace tutti::verbs
