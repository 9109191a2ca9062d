#include "transport/verbs/net.hpp"

#include <algorithm>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "bootstrap/service.hpp"
#include "transport/verbs/rails.hpp"

namespace tutti::verbs {

/// Looks for ports once in each process. A forked child looks anew: its parent's open adapters don't work there, and
/// closing them would harm the parent, so the child leaks them.
const std::vector<Port>& Net::ports() {
    const std::lock_guard lock(mutex_);
    if (ports_ && process_ == process_id()) return *ports_;
    if (ports_) new std::vector<Port>(std::move(*ports_));
    process_ = process_id();
    std::vector<Port> found;
    try {
        if (wish_.none)
            why_ = "NCCL_IB_DISABLE forbids it";
        else if (const Library* const library = load_(); library == nullptr)
            why_ = "no InfiniBand or RoCE adapter is here";
        else
            found = find_ports(*library, wish_, why_);
    } catch (const Error& error) {
        if (error.code() != tuttiSystemError) throw;
        why_ = error.what();
    }
    for (const Port& p : found)
        log(Level::info, "verbs: %s, %g Gbit/s, address %d: %s", p.text().c_str(), p.speed, p.gid.index,
            p.gid.text().c_str());
    if (found.empty()) log(Level::info, "verbs: %s", why_.c_str());
    return ports_.emplace(std::move(found));
}

std::uint64_t Net::fabric() {
    return ports().empty() ? 0 : ports()[0].gid.fabric();
}

std::string Net::absence() {
    return ports().empty() ? why_ : "";
}

/// Registers the slots with all adapters, so that a link whose adapter fails can go on by another one with the same
/// slots.
std::string Net::obstacle(DeviceSlots* slots) {
    for (const Port& p : ports()) {
        if (p.device->library().reg_dmabuf_mr == nullptr)
            return "libibverbs has no ibv_reg_dmabuf_mr: rdma-core 34 or later is needed";
        if (slots == nullptr || slots->known.contains(p.device.get())) continue;
        try {
            Owned<ibv_mr> region = p.device->enlist(*slots);
            slots->known[p.device.get()] = std::shared_ptr<void>(region.release(), [device = p.device](void* its) {
                device->library().dereg_mr(static_cast<ibv_mr*>(its));
            });
        } catch (const Error& error) {
            return error.what();
        }
    }
    return {};
}

std::vector<Registered> Net::enlist(std::span<std::byte> memory) {
    std::vector<Registered> all;
    for (const Port& p : ports()) {
        if (std::ranges::find(all, p.device.get(), &Registered::adapter) != all.end()) continue;
        try {
            Owned<ibv_mr> region = p.device->enlist(memory.data(), memory.size(), Access::window);
            const std::uint32_t key = region->rkey;
            log(Level::info, "verbs: %s lets peers write and read the %zu bytes of a window at %p",
                p.device->name().c_str(), memory.size(), static_cast<void*>(memory.data()));
            all.push_back({p.device.get(), key, std::shared_ptr<void>(region.release(), [device = p.device](void* its) {
                               device->library().dereg_mr(static_cast<ibv_mr*>(its));
                           })});
        } catch (const Error& error) {
            log(Level::info, "%s; what peers put into the window, or get from it, is copied", error.what());
        }
    }
    return all;
}

/// The ports whose adapters have not reported a fatal error, with the addresses that they have now.
std::vector<Port> Net::usable() {
    std::vector<Port> found;
    for (Port p : ports()) {
        if (p.device->is_fatal()) continue;
        if (p.addresses_at != p.device->new_addresses() && !p.look_up(wish_)) continue;
        if (p.gid.fabric() == fabric()) found.push_back(std::move(p));
    }
    return found;
}

std::unique_ptr<net::NetEndpoint> Net::open(Rank self, Rank peer, const net::LinkMemory& memory,
                                            std::chrono::milliseconds silence_limit) {
    const std::vector<Port> all = usable();
    if (all.empty()) fail(tuttiSystemError, "no port can be used any more: adapters have failed, or lost addresses");
    return std::make_unique<Rails>(all, wish_.queue_pairs, self, peer, memory, silence_limit);
}

/// Uses the active ports that are not marked in `broken`. If all active ones are, it clears the marks and uses them
/// all: the failures may have been at the peer's ports.
std::unique_ptr<net::NetEndpoint> Net::detour(Rank self, Rank peer, const net::LinkMemory& memory,
                                              std::chrono::milliseconds silence_limit, std::uint64_t& broken) {
    std::vector<Port> active, good;
    for (const Port& p : usable()) {
        if (p.device->query(p.number).state != IBV_PORT_ACTIVE) continue;
        active.push_back(p);
        if ((broken >> p.rail & 1) == 0) good.push_back(p);
    }
    if (active.empty()) return nullptr;
    if (good.empty()) broken = 0;
    return std::make_unique<Rails>(good.empty() ? active : good, wish_.queue_pairs, self, peer, memory, silence_limit);
}

void Net::use(const Library* (*load)()) {
    const std::lock_guard lock(mutex_);
    load_ = load;
    ports_.reset();
}

namespace {

Wish wish_here() {
    const Config& c = config();
    const auto byte = [](int value) { return static_cast<std::uint8_t>(value); };
    return {.adapters = c.ib_hca,
            .gid_index = c.ib_gid_index,
            .none = !c.ib,
            .pkey_index = c.ib_pkey_index,
            .delivery = {byte(c.ib_traffic_class), byte(c.ib_service_level), byte(std::max(c.ib_timeout, 0)),
                         byte(c.ib_retry_count)},
            .queue_pairs = c.ib_qps_per_connection,
            .relaxed_ordering = c.ib_relaxed_ordering};
}

}  // namespace

Net& net_here() {
    static Net* const net = new Net(load_library, wish_here());
    return *net;
}

}  // namespace tutti::verbs
