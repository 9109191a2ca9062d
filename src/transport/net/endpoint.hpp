// What moves frames between two ranks that see nothing of each other's memory: the sockets of every link (tcp/stream),
// and, where a better network joins the hosts, one connection of that. Bodies go from and to the memory of FIFOs.
//
// To add a network, write a Net and its NetEndpoint and list it in nets() (transport.cpp): the engine introduces the
// two ends to each other over the link's first socket, which is authenticated. That socket stays: it carries what is
// rare, and it tells at once when the peer's process ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/types.hpp"
#include "transport/arena.hpp"
#include "transport/net/header.hpp"
#include "transport/slots.hpp"
#include "transport/whereabouts.hpp"

namespace tutti::net {

/// Whom the frames are for.
class Recipient {
  public:
    virtual ~Recipient() = default;
    /// A header that fits. Where its body goes; nullptr if the frame can't be right, `why` then says so.
    virtual std::byte* begin(const Header& header, const char*& why) = 0;
    /// Its body is there.
    virtual void finish(const Header& header) = 0;
};

/// One connection. Used under the engine's lock; no call waits.
class Endpoint {
  public:
    virtual ~Endpoint() = default;

    /// Whether another frame can be queued.
    virtual bool has_room() const = 0;
    /// body: header.bytes bytes that stay as they are until the peer has acknowledged the frame, or that copied says
    /// may go at once.
    virtual void queue(const Header& header, const std::byte* body, bool copied = false) = 0;
    /// Nothing that was queued is in this process' hands any more.
    virtual bool is_empty() const = 0;

    /// Sends and receives what is possible. True if anything moved. Sets trouble().
    virtual bool send() = 0;
    virtual bool receive(Recipient& to) = 0;

    /// Why it can't go on; empty while it can.
    const std::string& trouble() const { return trouble_; }
    /// No other endpoint could.
    bool is_hopeless() const { return hopeless_; }
    /// The two ends, for error texts: "10.0.0.1:4242 to 10.0.0.2:29500".
    virtual std::string describe() const = 0;

  protected:
    /// The first one counts. Always false.
    bool lose(std::string why) {
        if (trouble_.empty()) trouble_ = std::move(why);
        return false;
    }
    bool lose_for_good(std::string why) { return hopeless_ = trouble_.empty(), lose(std::move(why)); }

  private:
    std::string trouble_;
    bool hopeless_ = false;
};

/// What an endpoint works on. It stays where it is, and outlives the endpoint.
struct LinkMemory {
    const Arena& mine;                    // what bodies are sent from
    const Arena& inbox;                   // what they are received into (Recipient::begin points there)
    const DeviceSlots* device = nullptr;  // slots that lie on a GPU instead; only of a Net without obstacle()
    const Whereabouts* here = nullptr;    // this rank's, while a Net opens an endpoint; nullptr: nobody knows
};

/// An endpoint of a network beside TCP.
class NetEndpoint : public Endpoint {
  public:
    /// How the other end reaches this one; at most offer_bytes.
    virtual std::vector<std::byte> offer() = 0;
    /// What the other end has offered; anything may be in there. It connects from now on, in send() and receive().
    virtual void meet(std::span<const std::byte> offer) = 0;

    /// Whether bodies can be sent from [memory, memory + bytes), which is no slot. The first time that may take a
    /// while.
    virtual bool knows([[maybe_unused]] const std::byte* memory, [[maybe_unused]] std::size_t bytes) { return false; }
    /// Names what it knows for the other end's put(), for messages of that channel.
    virtual RemoteMemory expose([[maybe_unused]] int channel, [[maybe_unused]] std::byte* memory,
                                [[maybe_unused]] std::size_t bytes) {
        return {};
    }
    /// Queues a message whose body lies in `slot` or where it knows the memory. It goes to the equal slot of the other
    /// end's inbox, or to what that has exposed. Only for what knows memory.
    virtual void put(const Header&, [[maybe_unused]] const std::byte* body, [[maybe_unused]] const std::byte* slot,
                     [[maybe_unused]] const RemoteMemory* to) {}

    /// Before it is destroyed: what it has sent need not arrive any more.
    virtual void abandon() {}
    /// After trouble: the ports that are not to be tried again at once, as a set of bits.
    virtual std::uint64_t broken() const { return 0; }

    /// One of them is readable when there is something to do. None: there is no way to know, so that a rank that sleeps
    /// is served by a timer.
    virtual std::vector<int> fds() const { return {}; }
    /// Before a rank sleeps: what arrives from now on makes one of fds() readable. False if something is there already.
    virtual bool arm() { return true; }
};

/// A network; one for the process.
class Net {
  public:
    virtual ~Net() = default;
    /// As users name the transport; less than 16 characters.
    virtual std::string_view name() const = 0;
    /// Equal on ranks that it joins; 0: this machine is on none. What that takes is done at the first call.
    virtual std::uint64_t fabric() = 0;
    /// Why fabric() is 0, and what to do.
    virtual std::string absence() = 0;
    /// The cost of messages over it, for the tuner.
    virtual Line cost() const = 0;
    /// Why its adapters can't use slots in a GPU's memory; empty: they can. slots: these become known to them, for as
    /// long as they last; nullptr: it is not about any.
    virtual std::string obstacle(DeviceSlots*) { return "network plugins get messages from host memory"; }
    /// Whether its calls and its endpoints' run what is not Tutti's, and may not return. Then no other thread than the
    /// rank's and one for this alone makes them.
    virtual bool may_hang() const { return false; }
    /// silence limit: how long a peer that has something to acknowledge may stay silent. Throws tuttiSystemError.
    virtual std::unique_ptr<NetEndpoint> open(Rank self, Rank peer, const LinkMemory& memory,
                                              std::chrono::milliseconds silence_limit) = 0;
    /// Another one after some have failed, by other ports if there are any. Both ends begin anew, and what the peer has
    /// not got is queued again. broken: what those have called so; forgotten where nothing else is left. nullptr: no
    /// port is active now. Throws if there is no other way.
    virtual std::unique_ptr<NetEndpoint> detour(Rank, Rank, const LinkMemory&, std::chrono::milliseconds,
                                                [[maybe_unused]] std::uint64_t& broken) {
        fail(tuttiRemoteError, "there is no other way");
    }
};

/// All of them, the most preferred first, whether this machine has them or not.
std::span<Net* const> nets();

}  // namespace tutti::net
