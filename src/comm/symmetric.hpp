// Windows in which all ranks have promised to keep the buffers of their collectives (TUTTI_WIN_COLL_SYMMETRIC), on
// GPUs. They tell a rank, before a call, what it can't know otherwise: where the other ranks' buffers are, and that
// kernels can reach them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
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

    /// Where a buffer lies.
    struct Place {
        const Window* window;
        std::size_t at;  // its first byte in the window
    };
    /// Where the operation's input and output lie, if both do in such windows; then those of all ranks do.
    std::optional<std::pair<Place, Place>> find(const Operation& operation) const;
    bool hold(const Operation& operation) const { return find(operation).has_value(); }
    /// Of what all ranks must have alike in a call, places among it: a kernel compares it with the peers'.
    static std::uint32_t signature_of(std::span<const std::uint64_t> facts);

  private:
    struct One {
        const Window* window;
        std::span<const std::byte> mine;
    };
    std::optional<Place> find(const void* buffer, std::size_t bytes) const;

    const int ranks_;
    std::vector<One> all_;
};

}  // namespace tutti
