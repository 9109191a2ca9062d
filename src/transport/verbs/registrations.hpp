// Memory of users that an adapter knows. What tuttiMemAlloc and tuttiCommRegister have made lives long, so it is
// registered as a whole when a message first comes from or goes to it, and forgotten when it is freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "transport/regions.hpp"
#include "transport/verbs/library.hpp"

namespace tutti::verbs {

class Device;

class Registrations {
  public:
    explicit Registrations(const Device& device);

    struct Keys {
        std::uint32_t local, remote;
    };
    /// Of the region that holds [memory, memory + bytes). None: there is no such region, or the adapter can't have it,
    /// of which a warning tells once.
    std::optional<Keys> of(const std::byte* memory, std::size_t bytes);

  private:
    ibv_mr* enlist(const Region& region);
    void forget(std::uint64_t id);

    const Device& device_;
    const std::uint64_t process_;  // a fork has no adapter
    std::mutex mutex_;
    std::map<std::uint64_t, Owned<ibv_mr>> known_;  // by the region's id; null: refused
    bool warned_ = false;
    RegionWatch watch_;  // last: it tells of nothing any more when the others go
};

}  // namespace tutti::verbs
