// Slots of network links in the memory of this rank's GPU (transport/slots.hpp). Kernels use them as they use slots in
// pinned host memory; the network adapter reads and writes them in place (GPUDirect RDMA).
#pragma once

#include <memory>
#include <string>

#include "gpu/gpus.hpp"
#include "transport/slots.hpp"

namespace tutti::gpu {

/// What adapters may do with GPU memory as far as the driver permits: from TUTTI_NET_GDR and NCCL_NET_GDR_*.
struct DirectWish {
    bool any = true;    // use it at all
    bool reads = true;  // read from it what this rank sends
};

/// Makes the slots of one link. A direction in which the adapter may not read, or in which kernels could see its writes
/// too late, stays in host memory, and `why` gets the reason. The caller owns the result and its memory; gpus outlives
/// it. nullptr if both directions stay in host memory.
std::unique_ptr<DeviceSlots> direct_slots(Gpus& gpus, int device, const DirectWish& wish, std::string& why);

}  // namespace tutti::gpu
