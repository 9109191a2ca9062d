// Whether a test that needs multicast can run.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "harness/catch.hpp"
#include "harness/skip.hpp"

namespace tutti {

/// Whether so many GPUs are here, all with multicast. If not, the test is to be skipped.
inline bool has_gpus(int wanted) {
    int count = 0, can = 1;
    void* attribute = nullptr;
    cudaDriverEntryPointQueryResult found{};
    REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
#if CUDART_VERSION >= 13000
    REQUIRE(cudaGetDriverEntryPointByVersion("cuDeviceGetAttribute", &attribute, 12000, cudaEnableDefault, &found) ==
            cudaSuccess);
#else
    REQUIRE(cudaGetDriverEntryPoint("cuDeviceGetAttribute", &attribute, cudaEnableDefault, &found) == cudaSuccess);
#endif
    for (int d = 0; d < wanted && d < count && can != 0; ++d)
        reinterpret_cast<decltype(&cuDeviceGetAttribute)>(attribute)(&can, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, d);
    const bool enough = count >= wanted && can != 0;
    if (!enough) harness::skip("as many GPUs as ranks, with multicast");
    return enough;
}

}  // namespace tutti
