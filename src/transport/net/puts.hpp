// One-sided operations over networks. Puts, signals and requests of gets are messages of a channel of their own, which
// no program reads: the reader's engine deals with each as it arrives, whatever its rank is doing, writes to the window
// and raises the signal. So they keep their order, credits keep a writer from running ahead, and an endpoint that fails
// takes none of them with it. One that is too late is refused: the writer hears of it by its link's first socket.
//
// What a get asks for goes back by a channel that engines alone write and read, from the window into a slot, and from
// there to where the asking rank wants it. Where that channel is full the request waits, and all that comes behind it:
//
//     who asks                                                  whose window it is
//     AwaitedMemory::expect()
//     one_sided_channel   -- put, put, request, put -->         LentMemory: written; read as far as there is room
//     AwaitedMemory::fill()          <-- answers --             answer_channel
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/arena.hpp"

namespace tutti::net {

/// What a message of one_sided_channel begins with. The data of a put follow; those of a request are the number of
/// bytes that it asks for, a std::uint64_t. Answers are data alone: at least one message, and each but the last fills a
/// slot.
struct PutHeader {
    std::uint64_t offset;  // in the reader's part of the window
    std::uint32_t gate;    // of the window, and what must stand there
    std::uint32_t key;     // 0: no data
    std::uint8_t signal;
    std::uint8_t raises;  // 1: the signal, when the data are there; 0: more data follow
    std::uint8_t asks;    // 1: a request; its signal and raises are 0
    std::uint8_t zero[5];
};
/// In a slot the data begin in a cache line of their own.
inline constexpr std::size_t put_header_in_slot = 64;
static_assert(sizeof(PutHeader) == 24 && sizeof(PutHeader) + sizeof(std::uint64_t) <= inline_bytes);

/// Of the window that a put or a get was for.
struct Refusal {
    std::uint32_t gate, key;
    std::uint32_t asked;  // 1: by a get
};

/// The reader's end, of one link. Part of it, and like that the engine's, under its lock.
class Puts {
  public:
    /// mine: this rank's.
    Puts(Arena& mine, Rank peer) : mine_(mine), peer_(peer) {}

    /// Deals with the message that has arrived, unless a request is before it. out: of answer_channel.
    void take(const Wire& in, const Wire& out);
    /// The peer has put, or asked for something.
    bool is_asked() const { return messages_.has_value(); }
    /// A request waits for room for its answers.
    bool is_answering() const { return request_.has_value(); }
    /// Goes on with what has come, as far as there is room. True if anything moved.
    bool go_on();
    /// An answer has arrived.
    void take_answer(const Wire& in);
    /// A message could not be right: the peer does not keep to the protocol.
    bool broken() const { return broken_; }

    /// The peer is to be told of the put or get that was refused, and of none that follow, since its communicator
    /// fails.
    bool due() const { return refusal_.has_value() && !told_; }
    const Refusal& tell() { return told_ = true, *refusal_; }
    /// What was told may not have come.
    void forget() { told_ = false; }

    /// Where what the peer has refused is to be written, and has been.
    std::byte* place() { return reinterpret_cast<std::byte*>(&arriving_); }
    void arrived() { refused_ = arriving_; }
    /// What the peer has refused of this rank's.
    const std::optional<Refusal>& refused() const { return refused_; }

  private:
    /// The part of it that is not answered yet.
    struct Request {
        PutHeader from;
        std::uint64_t bytes;
    };
    bool deal_with(const Cell& cell);
    bool put(const PutHeader& put, std::span<const std::byte> data);
    bool ask(const PutHeader& request, std::span<const std::byte> data);
    bool answer();
    bool note(LentMemory::Access access, const PutHeader& what);
    bool is_over() const;

    Arena& mine_;
    const Rank peer_;
    Wire in_{}, out_{};
    std::optional<Receiver> messages_, answers_;
    std::optional<Sender> back_;      // answers to the peer
    std::optional<Request> request_;  // under way: its message is the next one that is to be released
    std::optional<Refusal> refusal_, refused_;
    Refusal arriving_{};
    bool broken_ = false, told_ = false;
};

}  // namespace tutti::net
