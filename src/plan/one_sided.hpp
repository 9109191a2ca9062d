// One-sided operations: a rank writes to the memory of another one, or reads it, and tells it by signals; the other one
// meanwhile does what it likes. A window is what all ranks have opened for that together, each a part of its own
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/types.hpp"
#include "gpu/gpus.hpp"
#include "transport/fifo.hpp"

namespace tutti {

/// One rank's memory in a window, as this rank reaches it.
struct WindowPart {
    Reference where;  // on GPUs the offset is an address of this rank
    std::uint64_t bytes;
    std::uint32_t gate;  // number of RankPage::gates
    std::uint32_t key;   // what stands there until it is closed; 0: it never was open
};

struct Window {
    std::vector<WindowPart> parts;  // by rank
    gpu::Pointee lent = {};         // on a GPU: this rank's allocation, where ranks of other processes have it open
};

/// A put, a get, a signal, or a wait for signals. Plain data; Operation points to one, and its Batch keeps it.
struct OneSided {
    enum class Kind { put, get, signal, wait } kind;

    // put (which signals when it is done), get, signal
    Rank peer = -1;
    int signal = 0;
    const std::byte* from = nullptr;  // put
    std::byte* to = nullptr;          // get
    std::size_t bytes = 0, offset = 0;
    std::shared_ptr<const Window> window = nullptr;

    // wait
    struct Wanted {
        Rank peer;
        int signal;
        std::uint64_t count;
    };
    std::vector<Wanted> wanted = {};  // no two of one peer's same signal
};

}  // namespace tutti
