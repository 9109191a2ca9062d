#include "transport/verbs/net.hpp"

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "transport/verbs/carrier.hpp"

namespace tutti::verbs {

/// Looked for once; and anew in a fork, where adapters that were open don't work, and must not be closed under the
/// parent.
const std::vector<Port>& Net::ports() {
    const std::lock_guard lock(mutex_);
    if (ports_ && process_ == process_id()) return *ports_;
    if (ports_) new std::vector<Port>(std::move(*ports_));
    process_ = process_id();
    std::vector<Port> found;
    try {
        if (wish_.none)
            why_ = "NCCL_IB_DISABLE forbids it";
        else
            found = find_ports(load_(), wish_, why_);
    } catch (const Error& error) {
        if (error.code() != tuttiSystemError) throw;
        why_ = error.what();
    }
    for (const Port& p : found)
        log(Level::info, "verbs: %s, address %d: %s", p.text().c_str(), p.gid.index, p.gid.text().c_str());
    if (found.empty()) log(Level::info, "verbs: %s", why_.c_str());
    return ports_.emplace(std::move(found));
}

std::uint64_t Net::fabric() {
    return ports().empty() ? 0 : ports()[0].gid.fabric();
}

std::string Net::absence() {
    return ports().empty() ? why_ : "";
}

std::unique_ptr<net::NetCarrier> Net::open(Rank self, Rank peer, const Arena& mine, const Arena& inbox,
                                           std::chrono::milliseconds patience) {
    // Both ends count alike, so that where ports with equal numbers share a rail they stay on it.
    const std::vector<Port>& all = ports();
    TUTTI_ASSERT(!all.empty());
    return std::make_unique<Carrier>(all[static_cast<std::size_t>(self + peer) % all.size()], peer, mine, inbox,
                                     patience);
}

/// By the ports that are active now, in turn: it may be the peer's that has failed.
std::unique_ptr<net::NetCarrier> Net::detour(Rank self, Rank peer, const Arena& mine, const Arena& inbox,
                                             std::chrono::milliseconds patience, unsigned attempt) {
    std::vector<Port> active;
    for (const Port& p : ports())
        if (p.device->query(p.number).state == IBV_PORT_ACTIVE) active.push_back(p);
    if (active.empty()) fail(tuttiSystemError, "no other port is active");
    const std::size_t turn = static_cast<std::size_t>(self + peer) + attempt;
    return std::make_unique<Carrier>(active[turn % active.size()], peer, mine, inbox, patience);
}

Net& net_here() {
    static Net* const net = new Net(load_library, {config().ib_hca, config().ib_gid_index, !config().ib});
    return *net;
}

}  // namespace tutti::verbs
