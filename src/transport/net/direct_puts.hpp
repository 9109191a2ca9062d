// Puts that this rank's adapter writes straight into the peer's window. The message behind such data only says that
// they are there. It goes by the same connection, so it arrives after them:
//
//     data     -- RDMA write ------->  window
//     header   -- one_sided_channel ->  the engine checks the gate, and raises the signal
//
// The peer names a window after the first put into it (WindowKey). A key ends with the window, and with the endpoint.
// Then messages carry their data as they do over every network. Whether a message is written by the adapter is decided
// each time that it is sent, so one that has to be sent again over another endpoint may go the other way.
//
// The adapter's writes overtake puts that the peer's engine has yet to copy. A put that overlaps one of these waits for
// its credit. Long ones go by several rails, and overtake each other; the messages behind them are taken in order
// (early.hpp). One that overlaps another that is under way goes by the same rail.
//
// The adapter also reads the window for a get that is alone or long, once the peer's engine has copied what was put
// before. It reads straight to where the get wants the data if it knows that memory, else to the slot of the request, a
// slot at a time. The request then asks for the rest. The peer gets a message without content in its place.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <utility>

#include "transport/net/endpoint.hpp"
#include "transport/net/puts.hpp"

namespace tutti::net {

/// This rank's puts to one peer, and gets from it. Part of the link (Ends); used under the engine's lock.
class DirectPuts {
  public:
    DirectPuts(AwaitedMemory& awaited, Rank peer) : awaited_(awaited), peer_(peer) {}

    /// Where to receive a window of the peer.
    std::byte* place() { return reinterpret_cast<std::byte*>(&arriving_); }
    /// It has been received there. False if it can't be right.
    bool arrived();
    /// The endpoint has failed.
    void forget() { known_.clear(), reading_ = {}; }

    /// The shortest puts, in bytes, that are spread over several rails or sockets.
    static constexpr std::size_t least_spread = 64 * 1024;

    /// Whether the peer lets adapters write to that window.
    bool knows(std::uint32_t gate, std::uint32_t key) const { return find(gate, key, 0) != nullptr; }
    enum class Way { by_engine, by_adapter, later };
    struct Route {
        Way way = Way::by_engine;
        unsigned rail = 0;     // of NetEndpoint::ways()
        RemoteMemory to = {};  // by_adapter: where the data go
    };
    /// How message `number` is to be sent. credits: how many messages the peer has released. ways: how many there are.
    Route route_of(const PutMessage& put, std::uint32_t number, std::uint32_t credits, unsigned ways) const;
    /// Message `number` is sent.
    void sent(const PutMessage& put, std::uint32_t number, const Route& route);

    /// Whether the adapter is to read what request `number` asks for. unsent: how many requests are there that were not
    /// sent, with this one. from: what is to be read; set if so.
    bool reads(const PutMessage& request, std::uint32_t number, std::uint32_t credits, std::size_t unsent,
               RemoteMemory& from) const;
    /// Chooses the next piece, shortens `from` to it, and returns where the adapter is to read it to.
    std::span<std::byte> begin_to_read(NetEndpoint& endpoint, int channel, std::byte* slot, RemoteMemory& from);
    /// Whether the adapter is reading for a request; whether straight to the memory of a get.
    bool is_reading() const { return !reading_.empty(); }
    bool reads_in_place() const { return is_reading() && in_place_; }
    /// The piece has arrived. Shortens the request by it. False if that was all of it.
    bool has_read(Cell& request);

  private:
    const WindowKey* find(std::uint32_t gate, std::uint32_t key, unsigned rail) const;
    std::optional<RemoteMemory> place_of(const PutHeader& put, std::uint64_t bytes, unsigned rail) const;

    /// What a message writes: by the peer's engine, to bytes of a window, or by the adapter, to addresses.
    struct Sent {
        Way way = Way::by_engine;
        unsigned rail = 0;
        std::uint32_t gate = 0;
        std::uint64_t begin = 0, end = 0;  // empty: nothing
        bool overlaps(std::uint64_t from, std::uint64_t to) const { return begin < to && from < end; }
    };
    AwaitedMemory& awaited_;
    const Rank peer_;
    std::span<std::byte> reading_;              // where the adapter reads a piece to; empty: it reads nothing
    bool in_place_ = false;                     // that is memory of a get, and no slot
    std::map<std::pair<std::uint32_t, unsigned>, WindowKey> known_;  // by gate and rail
    std::array<Sent, fifo_depth> last_{};       // by message number; of interest until the credit has come
    WindowKey arriving_{};
};

/// A put in `cell` as the origin keeps it: as read_put(), and also one whose data lie in registered memory.
std::optional<PutMessage> read_own_put(const Cell& cell, const std::byte* slot);
/// Names such data in `cell`: a message by reference, which takes cell.bytes bytes in its slot.
void refer_to(Cell& cell, const PutHeader& header, const std::byte* data);
/// Copies such a message to its slot, as read_put() expects it there.
void copy_to_slot(const PutMessage& put, std::byte* slot);

}  // namespace tutti::net
