// The library's only interface to the GPU runtime: memory, pointers, streams, events and the launch of kernels.
// cuda.cpp implements it with CUDA; tests replace it by GPUs made of host threads (tests/harness/emulated_gpus.cpp).
// Streams are cudaStream_t, as void*. Functions that are not noexcept throw tuttiUnhandledCudaError, naming what
// failed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/os.hpp"
#include "base/types.hpp"
#include "kernels/cuda/flat.hpp"
#include "kernels/cuda/one_sided.hpp"
#include "kernels/cuda/plan.hpp"

namespace tutti::gpu {

using Uuid = std::array<std::uint8_t, 16>;

struct DeviceInfo {
    std::string name;
    Uuid uuid{};
    std::string address;     // on the PCI bus: "0000:3b:00.0"
    std::size_t memory = 0;  // bytes
    int multiprocessors = 0;
    int blocks = 0;    // blocks of the interpreter that fit on the device at the same time
    bool mps = false;  // kernels of several processes run at the same time, not in turn
};

/// The memory that a pointer points to.
struct Pointee {
    enum class Kind { host, pinned, device, managed } kind = Kind::host;
    int device = -1;
    std::byte* base = nullptr;  // of the allocation, for device memory; nullptr if it can't be found
    std::size_t size = 0;
    std::uint64_t id = 0;  // differs between allocations that had the same address one after the other
    bool peers = true;     // kernels of other devices of this process can use it, once enable() was called
};

/// A handle by which other processes open an allocation (CUDA IPC).
struct Handle {
    std::array<std::byte, 64> bytes{};
};

/// When kernels of a GPU see what a network adapter has written to its memory, counted from the completion on the host.
enum class Arrival { at_once, after_flush, unsure };

/// Owned by the process. For any thread.
class Gpus {
  public:
    virtual ~Gpus() = default;
    virtual int count() const = 0;
    virtual int current() const = 0;  // the calling thread's device
    virtual DeviceInfo info(int device) const = 0;
    virtual unsigned threads() const = 0;  // threads of a block

    virtual Uuid uuid(int device) const = 0;
    /// Whether kernels on `device` can use memory of the device `peer`, once enable() was called.
    virtual bool reaches(int device, int peer) const = 0;
    virtual void enable(int device, int peer) = 0;

    virtual std::byte* allocate(int device, std::size_t bytes) = 0;  // zeroed, shareable
    virtual void free(int device, std::byte* memory) noexcept = 0;
    virtual std::byte* allocate_pinned(std::size_t bytes) = 0;  // zeroed; at the same address for all devices
    virtual void free_pinned(std::byte* memory) noexcept = 0;
    /// Makes whole pages of host memory usable for kernels of all devices, until unpin(). None of them may be pinned
    /// already.
    virtual void pin(std::byte* memory, std::size_t bytes) = 0;
    virtual void unpin(std::byte* memory) noexcept = 0;
    virtual std::byte* seen(int device, std::byte* pinned) const = 0;  // address of the first byte in kernels

    virtual void upload(int device, std::byte* to, const void* from,
                        std::size_t bytes) = 0;  // has completed when it returns

    virtual Pointee pointee(const void* pointer) const = 0;
    virtual Handle share(int device, const std::byte* allocation) = 0;
    virtual std::byte* open(int device, const Handle& handle) = 0;
    virtual void close(int device, std::byte* opened) noexcept = 0;

    /// A dma-buf of part of an allocation, for adapters to read and write. The part must consist of whole pages of the
    /// host's size.
    virtual Fd export_pages(int device, std::byte* pages, std::size_t bytes) = 0;
    virtual Arrival arrival(int device) const = 0;
    /// Makes what adapters have written before visible to kernels. Does not wait for kernels.
    virtual void flush(int device) = 0;

    /// Launches `channels` blocks for each of the first `jobs` jobs of launch.
    virtual void launch(int device, DataType type, unsigned channels, unsigned jobs, const Launch& launch,
                        void* stream) = 0;
    virtual void run(int device, const Flat& task, void* stream) = 0;
    virtual void run(int device, const OneSidedTask& task, void* stream) = 0;
    virtual void copy(int device, void* to, const void* from, std::size_t bytes, void* stream) = 0;

    /// Enqueues a host function: work(argument) is called when the stream reaches it, and at every launch of a graph
    /// that captured it. It must neither use the runtime nor wait.
    virtual void call(int device, void (*work)(void*), void* argument, void* stream) = 0;

    /// Makes a stream that does not synchronise with other streams. Work on it is completed even if it is destroyed
    /// first. apart: if possible in a hardware queue without kernels that wait.
    virtual void* make_stream(int device, bool apart = false) = 0;
    virtual void destroy_stream(void* stream) noexcept = 0;
    /// The device of a stream. Throws if it is not a stream.
    virtual int device_of(void* stream) const = 0;
    /// The number of the capture that a stream is part of; 0 if it is not being captured.
    virtual std::uint64_t capture(void* stream) const = 0;
    bool capturing(void* stream) const { return capture(stream) != 0; }

    /// Event record and wait: what is enqueued on a stream after follow() runs after what another stream had before
    /// mark(). mark() makes the event if it is nullptr, else moves it.
    virtual void mark(int device, void*& event, void* stream) = 0;
    virtual void follow(int device, void* event, void* stream) = 0;
    /// The same for a captured stream, at every launch of the graph: each launch moves the event, or follows the event
    /// as it was when that graph was launched (cudaEventRecordExternal, cudaEventWaitExternal). mark() and follow() on
    /// a captured stream make edges of the graph instead. Both make the event if it is nullptr.
    virtual void mark_at_launch(int device, void*& event, void* stream) = 0;
    virtual void follow_at_launch(int device, void*& event, void* stream) = 0;
    virtual bool reached(int device, void* event) const = 0;
    virtual void await(int device, void* event) noexcept = 0;  // blocks the calling thread
    virtual void drop(int device, void* event) noexcept = 0;
};

/// The GPUs of this process; nullptr if this build or this machine has none.
Gpus* gpus();
/// Why gpus() is nullptr.
const std::string& why_no_gpus();

/// The calling thread's device; -1 if no GPU is usable.
int current_device();

/// For tests: gpus() returns these from now on.
void use_gpus(Gpus* instead);

}  // namespace tutti::gpu
