// What a rank knows before it makes its links: every rank's endpoint info, and what of its own the links share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/similar_rows.hpp"
#include "base/types.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/session.hpp"
#include "transport/arena.hpp"
#include "transport/engine.hpp"
#include "transport/slots.hpp"
#include "transport/whereabouts.hpp"

namespace tutti {

/// Most networks beside TCP.
inline constexpr std::size_t most_nets = 4;

/// A rank's endpoint info: every rank sends it to all others before they connect.
struct EndpointInfo {
    std::uint64_t host;       // host_id()
    std::uint64_t process;    // process_id()
    std::uint64_t arena_key;  // Arena::key()
    std::int32_t pid;
    std::int32_t arena_descriptor;  // in that process; see arena_of()
    std::array<bootstrap::Address, most_rails> addresses =
        {};                                             // where it listens for data connections; unused ones are last
    std::array<std::uint64_t, most_nets> fabrics = {};  // fabrics_here(); only of ranks with an address

    bool has_address() const { return static_cast<bool>(addresses.front()); }
};

/// The fabric that this machine is on (net::Net::fabric()), for each network beside TCP. only: the name of the only
/// transport that may be used, or empty. 0 if this machine is on none, or the network may not be used.
std::array<std::uint64_t, most_nets> fabrics_here(std::string_view only);

/// What a rank makes its links from. Part of the communicator.
struct Neighbourhood {
    std::shared_ptr<Session> session;
    std::shared_ptr<Arena> arena;         // this rank's
    SimilarRows<EndpointInfo> infos;      // of all ranks
    std::shared_ptr<Engine> engine = {};  // this rank's; nullptr if no link needs one
    /// The ranks that connect to this one's engine: the lower ranks whose link with this one needs it. Its ports close
    /// if there are none. nullopt if they are not known.
    std::optional<std::set<Rank>> callers = {};
    /// Ranks on GPUs: makes slots for one link in the GPU's memory, which a network's adapter can use. The result is
    /// nullptr, or has only one direction, if that is not possible; `why` then says why.
    std::function<std::unique_ptr<DeviceSlots>(std::string& why)> device_slots = {};
    Whereabouts here = {};
    int sockets = 2;  // connections between two ranks
    Rank self() const { return session->rank(); }
};

/// The arena of a rank in another process of this host: mapped through /proc, or, where that is not allowed, through
/// the session. Throws as Session::fetch() does.
std::shared_ptr<Arena> arena_of(const Neighbourhood& from, Rank peer, Deadline deadline);

}  // namespace tutti
