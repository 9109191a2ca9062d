// Places that both ends of a connection write to in turn. A message in a slot costs the fabric two transfers for each
// of its cache lines: the reader fetches what was written, and later the writer fetches back what was read. If the
// reader answers in the place that it has just read, it has these lines already, and the writer gets them back with the
// answer in them. All-gather of 256 KiB between two far cores takes 0.8 of the time (docs/performance-cpu.md).
//
// Each end owns depth places at first. Its message number n goes where the peer's number n - depth has lain, if it has
// read that one; if not, as where all messages go one way, into a slot as ever. So nobody ever waits for a place: who
// may write to it follows from the two numbers, which both ends count alike.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// Of one connection, for its Sender and its Receiver, each of which one thread uses at a time.
class Exchange {
  public:
    static constexpr std::uint32_t depth = 4;

    /// mine, theirs: memory of bytes_for() bytes, which both ends see; the peer names them the other way round. place:
    /// the longest message, in bytes.
    Exchange(std::byte* mine, std::byte* theirs, std::size_t place) : sides_{mine, theirs}, place_(place) {}
    static constexpr std::size_t stride_for(std::size_t place) {
        return place + 4096 + 64;  // so that places do not compete for the same cache sets
    }
    static constexpr std::size_t bytes_for(std::size_t place) { return depth * stride_for(place); }

    /// Whether this rank's next message may have a place here.
    bool takes(std::size_t bytes) const {
        const auto ahead = static_cast<std::int32_t>(sent_ - received_.load(std::memory_order_acquire));
        return bytes <= place_ && ahead < static_cast<std::int32_t>(depth);
    }
    /// Where it lies.
    std::byte* next() const { return at(sent_, 0); }
    void count_sent() { ++sent_; }

    bool holds(std::size_t bytes) const { return bytes <= place_; }
    /// Where the peer's next message here lies.
    const std::byte* arriving() const { return at(received_.load(std::memory_order_relaxed), 1); }
    /// It has been read.
    void count_received() { received_.store(received_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

  private:
    static_assert((depth & (depth - 1)) == 0, "numbers wrap around at 2^32");
    std::byte* at(std::uint32_t message, std::uint32_t from) const {
        return sides_[(message / depth + from) % 2] + message % depth * stride_for(place_);
    }

    std::byte* sides_[2];
    std::size_t place_;
    std::uint32_t sent_ = 0;
    std::atomic<std::uint32_t> received_{0};
};

}  // namespace tutti
