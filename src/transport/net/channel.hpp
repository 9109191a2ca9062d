// One channel of a link: which messages and credits have been sent to the peer, and which have come from it. Credits
// travel with messages of the same channel. They are sent alone only when many are due, or when nothing else happens.
//
// Messages from or to registered memory need no slots on a network with adapters. A body is sent from where it lies
// (Kind::reference; the credit is the acknowledgement). It is written to the reader's posted receive (Kind::landed),
// which the reader's engine has sent to the writer.
//
// Slots may lie on this rank's GPU (transport/slots.hpp): nothing here reads or writes them, only the endpoint's
// adapter does.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "transport/net/direct_puts.hpp"
#include "transport/net/early.hpp"

namespace tutti::net {

// After how many released messages a credit is sent alone if nothing else goes to the writer. Programs need two slots,
// so at most all but two may wait for a credit.
inline constexpr std::uint32_t due_in_cells = fifo_depth / 2, due_in_slots = slot_depth / 2,
                               least_due = std::min(due_in_cells, due_in_slots);
static_assert(slot_depth - (due_in_slots - 1) >= 2, "see fifo.hpp");

/// Part of its link; used under the engine's lock, or by the one thread that has its Ends::Turn. Counts begin at
/// first_message, and wrap.
struct Channel {
    int number = 0;
    const std::atomic<std::uint32_t>* next_turn = nullptr;  // Cell::turn of the next message of `out` to send
    Wire out{}, in{};                      // what this rank writes, in its arena; what it reads, in the link's inbox
    std::optional<Sender> arrivals;        // writes to `in`; empty until the channel is first used
    std::uint32_t taken = 0;               // messages of `out` that were queued for sending
    std::uint32_t told = 0;                // the last credit that was sent to the peer
    std::uint32_t received = 0;            // messages that have arrived
    std::uint32_t awaited = 0;             // the credit that the peer waits for
    std::uint32_t posted = 0;              // Fifo::posted of `in` when it was last looked at
    std::uint32_t spotted = 0;             // the turn of the last posted receive that was sent to the peer
    bool settle = false;                   // credits that are due are sent at once
    std::size_t lane = 0;                  // the socket that it goes by: see Sockets::of()
    std::array<Spot, fifo_depth> spots{};  // the peer's posted receives for messages of `out`, by message number
    Spot arriving{};                       // the one that is being received
    bool posts_serve = false;              // sockets receive messages where this rank has posted receives
    bool withdrawn = false;                // the rank has given up: its peer is told of no posted receive any more
    bool lands = false;                    // the message that is arriving goes to a posted receive
    DirectPuts* direct = nullptr;          // of one_sided_channel
    Early* early = nullptr;                // of that and answer_channel: messages may overtake each other

    /// Prepares the channel for its first use.
    void open(int number, Wire out, Wire in);
    /// Moves its slots to a GPU, in those directions for which `slots` has some.
    void place(const DeviceSlots& slots);
    /// Whether memory of this rank's user may still be in use: posted receives, messages by reference, and gets that
    /// an adapter reads.
    bool uses_memory() const;

    std::uint32_t released() const { return in.fifo->released.load(std::memory_order_acquire); }
    /// Whether there may be something to send. Called at every look, so it is short.
    bool stirs() const {
        const std::uint32_t owed = in.fifo->released.load(std::memory_order_relaxed) - told;
        return has_message() || (owed != 0 && (settle || awaited != told || owed >= least_due)) ||
               in.fifo->posted.load(std::memory_order_relaxed) != posted;
    }
    bool has_message() const { return next_turn->load(std::memory_order_acquire) == taken + 1; }
    bool owes() const { return released() != told; }
    /// Queues messages, credits and posted receives as far as `endpoint` has room. known: the same endpoint if it is a
    /// NetEndpoint, nullptr for a socket. all: the sockets that long messages may go by if they may overtake each
    /// other. True if it queued anything.
    bool send(Endpoint& endpoint, NetEndpoint* known, std::span<Endpoint* const> all = {});
    /// Whether the peer has not acknowledged all messages that were sent.
    bool under_way() const { return taken != out.fifo->released.load(std::memory_order_relaxed); }
    /// A new endpoint, or new sockets, replace one that failed: sends again what the peer has not got, and its credits.
    /// got: the messages that the peer says it has received. False if that can't be.
    bool resume(std::uint32_t got);
    /// Whether the peer can have released so many messages, in all.
    bool can_have_finished(std::uint32_t credit) const {
        const std::uint32_t before = out.fifo->released.load(std::memory_order_relaxed);
        return credit - before <= taken - before;
    }

    /// A header of that kind, with this channel's credit.
    Header header(What what) const;

    // ---- what arrives: messages, credits and posted receives
    /// Takes the credit that each of these brings. False if the peer can't have released so many messages.
    bool acknowledge(std::uint32_t credit);
    /// As Recipient's. Call them after acknowledge().
    std::byte* begin(const Header& header, const char*& why);
    void finish(const Header& header);

  private:
    void go_to(std::uint32_t message) {
        taken = message;
        next_turn = &out.fifo->cells[message % fifo_depth].turn;
    }
    Header take_message();
    void commit(const Header& header, Kind kind);
    std::byte* begin_early(const Header& header, const char*& why);
    Endpoint* way_of_next(Endpoint& own, std::span<Endpoint* const> all) const;
    void send_message(Endpoint& endpoint, NetEndpoint* known);
    bool send_put(NetEndpoint& endpoint, PutMessage put, std::byte* slot);
    std::size_t unsent_requests() const;
    bool send_request(NetEndpoint& endpoint, const PutMessage& request, std::byte* slot);
    bool send_one_sided(NetEndpoint& endpoint);
    bool send_posted_receives(NetEndpoint& known);
    std::byte* posted_place(std::uint32_t bytes) const;
};

}  // namespace tutti::net
