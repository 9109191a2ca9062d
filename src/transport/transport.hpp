// The interface that every transport implements, and all that the other rooms know of one.
//
// A transport answers "can I reach this peer, and how fast" and makes links. A Link joins this rank and one peer: a
// wire in each direction for every channel (see fifo.hpp), and, where the peer can see this rank's memory, references
// to it. To write another transport, read local.cpp, the shortest; tests/transport/conformance_test.cpp runs the same
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
#include "base/similar_rows.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/session.hpp"
#include "transport/arena.hpp"
#include "transport/fifo.hpp"
#include "transport/slots.hpp"
#include "transport/whereabouts.hpp"

namespace tutti {

/// Most networks beside TCP.
inline constexpr std::size_t most_nets = 4;

/// Most interfaces that a rank listens on.
inline constexpr std::size_t most_rails = 4;

/// A rank's endpoint info: every rank sends it to all others before they connect.
struct EndpointInfo {
    std::uint64_t host;       // host_id()
    std::uint64_t process;    // process_id()
    std::uint64_t arena_key;  // Arena::key(); peers find the arena in their process or fetch it through the session
    std::int32_t pid;
    std::int32_t version;  // TUTTI_VERSION_CODE
    std::array<bootstrap::Address, most_rails> addresses =
        {};                                             // where it listens for data connections; unused ones are last
    std::array<std::uint64_t, most_nets> fabrics = {};  // fabrics_here(); only of ranks with an address

    bool has_address() const { return static_cast<bool>(addresses.front()); }
};

struct Neighbourhood;

/// Moves the messages of links over networks, where the two ends share no memory. A thread of the rank drives it by
/// poll() while it waits; otherwise it goes on in the background. One for each rank, which its Neighbourhood and links
/// share. One thread at a time, except where a function says otherwise.
class Engine {
  public:
    virtual ~Engine() = default;

    /// Runs part(0) to part(count - 1), each once, on the calling thread and on idle ones, several at once. Returns
    /// when all have returned. Throws what one of them threw.
    using Spread = std::function<void(std::size_t count, const std::function<void(std::size_t)>& part)>;
    /// Lets poll() divide its work among threads. Call it before start().
    virtual void spread_by(Spread spread) = 0;

    /// Where it listens, for this rank's endpoint info. It listens from its construction, and accepts after start().
    virtual std::array<bootstrap::Address, most_rails> addresses() const = 0;
    /// timeout: of operations. A host that is silent for half of it, or for config().silence_ms, is given up.
    virtual void start(const Neighbourhood& from, std::chrono::milliseconds timeout) = 0;

    /// Moves what can be moved without waiting. True if anything moved. Throws tuttiRemoteError that names rank, host
    /// and addresses once a peer can't be reached any more.
    virtual bool poll() = 0;

    /// Whether something that this rank sent is still in its process, not yet handed to the kernel or the adapter.
    virtual bool pending() = 0;

    /// The caller stops polling. What it has sent still goes out. asleep: it is about to sleep, and must be woken when
    /// something arrives. True if anything moved meanwhile.
    virtual bool rest(bool asleep) = 0;

    /// Kernels begin, or cease, to use the FIFOs of its links. Kernels can't ring, and no thread of the rank polls for
    /// them, so the engine polls by itself meanwhile. Called in pairs, from any thread.
    virtual void serve(bool begins) = 0;
    /// The same where the stream does not say when kernels end: kernels were launched, and the engine polls until the
    /// function that ask() was given returns false.
    virtual void launched() = 0;
    /// run: whether launched kernels still run. Called on the engine's threads, one at a time; must not wait. nullptr:
    /// it is not called any more.
    virtual void ask(std::function<bool()> run) = 0;
    /// Has `listener` called on the service thread, once, with the error that poll() would throw. nullptr: it is not
    /// called any more.
    virtual void on_loss(std::function<void(const Error&)> listener) = 0;
    /// Lends this rank's part of a window to peers on other hosts: see LentMemory. Where adapters take the memory,
    /// those of peers write it.
    virtual void lend(std::uint32_t gate, std::uint32_t key, std::span<std::byte> memory) = 0;
    /// The rank gives up. When this has returned no peer writes to its user's buffers.
    virtual void withdraw() = 0;
};

/// An engine that listens at these addresses. addresses: at least one, of port 0; those beyond most_rails are ignored.
/// Throws tuttiSystemError.
std::shared_ptr<Engine> open_engine(std::span<const bootstrap::Address> addresses);

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

/// This rank's end of all channels with one peer. Its communicator owns it. One thread at a time, except as share()
/// says.
class Link {
  public:
    virtual ~Link() = default;

    /// The channel's wire to the peer, and the one from the peer. The same at every call; valid while the link lives.
    virtual Wire outlet(int channel) = 0;
    virtual Wire inlet(int channel) = 0;

    /// Messages to all: this rank's wire with the peer as a reader, and the peer's wire with this rank as a reader.
    /// Fails unless Transport::carries_to_all().
    virtual Wire outlet_to_all(int channel);
    virtual Wire inlet_to_all(int channel);

    /// Names this rank's memory [pointer, pointer + size) for the peer. False if the peer can't see it.
    virtual bool refer(const void* pointer, std::size_t size, Reference& out) = 0;

    /// Whether this rank's processor reads what is passed by reference, so that it should still be in the cache.
    virtual bool reads_references() const { return false; }

    /// Whether adapters write puts to that window (its gate and key at the peer) from [pointer, pointer + size).
    virtual bool puts_from([[maybe_unused]] const void* pointer, [[maybe_unused]] std::size_t size,
                           [[maybe_unused]] std::uint32_t gate, [[maybe_unused]] std::uint32_t key) {
        return false;
    }

    /// Where this process sees memory that the peer has named. Valid only within the step that asks. Throws
    /// tuttiRemoteError if it is gone.
    virtual std::byte* see(Reference reference, std::size_t size) = 0;

    /// Lets several threads of this rank call refer() and see() at once. Call it before the first use of the link.
    virtual void share() {}

    /// The peer's page or, over networks, a copy of what the peer has told of it; nullptr if there is neither.
    virtual RankPage* page() = 0;

    /// Where this rank raises signals for the peer; nullptr if it can't see them.
    virtual Signals* signals() { return nullptr; }

    /// Whether something that this rank has sent is not visible to the peer yet.
    virtual bool pending() { return false; }
    /// Whether something that the peer sent before it left may still be on its way here.
    virtual bool arriving() { return false; }

    /// The peer's name and addresses, for error texts; empty if it is on this host.
    virtual std::string describe() { return {}; }
};

/// Wraps a link so that no message goes by reference: for two ranks of which only one is on a GPU.
std::unique_ptr<Link> without_references(std::unique_ptr<Link> link);

/// Which of a peer's memory a rank can see.
enum class Sees { nothing, regions, everything };  // regions: memory that find_region() finds there

/// A way to reach peers. One object of each kind for the process, never destroyed. Any thread.
class Transport {
  public:
    virtual ~Transport() = default;
    /// As users write it in TUTTI_TRANSPORT.
    virtual std::string_view name() const = 0;
    virtual bool reaches(const EndpointInfo& self, const EndpointInfo& peer) const = 0;
    /// Why it does not reach the peer, for an error text.
    virtual std::string why_not(const EndpointInfo& self, const EndpointInfo& peer) const;
    /// What messages cost, for the tuner.
    virtual Line cost() const = 0;
    virtual Sees sees() const = 0;
    virtual bool needs_engine() const { return false; }
    /// Whether readers see the writer's arena, so that one message can serve several of them.
    virtual bool carries_to_all() const { return false; }

    /// Makes this rank's end of the link with peer. Both ranks of a pair call it, in any order; neither waits for the
    /// other's call. Throws on failure and after the deadline.
    virtual std::unique_ptr<Link> connect(const Neighbourhood& from, Rank peer, Deadline deadline) const = 0;
};

/// All transports, the most preferred first.
std::span<const Transport* const> transports();

/// The transport of that name; nullptr if there is none.
const Transport* find_transport(std::string_view name);

/// The first transport that reaches peer. only: the name of the only one allowed, or empty. Throws tuttiInvalidUsage
/// that says why if there is none.
const Transport& choose_transport(const EndpointInfo& self, const EndpointInfo& peer, std::string_view only);

const Transport& local_transport();
const Transport& shm_transport();
/// The transports between hosts, the most preferred first; the last one is tcp.
std::span<const Transport* const> net_transports();

}  // namespace tutti
