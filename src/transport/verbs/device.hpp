// Adapters that are open, and their ports. A process opens each once; all its ranks share them.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/service.hpp"
#include "transport/slots.hpp"
#include "transport/verbs/gid.hpp"
#include "transport/verbs/library.hpp"
#include "transport/verbs/nearness.hpp"
#include "transport/verbs/registrations.hpp"

namespace tutti::verbs {

/// What an adapter has told of itself. The service thread writes it, all ranks read it.
struct Health {
    std::array<std::atomic<Clock::rep>, 256> down_since{};  // when ports went down, in ticks of Clock; 0: they are up
    std::atomic<bool> fatal{false};                         // the adapter is of no use any more
    std::atomic<unsigned> news{0};                          // grows with all that follows, and with `fatal`
    std::atomic<unsigned> new_addresses{0};                 // grows when a port may have got another one

    std::mutex mutex;
    std::map<const void*, std::string> broken;  // queue pairs and completion queues, and what happened to them
};

class Device {
  public:
    /// Throws tuttiSystemError.
    /// relaxed_ordering: what arrives may be written to the host's memory in any order before its completion.
    Device(const Library& library, ibv_device* device, bool relaxed_ordering);
    ~Device();

    const Library& library() const { return library_; }
    const std::string& name() const { return name_; }
    ibv_context* context() const { return context_.get(); }
    ibv_pd* domain() const { return domain_.get(); }
    const ibv_device_attr& limits() const { return limits_; }
    const Location& location() const { return location_; }
    ibv_port_attr query(int port) const;
    /// It went down so long ago, as the adapter has told, and did not come up again.
    bool is_down_for(std::uint8_t port, std::chrono::milliseconds at_least) const;
    bool is_fatal() const { return health_->fatal.load(std::memory_order_relaxed); }
    /// Grows whenever why_useless() may have another answer.
    unsigned news() const { return health_->news.load(std::memory_order_relaxed); }
    /// Why a connection by these can't go on, as the adapter has told; empty: it can.
    std::string why_useless(const ibv_qp* pair, const ibv_cq* completions) const;
    /// Such a queue is new: what was told of an earlier one at its address is not about it.
    void forget(const void* queue) const;
    /// Grows whenever a port may have got another address.
    unsigned new_addresses() const { return health_->new_addresses.load(std::memory_order_relaxed); }

    /// Makes it known to the adapter. Throws tuttiSystemError that says what to do.
    Owned<ibv_mr> enlist(void* memory, std::size_t bytes, Access access) const;
    /// Those of a GPU, of both directions, for peers to write; the library has reg_dmabuf_mr.
    Owned<ibv_mr> enlist(const DeviceSlots& slots) const;
    Registrations& registrations() const { return *registrations_; }

  private:
    void watch();

    const Library& library_;
    const std::string name_;
    const Location location_;
    const int optional_access_;  // flags of registrations
    Owned<ibv_context> context_;
    Owned<ibv_pd> domain_;
    ibv_device_attr limits_{};
    const std::unique_ptr<Registrations> registrations_;
    const std::shared_ptr<Health> health_ = std::make_shared<Health>();
    std::shared_ptr<bootstrap::Service> service_;  // tells what the adapter has to say
};

/// How the packets of a connection are sent, and what becomes of those that get lost.
struct Delivery {
    std::uint8_t traffic_class = 0, service_level = 0;
    std::uint8_t timeout = 0;  // an adapter waits 4.096 us * 2^n for an acknowledgement; 0: by the limit of silence
    std::uint8_t retries = 6;  // 7 is for ever in soft-RoCE
};

/// What the environment asks for.
struct Wish {
    std::string adapters;  // see HcaList
    int gid_index = -1;
    bool none = false;  // no adapter at all
    int pkey_index = 0;
    Delivery delivery = {};
    int queue_pairs = 1;  // of two ranks, by each port
    bool relaxed_ordering = true;
};

struct Port {
    std::shared_ptr<const Device> device;
    std::uint8_t number = 1;
    Gid gid;
    double speed = 0;  // Gbit/s; 0: nobody knows
    std::uint16_t pkey_index = 0, pkey = 0;
    Delivery delivery = {};
    unsigned rail = 0;          // its number among those that are used
    unsigned addresses_at = 0;  // Device::new_addresses() when gid was looked up
    int distance = 0;           // from a rank; see nearness.hpp
    std::string text() const;   // "mlx5_0 port 1"

    /// Whether gid is still where it was in the port's table.
    bool has_its_address() const;
    /// With the address that the port has now; false if it has none.
    bool look_up(const Wish& wish);
};

/// The active ports, all on the fabric of the fastest (of equal ones, the first), and none that is slow beside that.
/// None: why says so for each that there is. Throws tuttiSystemError and tuttiInvalidUsage.
std::vector<Port> find_ports(const Library& library, const Wish& wish, std::string& why);

}  // namespace tutti::verbs
