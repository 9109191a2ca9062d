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
// its credit.
//
// The adapter also reads the window for a get that is alone or long, once the peer's engine has copied what was put
// before. The data arrive in the slot of the request, a slot at a time, and the request then asks for the rest. The
// peer gets a message without content in its place.
#pragma once

#include <array>
#include <map>
#include <optional>

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
    void forget() { known_.clear(), reading_ = 0; }

    /// Whether the peer lets adapters write to that window.
    bool knows(std::uint32_t gate, std::uint32_t key) const;
    enum class Way { by_engine, by_adapter, later };
    /// How message `number` is to be sent. credits: how many messages the peer has released. to: set if by_adapter.
    Way way_of(const PutMessage& put, std::uint32_t number, std::uint32_t credits, RemoteMemory& to) const;
    /// Message `number` is sent.
    void sent(const PutMessage& put, std::uint32_t number, Way way);

    /// Whether the adapter is to read what request `number` asks for. unsent: how many requests are there that were not
    /// sent, with this one. from: the next piece; set if so.
    bool reads(const PutMessage& request, std::uint32_t number, std::uint32_t credits, std::size_t unsent,
               RemoteMemory& from) const;
    /// How many bytes the adapter is reading for a request; 0: none.
    std::uint32_t reading() const { return reading_; }
    void begin_to_read(std::uint32_t bytes) { reading_ = bytes; }
    /// They have arrived there. Shortens the request by them. False if that was all of it.
    bool has_read(const std::byte* there, Cell& request);

  private:
    const WindowKey* find(const PutHeader& put, std::uint64_t bytes) const;
    bool overtakes(const PutMessage& put, std::uint32_t number, std::uint32_t credits) const;

    /// A message of which the peer's engine copies data.
    struct Copied {
        bool copied = false;
        std::uint32_t gate = 0;
        std::uint64_t begin = 0, end = 0;  // the bytes of the window to which it writes
    };
    AwaitedMemory& awaited_;
    const Rank peer_;
    std::uint32_t reading_ = 0;
    std::map<std::uint32_t, WindowKey> known_;  // by gate
    std::array<Copied, fifo_depth> last_{};     // by message number; of interest until the credit has come
    WindowKey arriving_{};
};

/// A put in `cell` as the origin keeps it: as read_put(), and also one whose data lie in registered memory.
std::optional<PutMessage> read_own_put(const Cell& cell, const std::byte* slot);
/// Names such data in `cell`: a message by reference, which takes cell.bytes bytes in its slot.
void refer_to(Cell& cell, const PutHeader& header, const std::byte* data);
/// Copies such a message to its slot, as read_put() expects it there.
void copy_to_slot(const PutMessage& put, std::byte* slot);

}  // namespace tutti::net
