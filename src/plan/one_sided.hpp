// One-sided operations: a rank writes to another rank's memory or reads it, and notifies that rank by signals, while
// that rank does something else. A window is what all ranks have opened together for this, each with a part of its own
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "gpu/gpus.hpp"
#include "gpu/strip.hpp"
#include "transport/fifo.hpp"

namespace tutti {

/// One rank's part of a window, as this rank reaches it.
struct WindowPart {
    Reference where;  // on GPUs the offset is an address that this rank can use
    std::uint64_t bytes;
    std::uint32_t gate;  // index in RankPage::gates of the part's owner
    std::uint32_t key;   // the gate's value while the part is open; 0: it never was open
};

/// A window as one rank sees it. Shared by its handle and the operations on it; does not change once it is open.
struct Window {
    std::vector<WindowPart> parts;  // by rank
    std::uint32_t number = 0;       // of the communicator's windows; the same on all ranks
    gpu::Pointee lent = {};         // on a GPU: this rank's allocation, if other processes have opened it
    std::unique_ptr<const gpu::Strip> strip = nullptr;          // on GPUs, if all parts are virtual memory
    std::string no_strip = {};                                  // why there is none
    std::unique_ptr<const gpu::Multicast> multicast = nullptr;  // with the parts' allocations, if all could
    std::byte* multicast_at = nullptr;                          // where it leads to the parts, for multimem.*
    std::string no_multicast = {};                              // why it does not
};

/// A put, a get, a signal, or a wait for signals. Plain data; an Operation points to one, which its Batch keeps alive.
struct OneSided {
    enum class Kind { put, get, signal, wait } kind;

    // For put (which raises `signal` when it is done), get and signal:
    Rank peer = -1;
    int signal = 0;
    const std::byte* from = nullptr;  // put
    std::byte* to = nullptr;          // get
    std::size_t bytes = 0, offset = 0;
    std::shared_ptr<const Window> window = nullptr;

    // For wait:
    struct Wanted {
        Rank peer;
        int signal;
        std::uint64_t count;
    };
    std::vector<Wanted> wanted = {};  // at most one for each peer and signal
};

}  // namespace tutti
