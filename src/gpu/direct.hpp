// Slots of links over networks in the memory of this rank's GPU (transport/slots.hpp): kernels fill and empty them as
// they do those in pinned host memory, and the adapter reads and writes them there (GPUDirect RDMA).
#pragma once

#include <memory>
#include <string>

#include "gpu/gpus.hpp"
#include "transport/slots.hpp"

namespace tutti::gpu {

/// What adapters are to do with GPU memory; as TUTTI_NET_GDR and NCCL_NET_GDR_READ say, of all the driver permits.
struct DirectWish {
    bool any = true;
    bool reads = true;  // what this rank sends
};

/// For one link. What adapters do not read, or what they write and this GPU's kernels could see too late, is left to
/// host memory, and why says so; nullptr: that is everything. The memory is freed with its owner, before gpus goes.
std::unique_ptr<DeviceSlots> direct_slots(Gpus& gpus, int device, const DirectWish& wish, std::string& why);

}  // namespace tutti::gpu
