// What is told of GPUs and their memory (gpus.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/os.hpp"

namespace tutti::gpu {

using Uuid = std::array<std::uint8_t, 16>;

struct DeviceInfo {
    std::string name;
    Uuid uuid{};
    std::string address;     // PCI bus address: "0000:3b:00.0"
    std::size_t memory = 0;  // in bytes
    int multiprocessors = 0;
    int blocks = 0;    // interpreter blocks that the device runs at the same time
    bool mps = false;  // MPS is on: kernels of several processes run at the same time, not in turn
};

/// The memory that a pointer points into.
struct Pointee {
    enum class Kind { host, pinned, device, managed } kind = Kind::host;
    int device = -1;
    std::byte* base = nullptr;  // start of the allocation, for device memory; nullptr if unknown
    std::size_t size = 0;       // bytes of the allocation
    std::uint64_t id = 0;       // the allocation's id: a later allocation at the same address has another one
    bool peers = true;          // kernels on other devices of this process can access it once peer access is enabled
    // Virtual memory of CUDA's driver: base and size are those of the addresses that were reserved, of which any part
    // may be mapped (Gpus::segments), and id is 0.
    bool is_virtual = false;
};

/// A whole mapping of virtual memory: one allocation, at addresses of this process.
struct Segment {
    const std::byte* at = nullptr;
    std::size_t bytes = 0;
    std::uint64_t allocation = 0;  // no other allocation has this number while `kept` lives
    std::shared_ptr<const void> kept;
};

/// A CUDA IPC handle: names an allocation to other processes.
struct Handle {
    std::array<std::byte, 64> bytes{};
};

/// An allocation of virtual memory, of this or another process.
struct SharedAllocation {
    Fd descriptor;
    std::size_t bytes = 0;  // 0: there is none
};

/// When a GPU's kernels see a network adapter's write to the GPU's memory, counted from its completion on the host.
enum class Arrival { at_once, after_flush, unsure };

}  // namespace tutti::gpu
