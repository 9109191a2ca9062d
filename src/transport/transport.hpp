// The interface that every transport implements, and all that the rest knows of one.
//
// A transport answers "can I reach this peer, and how fast" and makes links. A Link joins this rank and one peer: a
// wire in each direction for every channel (see fifo.hpp), and, where the peer can see this rank's memory, references
// to it. To write another one, read local.cpp, the shortest; tests/transport/conformance_test.cpp runs the same
// contract on all of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os.hpp"
#include "base/result.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/session.hpp"
#include "transport/arena.hpp"
#include "transport/fifo.hpp"
#include "transport/slots.hpp"
#include "transport/whereabouts.hpp"

namespace tutti {

/// How many networks beside TCP there may be.
inline constexpr std::size_t most_nets = 4;

/// How many interfaces a rank listens on.
inline constexpr std::size_t most_rails = 4;

/// What every rank tells all others before they connect.
struct EndpointInfo {
    std::uint64_t host;       // host_id()
    std::uint64_t process;    // process_id()
    std::uint64_t arena_key;  // of its arena, to be found in the process or fetched through the session
    std::int32_t pid;
    std::int32_t version;  // TUTTI_VERSION_CODE
    std::array<bootstrap::Address, most_rails> addresses =
        {};                                             // where its data connections come in, the last ones none
    std::array<std::uint64_t, most_nets> fabrics = {};  // fabrics_here(); for ranks with an address

    bool has_address() const { return static_cast<bool>(addresses.front()); }
};

struct Neighbourhood;

/// What moves the messages of links that do not lie in memory which both ends see. Driven by whoever waits; what is
/// left when nobody does goes on in the background. One for each rank; used by one thread at a time.
class Engine {
  public:
    virtual ~Engine() = default;

    /// Runs part(0) to part(count - 1), each once, on the calling thread and others that have time, several at once;
    /// returns when all have returned. Throws what one of them threw.
    using Spread = std::function<void(std::size_t count, const std::function<void(std::size_t)>& part)>;
    /// Before start(): poll() may spread its work.
    virtual void spread_by(Spread spread) = 0;

    /// For this rank's endpoint info. It listens from the beginning, and lets in from start() on.
    virtual std::array<bootstrap::Address, most_rails> addresses() const = 0;
    /// timeout: of operations; hosts that are silent for half of it, or for config().silence_ms, are given up.
    virtual void start(const Neighbourhood& from, std::chrono::milliseconds timeout) = 0;

    /// Carries what can be carried without waiting; true if anything moved. Throws tuttiRemoteError that names rank,
    /// host and addresses once a peer can't be reached any more.
    virtual bool poll() = 0;

    /// Whether something that was sent is still here, not even in the kernel.
    virtual bool pending() = 0;

    /// The caller stops to poll: what it has sent goes out, and, if it will sleep, whatever arrives wakes it.
    /// True if anything has moved at once.
    virtual bool rest(bool asleep) = 0;

    /// From any thread, in pairs: kernels use the FIFOs of its links from now on, or do so no longer. They can't ring,
    /// and their rank's thread does not wait here, so while any do the engine looks by itself.
    virtual void serve(bool begins) = 0;
    /// The same without a word from the stream: kernels were launched, and the engine looks until run() says that none
    /// of them does any more. run is called on its threads, one at a time, and must not wait; nullptr: never again.
    virtual void launched() = 0;
    virtual void ask(std::function<bool()> run) = 0;
    /// listener is called on the service thread, once, with what poll() would throw then; nullptr: no longer.
    virtual void on_loss(std::function<void(const Error&)> listener) = 0;
    /// The rank has given up. After this no peer writes to buffers of its user.
    virtual void withdraw() = 0;
};

/// addresses: at least one, of port 0; of more than most_rails the first ones. Throws tuttiSystemError.
std::shared_ptr<Engine> open_engine(std::span<const bootstrap::Address> addresses);

/// Of each network beside TCP, the fabric that this machine is on (net::Net::fabric()); 0: none, or not wanted. only:
/// the name of the only transport that may be used, or empty.
std::array<std::uint64_t, most_nets> fabrics_here(std::string_view only);

/// Where a link is made from.
struct Neighbourhood {
    std::shared_ptr<Session> session;
    std::shared_ptr<Arena> arena;         // this rank's
    std::vector<EndpointInfo> infos;      // of all ranks
    std::shared_ptr<Engine> engine = {};  // this rank's; none where all peers are on this host
    /// The ranks that may connect to this one's engine: the lower ones that need theirs for it. Where there are none
    /// its ports close.
    std::optional<std::set<Rank>> callers = {};  // nullopt: not known
    /// Of a rank on a GPU: slots for a link that a network's adapter can use there. nullptr, or only those of one
    /// direction, and why, where it can't be had.
    std::function<std::unique_ptr<DeviceSlots>(std::string& why)> device_slots = {};
    Whereabouts here = {};
    int sockets = 2;  // between two ranks
    Rank self() const { return session->rank(); }
};

class Link {
  public:
    virtual ~Link() = default;

    /// Towards the peer; from the peer. The same wires at every call, valid while the link lives.
    virtual Wire outlet(int channel) = 0;
    virtual Wire inlet(int channel) = 0;

    /// This peer's end of what this rank writes to all; of what the peer writes to all, this rank's. Only of transports
    /// that carry such messages.
    virtual Wire outlet_to_all(int channel);
    virtual Wire inlet_to_all(int channel);

    /// Names this rank's memory [pointer, pointer + size) for the peer. False if the peer can't see it.
    virtual bool refer(const void* pointer, std::size_t size, Reference& out) = 0;

    /// Where this rank sees memory that the peer has named. Throws tuttiRemoteError if it is gone. Valid within the
    /// step that asks.
    virtual std::byte* see(Reference reference, std::size_t size) = 0;

    /// Before the first use of the link: several threads of this rank may call refer() and see() at once.
    virtual void share() {}

    /// The peer's page, or what it has told of it; nullptr if it can't be seen.
    virtual RankPage* page() = 0;

    /// Where this rank raises signals for the peer; nullptr if it can't see them.
    virtual Signals* signals() { return nullptr; }

    /// Whether something that this rank has sent can't be seen by the peer yet, although nobody drives the link.
    virtual bool pending() { return false; }
    /// Whether something that the peer sent before it left may still be on its way here.
    virtual bool arriving() { return false; }

    /// Who and where the peer is, for error texts; empty if it is on this host.
    virtual std::string describe() { return {}; }
};

/// The same link to a rank whose buffers and this one's are of different kinds: neither sees the other's.
std::unique_ptr<Link> without_references(std::unique_ptr<Link> link);

/// What of a peer's memory a rank can reach.
enum class Sees { nothing, regions, everything };  // regions: what find_region() knows

class Transport {
  public:
    virtual ~Transport() = default;
    virtual std::string_view name() const = 0;
    virtual bool reaches(const EndpointInfo& self, const EndpointInfo& peer) const = 0;
    /// Of a peer that it doesn't reach, for an error text.
    virtual std::string why_not(const EndpointInfo& self, const EndpointInfo& peer) const;
    virtual Line cost() const = 0;
    virtual Sees sees() const = 0;
    virtual bool needs_engine() const { return false; }
    /// Readers see the writer's own memory, so that one message may be for all of them.
    virtual bool carries_to_all() const { return false; }

    /// Both ranks of a pair connect, in any order; neither waits for the other's call. Throws on failure and after the
    /// deadline.
    virtual std::unique_ptr<Link> connect(const Neighbourhood& from, Rank peer, Deadline deadline) const = 0;
};

/// All transports, the most preferred first.
std::span<const Transport* const> transports();

/// The transport of that name; nullptr if there is none.
const Transport* find_transport(std::string_view name);

/// The first transport that reaches peer; only is the name of the only one allowed, or empty. Throws tuttiInvalidUsage
/// that lists the names if there is none of that name, or tells that it doesn't reach the peer.
const Transport& choose_transport(const EndpointInfo& self, const EndpointInfo& peer, std::string_view only);

const Transport& local_transport();
const Transport& shm_transport();
/// Those of networks, the most preferred first; the last one is tcp.
std::span<const Transport* const> net_transports();

}  // namespace tutti
