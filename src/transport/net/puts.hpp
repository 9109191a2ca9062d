// One-sided operations over networks. Puts and signals are messages of a channel of their own, which no program reads:
// the reader's engine deals with each as it arrives, whatever its rank is doing, writes to the window and raises the
// signal. So they keep their order, credits keep a writer from running ahead, and an endpoint that fails takes none of
// them with it. A put that is too late is refused: the writer hears of it by its link's first socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/arena.hpp"

namespace tutti::net {

/// What a message of one_sided_channel begins with; the data follow.
struct PutHeader {
    std::uint64_t offset;  // of the data, in the reader's part of the window
    std::uint32_t gate;    // of the window, and what must stand there
    std::uint32_t key;     // 0: no data
    std::uint8_t signal;
    std::uint8_t raises;  // 1: the signal, when the data are there; 0: more data follow
    std::uint8_t zero[6];
};
/// In a slot the data begin in a cache line of their own.
inline constexpr std::size_t put_header_in_slot = 64;
static_assert(sizeof(PutHeader) == 24 && sizeof(PutHeader) <= inline_bytes);

/// Of the window that a put was for.
struct Refusal {
    std::uint32_t gate, key;
};

/// The reader's end, of one link. Part of it, and like that the engine's, under its lock.
class Puts {
  public:
    /// mine: this rank's.
    Puts(Arena& mine, Rank peer) : mine_(mine), peer_(peer) {}

    /// Deals with the message that has arrived.
    void take(const Wire& in);
    /// One could not be right: the peer does not keep to the protocol.
    bool broken() const { return broken_; }

    /// The peer is to be told of the put that was refused, and of none that follow, since its communicator fails.
    bool due() const { return refusal_.has_value() && !told_; }
    const Refusal& tell() { return told_ = true, *refusal_; }
    /// What was told may not have come.
    void forget() { told_ = false; }

    /// Where what the peer has refused is to be written, and has been.
    std::byte* place() { return reinterpret_cast<std::byte*>(&arriving_); }
    void arrived() { refused_ = true; }
    /// The peer has refused a put of this rank's.
    bool refused() const { return refused_; }

  private:
    bool deal_with(const Cell& cell);

    Arena& mine_;
    const Rank peer_;
    std::optional<Receiver> messages_;
    std::optional<Refusal> refusal_;
    Refusal arriving_{};
    bool broken_ = false, told_ = false, refused_ = false, in_on_device_ = false;
};

}  // namespace tutti::net
