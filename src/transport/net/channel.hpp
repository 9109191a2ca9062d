// One channel of a link: which messages and credits have gone to the peer, and which have come from it. Credits travel
// with messages of the same channel; alone only when many are due, or when nothing else happens.
//
// Memory that both adapters of a better network know needs no slots: a body is sent from where it lies
// (Kind::reference; the credit is the acknowledgement), and written to where the reader has posted it (Kind::landed),
// of which the engine tells the writer.
//
// Slots may lie on this rank's GPU (transport/slots.hpp): nothing here looks into them, their endpoint's adapter does.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "transport/net/endpoint.hpp"

namespace tutti::net {

// How many messages the reader may have finished with before it says so, if nothing else goes there. The least depth
// that programs need must remain.
inline constexpr std::uint32_t due_in_cells = fifo_depth / 2, due_in_slots = slot_depth / 2,
                               least_due = std::min(due_in_cells, due_in_slots);
static_assert(slot_depth - (due_in_slots - 1) >= 2, "see fifo.hpp");

/// Part of its link, and like that the engine's, under its lock. Counts go from first_message on, and wrap.
struct Channel {
    int number = 0;
    const std::atomic<std::uint32_t>* next_turn = nullptr;  // of the cell of `out` that is to be sent next
    Wire out{}, in{};
    std::optional<Sender> arrivals;        // writes to `in`; none: nobody has used the channel yet
    std::uint32_t taken = 0;               // of `out`, to be sent
    std::uint32_t told = 0;                // credits that the peer has
    std::uint32_t received = 0;            // messages
    std::uint32_t awaited = 0;             // the credit that the peer waits for
    std::uint32_t posted = 0;              // Fifo::posted of `in` that was looked at
    std::uint32_t spotted = 0;             // the turn of the last posted receive that the peer was told of
    bool settle = false;                   // credits that are due go out at once
    std::size_t lane = 0;                  // which of the sockets it goes by: see Sockets::of()
    std::array<Spot, fifo_depth> spots{};  // where the peer wants messages of `out`, by their number
    Spot arriving{};                       // one of them

    /// Its first use.
    void open(int number, Wire out, Wire in);
    /// Its slots, where those are on a GPU.
    void place(const DeviceSlots& slots);

    std::uint32_t released() const { return in.fifo->released.load(std::memory_order_acquire); }
    /// Whether there may be something to send. Asked at every look, so it is short.
    bool stirs() const {
        const std::uint32_t owed = in.fifo->released.load(std::memory_order_relaxed) - told;
        return has_message() || (owed != 0 && (settle || awaited != told || owed >= least_due)) ||
               in.fifo->posted.load(std::memory_order_relaxed) != posted;
    }
    bool has_message() const { return next_turn->load(std::memory_order_acquire) == taken + 1; }
    bool owes() const { return released() != told; }
    /// Sends what there is room for by `endpoint`. known: the same, if it knows memory; else nullptr.
    bool send(Endpoint& endpoint, NetEndpoint* known);
    /// Whether the peer may not have got all messages that were sent.
    bool under_way() const { return taken != out.fifo->released.load(std::memory_order_relaxed); }
    /// Another endpoint, or other sockets, take the place of one that has failed: what the peer has not got is sent
    /// again, and all credits. False if it can't have got what it says.
    bool resume(std::uint32_t got);
    /// Whether the peer can have finished with so many messages.
    bool can_have_finished(std::uint32_t credit) const {
        const std::uint32_t before = out.fifo->released.load(std::memory_order_relaxed);
        return credit - before <= taken - before;
    }

    Header header(What what) const;

    // ---- what arrives: messages, credits and posted receives
    /// All of these bring a credit. False if there can't be so many.
    bool acknowledge(std::uint32_t credit);
    /// As Recipient's, after acknowledge().
    std::byte* begin(const Header& header, const char*& why);
    void finish(const Header& header);

  private:
    void go_to(std::uint32_t message) {
        taken = message;
        next_turn = &out.fifo->cells[message % fifo_depth].turn;
    }
    void send_message(Endpoint& endpoint, NetEndpoint* known);
    bool send_posted_receives(NetEndpoint& known);
};

}  // namespace tutti::net
