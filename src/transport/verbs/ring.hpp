// The frames of one connection: a ring that the peer's adapter writes, and one of equal length to send from. A ring is
// never full, so there is no flow control: each channel has at most fifo_depth messages that their reader has not
// released, and at most as many credits on the way to a writer that has not yet used them for new messages. For each
// such credit, one_sided_channel may have named a window as well.
#pragma once

#include "transport/net/header.hpp"
#include "transport/verbs/device.hpp"

namespace tutti::verbs {

/// An entry of a ring.
struct Frame {
    net::Header header;
    std::uint64_t place;  // where a body that is not in the frame was written. In a slot: bytes from the reader's first
                          // slot; landed: the address
    std::byte body[inline_bytes];
};
static_assert(sizeof(Frame) == 104);

inline constexpr unsigned ring_frames = 512;
inline constexpr std::size_t ring_stride = 128;
static_assert(sizeof(Frame) <= ring_stride && ring_frames >= (2 * channels_per_link + 1) * fifo_depth + 2 * 64);

/// Owned by an Endpoint; used under the engine's lock.
class Ring {
  public:
    /// Allocates both rings and registers them with the adapter. Throws tuttiSystemError.
    explicit Ring(const Device& device)
        : memory_(Mapping::anonymous(2 * bytes)),
          in_region_(device.enlist(memory_.base(), bytes, Access::remote_writes)),
          out_region_(device.enlist(memory_.base() + bytes, bytes, Access::local_reads)) {}

    /// number: counts the connection's frames in that direction, from 0. in: the frame as it arrived. out: to be sent.
    const std::byte* in(std::uint32_t number) const { return memory_.base() + offset(number); }
    Frame& out(std::uint32_t number) const {
        return *reinterpret_cast<Frame*>(memory_.base() + bytes + offset(number));
    }
    static std::size_t offset(std::uint32_t number) { return number % ring_frames * ring_stride; }
    std::uint32_t in_key() const { return in_region_->rkey; }
    std::uint32_t out_key() const { return out_region_->lkey; }

  private:
    static constexpr std::size_t bytes = ring_frames * ring_stride;

    Mapping memory_;  // the ring that the peer writes, then the one to send from
    Owned<ibv_mr> in_region_, out_region_;
};

}  // namespace tutti::verbs
