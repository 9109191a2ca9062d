// Open adapters and their ports. A process opens each adapter once; all its ranks share it.
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

/// The asynchronous events that an adapter has reported. The service thread records them. Ranks' threads read them, and
/// drop those of a former queue (Device::forget).
struct Health {
    std::array<std::atomic<Clock::rep>, 256> down_since{};  // by port, in ticks of Clock; 0 while the port is up
    std::atomic<bool> fatal{false};                         // the adapter can't be used any more
    std::atomic<unsigned> news{0};                          // counts changes of fatal, new_addresses and broken
    std::atomic<unsigned> new_addresses{0};                 // counts events that may have changed a port's address

    std::mutex mutex;                           // guards broken
    std::map<const void*, std::string> broken;  // by queue pair or completion queue: the event that ended it
};

/// An open adapter. Shared by the ports that name it. Any thread may use it: it does not change once it is made, and
/// Health and Registrations have locks of their own.
class Device {
  public:
    /// Opens `device`, and has the service thread watch its events. Throws tuttiSystemError.
    /// relaxed_ordering: the adapter may write to host memory in any order, as long as all is there at the completion.
    Device(const Library& library, ibv_device* device, bool relaxed_ordering);
    ~Device();

    const Library& library() const { return library_; }
    const std::string& name() const { return name_; }
    ibv_context* context() const { return context_.get(); }
    ibv_pd* domain() const { return domain_.get(); }
    const ibv_device_attr& limits() const { return limits_; }
    const Location& location() const { return location_; }
    ibv_port_attr query(int port) const;
    /// Whether the adapter reported more than `at_least` ago that the port went down, and not since that it is up.
    bool is_down_for(std::uint8_t port, std::chrono::milliseconds at_least) const;
    bool is_fatal() const { return health_->fatal.load(std::memory_order_relaxed); }
    /// Changes whenever why_useless() may have another answer.
    unsigned news() const { return health_->news.load(std::memory_order_relaxed); }
    /// Why a connection over these queues can't go on, by what the adapter has reported; empty if it can.
    std::string why_useless(const ibv_qp* pair, const ibv_cq* completions) const;
    /// Drops reports about `queue`. To be called for a new queue, whose address an earlier one may have had.
    void forget(const void* queue) const;
    /// Changes whenever a port may have got another address.
    unsigned new_addresses() const { return health_->new_addresses.load(std::memory_order_relaxed); }

    /// Registers [memory, memory + bytes) of the host with the adapter. Throws tuttiSystemError that says what to do.
    Owned<ibv_mr> enlist(void* memory, std::size_t bytes, Access access) const;
    /// Registers the slots of both directions in a GPU's memory, so that peers may write them. Only if the library has
    /// reg_dmabuf_mr. Throws tuttiSystemError.
    Owned<ibv_mr> enlist(const DeviceSlots& slots) const;
    Registrations& registrations() const { return *registrations_; }

  private:
    void watch();

    const Library& library_;
    const std::string name_;
    const Location location_;
    const int optional_access_;  // flags for registrations of host memory, which old kernels may ignore
    Owned<ibv_context> context_;
    Owned<ibv_pd> domain_;
    ibv_device_attr limits_{};
    const std::unique_ptr<Registrations> registrations_;
    const std::shared_ptr<Health> health_ = std::make_shared<Health>();
    std::shared_ptr<bootstrap::Service> service_;  // watches the adapter's events; nullptr if nothing watches them
};

/// Attributes of a queue pair: how its packets are sent, and how lost ones are sent again.
struct Delivery {
    std::uint8_t traffic_class = 0, service_level = 0;
    std::uint8_t timeout = 0;  // n: wait 4.096 us * 2^n for an acknowledgement; 0: derived from the silence limit
    std::uint8_t retries = 6;  // soft-RoCE takes 7 as "without end"
};

/// What the environment variables ask for.
struct Wish {
    std::string adapters;    // see HcaList
    int gid_index = -1;      // see choose_gid()
    bool none = false;       // use no adapter at all
    int pkey_index = 0;      // in a port's table of partition keys
    Delivery delivery = {};  // of all connections
    int queue_pairs = 1;     // between two ranks, on each port
    bool relaxed_ordering = true;
};

/// A port of an adapter, with its address. A value: each user of a port has a copy.
struct Port {
    std::shared_ptr<const Device> device;
    std::uint8_t number = 1;
    Gid gid;
    double speed = 0;  // Gbit/s; 0 if unknown
    std::uint16_t pkey_index = 0, pkey = 0;
    Delivery delivery = {};
    unsigned rail = 0;          // index among the ports that find_ports() returned
    unsigned addresses_at = 0;  // Device::new_addresses() when gid was looked up
    int distance = 0;           // from the rank that uses it; see nearness.hpp
    std::string text() const;   // "mlx5_0 port 1"

    /// Whether the port's table still has gid at gid.index.
    bool has_its_address() const;
    /// Sets gid to the address that the port has now. False if it has none.
    bool look_up(const Wish& wish);
};

/// Returns the ports to use: active ones on the same fabric as the fastest port (the first of equals), without those
/// that is_slow() leaves out. why: receives the reason for each port that is not used, or says that there is no
/// adapter. Throws tuttiSystemError and tuttiInvalidUsage.
std::vector<Port> find_ports(const Library& library, const Wish& wish, std::string& why);

}  // namespace tutti::verbs
