// The CUDA runtime on host threads and host memory, linked in the place of NVIDIA's, so that src/gpu/cuda.cpp, the
// objects that nvcc makes and programs that use them run without a GPU. It is strict: it refuses what CUDA's manual
// forbids, and waits where CUDA may wait, so that misuse shows. What a wait depends on and never comes ends the process
// with a list of what is enqueued where.
//
// Differences that remain: host code can read device memory, kernels can read host memory that is not pinned, and
// a module's global variables are the same ones on all devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "ptx.hpp"

namespace tutti::on_hosts {

struct Settings {
    int devices = 1;                            // TUTTI_TEST_GPUS
    int multiprocessors = 16;                   // of each device; TUTTI_TEST_GPU_MULTIPROCESSORS
    int blocks = 1;                             // at a time on one, of a kernel whose launch bounds ask for no more
    std::size_t memory = std::size_t{4} << 30;  // bytes of each device
    bool peer_access = true;                    // TUTTI_TEST_GPU_PEERS=0: without
    bool mps = false;                           // says so: TUTTI_TEST_GPU_MPS=1
    bool dma_buf = false;                       // as harness/dma_buf.hpp makes them
    bool rdma_writes_ordered = false;           // else they take a flush
    bool virtual_memory = true;                 // of which other processes can be given descriptors
    bool multicast = true;                      // its devices have multicast: TUTTI_TEST_GPU_MULTICAST=0: none
    std::size_t most_multicasts = 1 << 16;      // objects of multicast that this process can make
    bool allocations_wait = false;              // cudaMalloc and pinning, too: TUTTI_TEST_GPU_WAITS=1
    int connections = 0;     // hardware queues per device and priority; 0: CUDA_DEVICE_MAX_CONNECTIONS
    int wait_ms = 0;         // bound of every wait; 0: TUTTI_TEST_GPU_MS, or two minutes
    std::uint64_t weak = 0;  // != 0: a seed of weak memory, as ptx::Memory::weak() says; TUTTI_TEST_GPU_WEAK
    int exit_at_fault = 0;   // != 0: with which code the process ends where a kernel is at fault
    struct {
        std::string kernels = {};  // whose names contain this
        std::function<std::string(std::string)> change = {};
    } mutants = {};  // run what this makes of their object's PTX instead
};

/// Begins anew with other devices: what was made before is gone. Kernels stay registered. Nothing may be under way.
void restart(const Settings& settings);

/// How often a context was made on the device.
int contexts_made(int device);
/// Allocations of the device that were not freed; -1: pinned ones of the host.
std::size_t allocations(int device);
/// Objects of multicast of which this process has a handle, or which it has mapped.
std::size_t multicasts();
/// How often cudaDeviceFlushGPUDirectRDMAWrites was called.
int flushes();

/// Of the device: those that a launch need not load, which waits for all that runs there.
std::size_t loaded_kernels(int device);

/// What kernels that have ended have moved (ptx.hpp), by allocations that were not freed.
using Traffic = ptx::Memory::Traffic;
Traffic traffic(const void* memory);  // of the allocation that has this byte, by kernels of all devices
Traffic traffic();                    // of all memory together
void reset_traffic();                 // TUTTI_TEST_GPU_TRAFFIC=1: the process says at its end what was moved

}  // namespace tutti::on_hosts
