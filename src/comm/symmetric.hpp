// Windows in which all ranks have promised to keep the buffers of their collectives (TUTTI_WIN_COLL_SYMMETRIC), on
// GPUs. They tell a rank, before a call, what it can't know otherwise: that kernels can reach the other ranks' buffers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "plan/one_sided.hpp"
#include "plan/operation.hpp"

namespace tutti {

/// Owned by a communicator's Windows; used inside the ticket lock. All ranks add the same windows in the same order.
class SymmetricWindows {
  public:
    explicit SymmetricWindows(int ranks) : ranks_(ranks) {}

    /// mine: this rank's part. The window must live until it is removed.
    void add(const Window& window, std::span<const std::byte> mine);
    void remove(const Window& window);

    /// Whether the operation's buffers lie in such windows. If so, those of all ranks do.
    bool hold(const Operation& operation) const;

  private:
    struct One {
        const Window* window;
        std::span<const std::byte> mine;
    };
    bool any_holds(const void* buffer, std::size_t bytes) const;

    const int ranks_;
    std::vector<One> all_;
};

}  // namespace tutti
