#include "transport/verbs/device.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "transport/verbs/trouble.hpp"

namespace tutti::verbs {
namespace {

/// Verbs grants remote writes only together with local ones; local reads need no flag.
constexpr int flags_of(Access access) {
    switch (access) {
        case Access::local_reads:
            return 0;
        case Access::local_writes:
            return IBV_ACCESS_LOCAL_WRITE;
        case Access::remote_writes:
            return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        case Access::window:
            return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    }
    return 0;
}

/// Receives an adapter's asynchronous events, on the service thread, and records them in Health. A port that goes down
/// may come up again before a connection's retries end, so its connections go on until they fail, or notice how long it
/// has been down. All other events that make connections useless are noted, and the connections look them up.
class Events : public bootstrap::Watcher {
  public:
    Events(const Library& library, ibv_context* context, std::string name, std::shared_ptr<Health> health)
        : library_(library), context_(context), name_(std::move(name)), health_(std::move(health)) {}

    void ready(std::uint32_t) override {
        for (ibv_async_event event; library_.get_async_event(context_, &event) == 0;) {
            take(event);
            library_.ack_async_event(&event);
        }
    }

  private:
    void take(const ibv_async_event& event) {
        const std::string what = library_.event_type_str(event.event_type);
        switch (event.event_type) {
            case IBV_EVENT_PORT_ERR:
            case IBV_EVENT_PORT_ACTIVE: {
                const bool down = event.event_type == IBV_EVENT_PORT_ERR;
                health_->down_since[event.element.port_num & 255U] = down ? Clock::now().time_since_epoch().count() : 0;
                return log(Level::warn, "%s port %d is %s", name_.c_str(), event.element.port_num,
                           down ? "down: what goes by it waits" : "active again");
            }
            case IBV_EVENT_DEVICE_FATAL:
                health_->fatal = true;
                log(Level::warn, "%s: %s; it is not used any more", name_.c_str(), what.c_str());
                break;
            case IBV_EVENT_QP_FATAL:
            case IBV_EVENT_QP_REQ_ERR:
            case IBV_EVENT_QP_ACCESS_ERR:
                note(event.element.qp, what);
                break;
            case IBV_EVENT_CQ_ERR:
                note(event.element.cq, what);
                break;
            case IBV_EVENT_GID_CHANGE:
            case IBV_EVENT_LID_CHANGE:
                log(Level::warn, "%s port %d: %s", name_.c_str(), event.element.port_num, what.c_str());
                ++health_->new_addresses;
                break;
            default:
                return log(Level::info, "%s: %s", name_.c_str(), what.c_str());
        }
        ++health_->news;
    }
    void note(const void* queue, const std::string& what) {
        const std::lock_guard lock(health_->mutex);
        health_->broken[queue] = what;
    }

    const Library& library_;
    ibv_context* const context_;
    const std::string name_;
    const std::shared_ptr<Health> health_;
};

/// Entry `index` of a port's GID table. Its bytes are all 0 if the entry is empty.
Gid gid_at(const Device& device, int port, int index) {
    ibv_gid_entry entry{};
    Gid gid;
    gid.index = index;
    if (device.library().query_gid_ex(device.context(), static_cast<std::uint32_t>(port),
                                      static_cast<std::uint32_t>(index), &entry, 0, sizeof entry) != 0)
        return gid;
    gid.kind = entry.gid_type == IBV_GID_TYPE_IB        ? Gid::Kind::infiniband
               : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? Gid::Kind::roce1
                                                        : Gid::Kind::roce2;
    std::memcpy(gid.bytes.data(), entry.gid.raw, sizeof entry.gid.raw);
    return gid;
}

}  // namespace

Device::Device(const Library& library, ibv_device* device, bool relaxed_ordering)
    : library_(library),
      name_(library.get_device_name(device)),
      location_(locate(std::string(device->ibdev_path) + "/device")),
      optional_access_(relaxed_ordering ? IBV_ACCESS_RELAXED_ORDERING : 0),
      context_(library.open_device(device), library.close_device),
      domain_(nullptr, library.dealloc_pd),
      registrations_(std::make_unique<Registrations>(*this)) {
    if (!context_)
        fail_errno("%s can't be opened%s", name_.c_str(),
                   errno == EACCES ? " (who may: the owner of /dev/infiniband/uverbs*)" : "");
    domain_.reset(library_.alloc_pd(context()));
    if (!domain_ || library_.query_device(context(), &limits_) != 0) fail_errno("%s can't be used", name_.c_str());
    watch();
}

Device::~Device() {
    if (service_)
        shielded("leaving an adapter", [&] { service_->run([&] { service_->unwatch(context_->async_fd); }); });
}

void Device::watch() {
    const int fd = context_->async_fd;
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) return;
    service_ = bootstrap::Service::get();
    // Posted without waiting: the service thread may itself be waiting for the thread that opens the adapters.
    auto events = std::make_shared<Events>(library_, context(), name_, health_);
    service_->post([service = service_.get(), fd, events] { service->watch(fd, EPOLLIN, events); });
}

bool Device::is_down_for(std::uint8_t port, std::chrono::milliseconds at_least) const {
    const Clock::rep since = health_->down_since[port].load(std::memory_order_relaxed);
    return since != 0 && Clock::now().time_since_epoch() - Clock::duration(since) > at_least;
}

std::string Device::why_useless(const ibv_qp* pair, const ibv_cq* completions) const {
    if (is_fatal()) return name_ + " has reported a fatal error";
    const std::lock_guard lock(health_->mutex);
    for (const void* const queue : {static_cast<const void*>(pair), static_cast<const void*>(completions)})
        if (const auto found = health_->broken.find(queue); found != health_->broken.end())
            return name_ + " has reported: " + found->second;
    return {};
}

void Device::forget(const void* queue) const {
    const std::lock_guard lock(health_->mutex);
    health_->broken.erase(queue);
}

ibv_port_attr Device::query(int port) const {
    ibv_port_attr attributes{};
    // The function fills only the part of the structure that all versions of the library have.
    auto* const common = reinterpret_cast<_compat_ibv_port_attr*>(&attributes);
    if (library_.query_port(context(), static_cast<std::uint8_t>(port), common) != 0) attributes.state = IBV_PORT_NOP;
    return attributes;
}

Owned<ibv_mr> Device::enlist(void* memory, std::size_t bytes, Access access) const {
    errno = 0;
    // Relaxed ordering is safe: what arrives is read only after its own completion or that of a later frame, and a
    // completion means that all earlier writes are there. A message overwrites an earlier one only after the peer has
    // received the earlier one's credit.
    const int optional = access == Access::window ? 0 : optional_access_;
    const auto flags = static_cast<unsigned>(flags_of(access) | optional);
    Owned<ibv_mr> region(library_.reg_mr(domain(), memory, bytes, reinterpret_cast<std::uintptr_t>(memory), flags),
                         library_.dereg_mr);
    if (!region) fail(tuttiSystemError, "%s", explain_registration(errno, bytes, name_).c_str());
    return region;
}

Owned<ibv_mr> Device::enlist(const DeviceSlots& slots) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(slots.memory.data());
    errno = 0;
    // No relaxed ordering: a completion in host memory says nothing about writes that are on their way to the GPU.
    Owned<ibv_mr> region(library_.reg_dmabuf_mr(domain(), 0, slots.memory.size(), begin, slots.fd.get(),
                                                flags_of(Access::remote_writes)),
                         library_.dereg_mr);
    if (!region)
        fail(tuttiSystemError, "%s can't register %zu bytes of the GPU's memory: %s (ibv_reg_dmabuf_mr)", name_.c_str(),
             slots.memory.size(), std::strerror(errno));
    return region;
}

std::string Port::text() const {
    return device->name() + " port " + std::to_string(number);
}

bool Port::has_its_address() const {
    return gid_at(*device, number, gid.index).bytes == gid.bytes;
}

bool Port::look_up(const Wish& wish) {
    addresses_at = device->new_addresses();
    std::vector<Gid> table;
    for (int i = 0, length = device->query(number).gid_tbl_len; i < length; ++i)
        if (const Gid entry = gid_at(*device, number, i); entry.bytes != Gid::Bytes{}) table.push_back(entry);
    const Gid* const found = choose_gid(table, wish.gid_index);
    if (found != nullptr) gid = *found;
    return found != nullptr;
}

namespace {

/// Opens all adapters of this machine, and sorts their ports into those that can be used and those that can't.
class Search {
  public:
    Search(const Library& library, const Wish& wish) : wish_(wish), list_(wish.adapters) {
        int count = 0;
        const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> devices(library.get_device_list(&count),
                                                                           library.free_device_list);
        for (int i = 0; devices && i < count; ++i) {
            const auto device = std::make_shared<const Device>(library, devices.get()[i], wish.relaxed_ordering);
            for (int number = 1; number <= device->limits().phys_port_cnt; ++number) look_at(device, number);
        }
    }

    /// The active ports that find_ports() returns; adds the others to skipped().
    std::vector<Port> matching() {
        std::vector<Port> ports;
        const auto best = std::ranges::max_element(active_, {}, &Port::speed);  // of equal ones, the first
        for (Port& port : active_) {
            if (port.gid.fabric() != best->gid.fabric()) {
                skip(port, "on another fabric than " + best->text());
            } else if (is_slow(port.speed, best->speed)) {
                skip(port, text("left out: it has %g Gbit/s, %s %g", port.speed, best->text().c_str(), best->speed));
            } else {
                port.rail = static_cast<unsigned>(ports.size());
                ports.push_back(port);
            }
        }
        return ports;
    }
    /// The reasons why ports are not used, as one text.
    const std::string& skipped() const { return skipped_; }

  private:
    void look_at(const std::shared_ptr<const Device>& device, int number) {
        Port port{.device = device, .number = static_cast<std::uint8_t>(number), .gid = {}};
        port.delivery = wish_.delivery;
        if (!list_.allows(device->name(), number)) return skip(port, "not among TUTTI_IB_HCA");
        const ibv_port_attr state = device->query(number);
        const bool has_address = port.look_up(wish_);
        port.speed = speed_of(state.active_width, state.active_speed);
        if (state.state != IBV_PORT_ACTIVE) return skip(port, name_of(state.state));
        if (!has_address && wish_.gid_index < 0) return skip(port, "without an address");
        if (!has_address)
            return skip(port, text("without an address of index %d (TUTTI_IB_GID_INDEX)", wish_.gid_index));
        if (!find_key(port, state.pkey_tbl_len))
            return skip(port, text("without a partition key of index %d (TUTTI_IB_PKEY; its table has %d entries)",
                                   wish_.pkey_index, state.pkey_tbl_len));
        active_.push_back(port);
    }
    bool find_key(Port& port, int length) const {
        const Device& device = *port.device;
        std::uint16_t key = 0;
        if (wish_.pkey_index >= length ||
            device.library().query_pkey(device.context(), port.number, wish_.pkey_index, &key) != 0)
            return false;
        port.pkey_index = static_cast<std::uint16_t>(wish_.pkey_index);
        port.pkey = ntohs(key);
        return (port.pkey & 0x7fff) != 0;  // 0 in an empty entry
    }
    void skip(const Port& port, const std::string& reason) {
        skipped_ += (skipped_.empty() ? "" : ", ") + port.text() + " is " + reason;
    }

    const Wish& wish_;
    const HcaList list_;
    std::vector<Port> active_;
    std::string skipped_;
};

}  // namespace

std::vector<Port> find_ports(const Library& library, const Wish& wish, std::string& why) {
    Search search(library, wish);
    std::vector<Port> ports = search.matching();
    why =
        search.skipped().empty() ? "no InfiniBand or RoCE adapter is here" : "no port can be used: " + search.skipped();
    if (!ports.empty() && !search.skipped().empty()) log(Level::info, "verbs: %s", search.skipped().c_str());
    return ports;
}

}  // namespace tutti::verbs
