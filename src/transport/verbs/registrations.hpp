// Memory of users that an adapter knows. What tuttiMemAlloc and tuttiCommRegister have made lives long, so it is
// registered as a whole when a message first comes from or goes to it, and forgotten when it is freed. Peers can write
// to what was registered for that alone: memory to which a message is first to be written in place (a posted receive).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "transport/regions.hpp"
#include "transport/verbs/library.hpp"

namespace tutti::verbs {

class Device;

/// What is done with registered memory: the adapter only reads it, to send; or peers write to it as well.
enum class Access { local_reads, remote_writes };

class Registrations {
  public:
    explicit Registrations(const Device& device);

    struct Keys {
        std::uint32_t local, remote;  // remote: of no use but for peers that write
    };
    /// Of the region that holds [memory, memory + bytes), for the adapter to read or for peers to write. None: there is
    /// no such region, or the adapter can't have it, of which a warning tells once.
    std::optional<Keys> of(const std::byte* memory, std::size_t bytes, Access access);

  private:
    using Id = std::pair<std::uint64_t, Access>;
    ibv_mr* enlist(const Region& region, Access access);
    void forget(std::uint64_t id);

    const Device& device_;
    const std::uint64_t process_;  // a fork has no adapter
    std::mutex mutex_;
    std::map<Id, Owned<ibv_mr>> known_;  // by the region's id; null: refused
    bool warned_ = false;
    RegionWatch watch_;  // last: it tells of nothing any more when the others go
};

}  // namespace tutti::verbs
