// Slots of network links in the memory of this rank's GPU (transport/slots.hpp). Kernels use them like slots in pinned
// host memory, and the adapter reads and writes them there (GPUDirect RDMA).
#pragma once

#include <memory>
#include <string>

#include "gpu/gpus.hpp"
#include "transport/slots.hpp"

namespace tutti::gpu {

/// The use of GPUDirect RDMA that TUTTI_NET_GDR and NCCL_NET_GDR_READ allow, as far as the driver permits it.
struct DirectWish {
    bool any = true;
    bool reads = true;  // adapters read what this rank sends
};

/// Makes the slots of one link. A direction stays in host memory, and `why` says so, if adapters are not to read GPU
/// memory, or if kernels of this GPU might see too late what adapters wrote. The result owns the memory, and must not
/// outlive gpus. nullptr if both directions stay in host memory.
std::unique_ptr<DeviceSlots> direct_slots(Gpus& gpus, int device, const DirectWish& wish, std::string& why);

}  // namespace tutti::gpu
