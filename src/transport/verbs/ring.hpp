// Frames of one connection: a ring that the peer's adapter writes, and as many that are to be sent. Rings are never
// full: of each channel there are at most fifo_depth messages that the peer has not released, and at most as many
// credits, each of which tells of a message that the peer has not written anew. So there is no flow control.
#pragma once

#include "transport/net/header.hpp"
#include "transport/verbs/device.hpp"

namespace tutti::verbs {

/// What travels in rings.
struct Frame {
    net::Header header;
    std::uint64_t place;  // where a body that is not in here was written: in a slot, in bytes from the reader's first
                          // one; landed, its address
    std::byte body[inline_bytes];
};
static_assert(sizeof(Frame) == 104);

inline constexpr unsigned ring_frames = 512;
inline constexpr std::size_t ring_stride = 128;
static_assert(sizeof(Frame) <= ring_stride && ring_frames >= 2 * channels_per_link * fifo_depth + 2 * 64);

class Ring {
  public:
    /// Throws tuttiSystemError.
    explicit Ring(const Device& device)
        : memory_(Mapping::anonymous(2 * bytes)),
          in_region_(device.enlist(memory_.base(), bytes, Access::remote_writes)),
          out_region_(device.enlist(memory_.base() + bytes, bytes, Access::local_reads)) {}

    /// The frames of that number: one that arrives, one to be sent.
    const std::byte* in(std::uint32_t number) const { return memory_.base() + offset(number); }
    Frame& out(std::uint32_t number) const {
        return *reinterpret_cast<Frame*>(memory_.base() + bytes + offset(number));
    }
    static std::size_t offset(std::uint32_t number) { return number % ring_frames * ring_stride; }
    std::uint32_t in_key() const { return in_region_->rkey; }
    std::uint32_t out_key() const { return out_region_->lkey; }

  private:
    static constexpr std::size_t bytes = ring_frames * ring_stride;

    Mapping memory_;
    Owned<ibv_mr> in_region_, out_region_;
};

}  // namespace tutti::verbs
