// Endpoints move frames between two ranks that share no memory: the sockets of every link (tcp/stream), and one
// endpoint of a faster network where that joins the hosts. Bodies go from and to the memory of FIFOs.
#pragma once

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

/// Takes the frames that an endpoint receives.
class Recipient {
  public:
    virtual ~Recipient() = default;
    /// A frame arrives. header: one that fits(). Returns where its body goes; nullptr if the frame breaks the
    /// protocol, and `why` then says how.
    virtual std::byte* begin(const Header& header, const char*& why) = 0;
    /// The frame's body has been written there.
    virtual void finish(const Header& header) = 0;
};

/// One connection. Its link owns it. Used under the engine's lock; no call waits.
class Endpoint {
  public:
    virtual ~Endpoint() = default;

    /// Whether another frame can be queued.
    virtual bool has_room() const = 0;
    /// Queues a frame. body: header.bytes bytes. They must stay unchanged until the peer has acknowledged the frame.
    /// copied: the endpoint copies them, so they may change at once.
    virtual void queue(const Header& header, const std::byte* body, bool copied = false) = 0;
    /// Whether all that was queued has been handed to the kernel or the adapter.
    virtual bool is_empty() const = 0;

    /// Sends and receives what is possible. True if anything moved. Sets trouble() if the connection fails.
    virtual bool send() = 0;
    virtual bool receive(Recipient& to) = 0;

    /// Why it can't go on; empty while it can.
    const std::string& trouble() const { return trouble_; }
    /// Whether another endpoint would fail as well.
    bool is_hopeless() const { return hopeless_; }
    /// The two ends, for error texts: "10.0.0.1:4242 to 10.0.0.2:29500".
    virtual std::string describe() const = 0;

  protected:
    /// Sets trouble(), and returns false. The first reason stays.
    bool lose(std::string why) {
        if (trouble_.empty()) trouble_ = std::move(why);
        return false;
    }
    bool lose_for_good(std::string why) { return hopeless_ = trouble_.empty(), lose(std::move(why)); }

  private:
    std::string trouble_;
    bool hopeless_ = false;
};

/// The memory that an endpoint sends from and receives into. It does not move, and outlives the endpoint.
struct LinkMemory {
    const Arena& mine;                    // bodies are sent from here
    const Arena& inbox;                   // bodies are received into this (Recipient::begin points there)
    const DeviceSlots* device = nullptr;  // slots that lie on a GPU instead; only for a Net without obstacle()
    const Whereabouts* here = nullptr;    // this rank's; only while a Net opens an endpoint; nullptr: unknown
};

/// An endpoint of a network beside TCP.
class NetEndpoint : public Endpoint {
  public:
    /// What the other end needs to reach this one; at most offer_bytes.
    virtual std::vector<std::byte> offer() = 0;
    /// Takes the other end's offer, whose bytes can't be trusted. It connects from now on, in send() and receive().
    virtual void meet(std::span<const std::byte> offer) = 0;

    /// Whether bodies can be sent from [memory, memory + bytes), which is no slot. The first call for some memory may
    /// take a while, to register it.
    virtual bool knows([[maybe_unused]] const std::byte* memory, [[maybe_unused]] std::size_t bytes) { return false; }
    /// Names registered memory for the other end's put() of messages of that channel. No bytes: the peer can't write
    /// there.
    virtual RemoteMemory expose([[maybe_unused]] int channel, [[maybe_unused]] std::byte* memory,
                                [[maybe_unused]] std::size_t bytes) {
        return {};
    }
    /// Queues a message whose body lies in `slot` or in memory that it knows(). to: memory that the other end has
    /// exposed; nullptr: the body goes to the same slot of the other end's inbox.
    virtual void put(const Header&, [[maybe_unused]] const std::byte* body, [[maybe_unused]] const std::byte* slot,
                     [[maybe_unused]] const RemoteMemory* to) {}
    /// The adapter by which the peer's messages of that channel arrive, as in Registered; nullptr: the peer can't write
    /// to registered memory.
    virtual const void* adapter_of([[maybe_unused]] int channel) const { return nullptr; }
    /// How many ways messages of one_sided_channel can go, side by side: Header::row says by which one goes. Way 0 is
    /// the channel's own, for all that is not put on another one.
    virtual unsigned ways() const { return 1; }
    /// As adapter_of(), by that way.
    virtual const void* adapter_by([[maybe_unused]] unsigned way) const { return adapter_of(one_sided_channel); }
    /// Queues a message whose body (header.bytes bytes) travels with its header, and is copied. It arrives after
    /// `data`, which go to memory that the other end has named. data: in a slot of the channel, or in memory that it
    /// knows().
    virtual void write_to(const Header&, [[maybe_unused]] const std::byte* body,
                          [[maybe_unused]] std::span<const std::byte> data, [[maybe_unused]] const RemoteMemory& to) {}

    /// Whether read_from() can read to [memory, memory + bytes), which is no slot. The first call for some memory may
    /// take a while, to register it.
    virtual bool reads_to([[maybe_unused]] int channel, [[maybe_unused]] const std::byte* memory,
                          [[maybe_unused]] std::size_t bytes) {
        return false;
    }
    /// Reads memory that the other end has named, after what was written to it before. One at a time. to: in the slots
    /// that the channel sends from, or where it reads_to().
    virtual void read_from([[maybe_unused]] int channel, [[maybe_unused]] std::span<std::byte> to,
                           [[maybe_unused]] const RemoteMemory& from) {}
    /// True once, when that has arrived.
    virtual bool take_read([[maybe_unused]] int channel) { return false; }

    /// It is about to be destroyed, and need not wait until what it has sent arrives.
    virtual void abandon() {}
    /// After trouble: the ports that should not be tried again at once, a bit for each.
    virtual std::uint64_t broken() const { return 0; }

    /// Descriptors of which one is readable when there is something to do. Empty: there are none, and a timer serves
    /// a rank that sleeps, or that has windows.
    virtual std::vector<int> fds() const { return {}; }
    /// Call it before the rank sleeps: what arrives from now on makes one of fds() readable. False if something has
    /// arrived already, or it has trouble.
    virtual bool arm() { return true; }
};

}  // namespace tutti::net
