// The interface that every transport implements, and all that the other rooms know of one.
//
// A transport answers "can I reach this peer, and how fast" and makes links. A Link joins this rank and one peer: a
// wire in each direction for every channel (see fifo.hpp), and, where the peer can see this rank's memory, references
// to it. To write another transport, read local.cpp, the shortest; tests/transport/conformance_test.cpp runs the same
// contract on all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "transport/arena.hpp"
#include "transport/fifo.hpp"
#include "transport/neighbourhood.hpp"

namespace tutti {

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

    /// A number that changes with all that moves between the two ranks, in either direction, also parts of messages.
    /// The same at every call where the ranks see each other's memory: nothing is ever on its way there.
    virtual std::uint64_t motion() { return 0; }

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
