// Memory of users that is registered with an adapter. Regions of tuttiMemAlloc and tuttiCommRegister live long, so each
// is registered as a whole when a message is first sent from it or received into it, until it is freed. Peers can write
// only to regions in which a message was to be received in place (a posted receive).
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

/// Who uses registered memory: the adapter alone, which reads it to send, or also writes what it reads from peers; or
/// peers, which write to it. Peers write to a window and read it. That stays in order, since a later put may replace
/// what an earlier one has put.
/// Each allows what those before it do.
enum class Access { local_reads, local_writes, remote_writes, window };

/// Owned by a Device. Any thread may use it; mutex_ guards it. The thread that frees a region calls forget().
class Registrations {
  public:
    explicit Registrations(const Device& device);

    struct Keys {
        std::uint32_t local, remote;  // remote: valid only with Access::remote_writes
    };
    /// Keys of the region that holds [memory, memory + bytes), which is registered at the first call. nullopt if no
    /// region holds it, or if the adapter refuses the region; the first refusal is logged as a warning.
    std::optional<Keys> of(const std::byte* memory, std::size_t bytes, Access access);

  private:
    using Id = std::pair<std::uint64_t, Access>;
    ibv_mr* enlist(const Region& region, Access access);
    void forget(std::uint64_t id);

    const Device& device_;
    const std::uint64_t process_;        // that opened the adapter; a forked child must not use it
    std::mutex mutex_;                   // guards known_ and warned_
    std::map<Id, Owned<ibv_mr>> known_;  // by the region's id; nullptr if the adapter refused it
    bool warned_ = false;
    RegionWatch watch_;  // last, so that it is destroyed first and calls forget() no more
};

}  // namespace tutti::verbs
