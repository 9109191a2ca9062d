// One-sided operations over networks. Puts, signals and requests of gets are messages of a channel of their own, which
// no program reads. The reader's engine handles each as it arrives, whatever its rank is doing: it writes to the window
// and raises the signal. So they keep their order, credits keep a writer from running ahead, and none is lost with an
// endpoint that fails. A message for a window that was deregistered is refused, of which the writer is told by the
// link's first socket.
//
// The answer to a get goes back by a channel that only engines use: from the window into a slot, and from there to the
// origin's memory. While that channel is full the request waits, and so do all messages behind it:
//
//     origin                                                    target
//     AwaitedMemory::expect()
//     one_sided_channel   -- put, put, request, put -->         LentMemory: written; read as far as there is room
//     AwaitedMemory::fill()          <-- answers --             answer_channel
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/arena.hpp"

namespace tutti::net {

/// The beginning of every message of one_sided_channel. The data of a put follow, or their number of bytes, a
/// std::uint64_t, if an adapter has written them. Behind a request follows the number of bytes that it asks for,
/// likewise. Answers have no header: they are one message or more of data, and each but the last fills a slot.
struct PutHeader {
    std::uint64_t offset;  // in bytes, in the reader's part of the window
    std::uint32_t gate;    // the window's number in RankPage::gates
    std::uint32_t key;     // the key under which the window must be lent; 0: no data
    std::uint8_t signal;   // the number of the signal
    std::uint8_t raises;   // 1: raise the signal after the data are written; 0: more data follow
    std::uint8_t asks;     // 1: a request of a get; signal and raises are 0
    std::uint8_t written;  // 1: the writer's adapter has written the data to the window (net/direct_puts.hpp)
    std::uint8_t zero[4];
};
/// Where the data begin in a slot, in bytes: in a cache line of their own.
inline constexpr std::size_t put_header_in_slot = 64;
static_assert(sizeof(PutHeader) == 24 && sizeof(PutHeader) + sizeof(std::uint64_t) <= inline_bytes);

/// A message of one_sided_channel.
struct PutMessage {
    PutHeader header;
    std::span<const std::byte> data;
};
/// Reads the message in `cell`. slot: where it lies if it is not in the cell. nullopt if it is too short, or of another
/// kind.
std::optional<PutMessage> read_put(const Cell& cell, const std::byte* slot);

/// On the wire: a window of this rank, so that the peer's adapter writes and reads it: `bytes` bytes from `offset` on,
/// at `address`.
struct WindowKey {
    std::uint64_t address, offset, bytes;
    std::uint32_t gate, key;  // as in PutHeader
    std::uint32_t remote_key;
    std::uint32_t way;  // by which the key is good (Endpoint::ways())
};
static_assert(sizeof(WindowKey) == 40 && sizeof(WindowKey) <= inline_bytes);

/// A put or get that was refused: its window, as in PutHeader.
struct Refusal {
    std::uint32_t gate, key;
    std::uint32_t asked;  // 1: it was a get
};

/// The target's side of one link, and the origin's side of answers. Part of the link (Ends); used under the engine's
/// lock.
class Puts {
  public:
    /// mine: this rank's arena.
    Puts(Arena& mine, Rank peer) : mine_(mine), peer_(peer) {}

    /// Handles a message that has arrived, unless an earlier request still waits. in: of one_sided_channel. out: of
    /// answer_channel.
    void take(const Wire& in, const Wire& out);
    /// Whether the peer has ever put or asked for something.
    bool is_asked() const { return messages_.has_value(); }
    /// Whether a request waits for room for its answers.
    bool is_answering() const { return request_.has_value(); }
    /// Handles messages that have arrived, as far as there is room for answers. True if anything moved.
    bool go_on();
    /// Takes the answers that have arrived. in: of answer_channel.
    void take_answers(const Wire& in);
    /// Whether a message has broken the protocol.
    bool broken() const { return broken_; }

    /// Whether the peer has to be told of a refusal, and that refusal. Only the first one is told, since the peer's
    /// communicator fails by it.
    bool due() const { return refusal_.has_value() && !told_; }
    const Refusal& tell() { return told_ = true, *refusal_; }
    /// The connection broke, so the peer may not have got the refusal.
    void forget() { told_ = false; }

    /// The next window to tell the peer of: one that is registered with the adapter, and into which the peer has put by
    /// a slot, or from which it has asked for something. Each is told once for every way, until forget_windows().
    /// adapters: by way.
    std::optional<WindowKey> next_window(std::span<const void* const> adapters);
    bool has_window() const { return !untold_.empty(); }
    /// The endpoint has failed, and so have the keys that the peer knows.
    void forget_windows() { known_.clear(), untold_.clear(), next_way_ = 0; }

    /// Where to receive the peer's refusal.
    std::byte* place() { return reinterpret_cast<std::byte*>(&arriving_); }
    /// It has been received there.
    void arrived() { refused_ = arriving_; }
    /// The put or get of this rank's that the peer has refused.
    const std::optional<Refusal>& refused() const { return refused_; }

  private:
    /// The part of a get that is not answered yet.
    struct Request {
        PutHeader from;
        std::uint64_t bytes;
    };
    bool deal_with(const Cell& cell);
    bool put(const PutHeader& put, std::span<const std::byte> data);
    void note_window(const PutHeader& put);
    bool ask(const PutHeader& request, std::span<const std::byte> data);
    bool answer();
    bool note(LentMemory::Access access, const PutHeader& what);
    bool is_over() const;

    Arena& mine_;
    const Rank peer_;
    Wire in_{}, out_{};
    std::optional<Receiver> messages_, answers_;  // of one_sided_channel, of answer_channel
    std::optional<Sender> back_;                  // answers to the peer
    std::optional<Request> request_;              // being answered; its message is the next one to release
    std::optional<Refusal> refusal_, refused_;    // by this rank; by the peer
    Refusal arriving_{};
    std::map<std::uint32_t, std::uint32_t> known_;                 // windows that the peer was told of: key by gate
    std::vector<std::pair<std::uint32_t, std::uint32_t>> untold_;  // (gate, key)
    std::uint32_t next_way_ = 0;                                   // by which to tell of the last of them
    bool broken_ = false, told_ = false;
};

}  // namespace tutti::net
