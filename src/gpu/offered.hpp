// How virtual memory goes to other processes: a descriptor for each of its mappings, which the session passes.
#pragma once

#include <mutex>
#include <span>

#include "bootstrap/session.hpp"
#include "gpu/gpus.hpp"

namespace tutti::gpu {

/// Names mappings that follow each other to ranks of this host. Plain data.
struct Offered {
    std::uint64_t key = 0;  // of a list of their sizes; their descriptors have the keys after that. 0: none
    std::uint64_t segments = 0, bytes = 0;
};

/// Offers mappings to the session's members until withdraw(). Any thread.
class Offer {
  public:
    /// The session must live until withdraw(). Throws tuttiSystemError if no more descriptors are left.
    Offer(Gpus& gpus, int device, Session& session, std::span<const Segment> segments);
    ~Offer() { withdraw(); }
    Offer(const Offer&) = delete;
    const Offered& name() const { return name_; }
    void withdraw() noexcept;

  private:
    void add(const Fd& fd);

    Session& session_;
    Offered name_;
    std::mutex mutex_;           // guards what follows
    std::uint64_t offered_ = 0;  // descriptors
};

/// Maps what the peer offers, `offset` bytes behind the first of these reserved addresses (Gpus::reserve). Throws
/// tuttiTimeout, or tuttiRemoteError if the peer has died or offers something else.
void map_offered(Gpus& gpus, int device, std::byte* first, std::size_t offset, Session& session, Rank peer,
                 const Offered& offered, Deadline deadline);

}  // namespace tutti::gpu
