// Windows in which all ranks have promised to have the buffers of their collectives (TUTTI_WIN_COLL_SYMMETRIC), on
// GPUs. So a rank knows of the others' buffers what else no rank knows before a call: that kernels can use them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "plan/one_sided.hpp"
#include "plan/operation.hpp"

namespace tutti {

/// A communicator's; used inside its ticket lock. All ranks add the same windows in the same order.
class SymmetricWindows {
  public:
    explicit SymmetricWindows(int ranks) : ranks_(ranks) {}

    /// mine: this rank's part. The window stays until it is removed.
    void add(const Window& window, std::span<const std::byte> mine);
    void remove(const Window& window);

    /// Whether the call's buffers lie in such windows, so those of all ranks do.
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
