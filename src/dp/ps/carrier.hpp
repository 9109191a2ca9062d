// Between a worker's GPU and its links, which take what is in the host's memory.
#pragma once

#include "dp/backend.hpp"
#include "dp/memory.hpp"

namespace tutti::dp::ps {

/// Copies between a GPU's memory and pinned host memory, on a stream of its own. One thread at a time.
class Carrier {
  public:
    /// bytes: the most that are carried at once.
    Carrier(int device, const BackendPtr& pinned, std::size_t bytes)
        : gpu_(gpu_backend_beside(device)), room_(pinned, bytes) {}
    std::byte* room() const { return room_.base(); }
    /// Copies to, or from, room() after the work before `after`; complete on return.
    void fetch(const std::byte* from, std::size_t bytes, const Backend::Mark& after) {
        gpu_->follow(after);
        gpu_->copy_now(room(), from, bytes);
    }
    void store(std::byte* to, std::size_t bytes, const Backend::Mark& after) {
        gpu_->follow(after);
        gpu_->copy_now(to, room(), bytes);
    }

  private:
    const BackendPtr gpu_;
    const Block room_;
};

}  // namespace tutti::dp::ps
