// What the library needs of GPUs, and all that it knows of their runtime: memory, pointers, streams, the launch of its
// kernels. cuda.cpp is the real one; tests bring one that is made of host threads
// (tests/harness/emulated_gpus.cpp). Streams are cudaStream_t, as void*. Every function throws
// Error(tuttiUnhandledCudaError) that names what failed.
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
    std::string address;  // on PCI: "0000:3b:00.0"
    std::size_t memory = 0;
    int multiprocessors = 0;
    int blocks = 0;    // of the interpreter that it runs at the same time
    bool mps = false;  // kernels of several processes run there at the same time, not in turn
};

/// What a pointer points to.
struct Pointee {
    enum class Kind { host, pinned, device, managed } kind = Kind::host;
    int device = -1;
    std::byte* base = nullptr;  // of the allocation: device memory only
    std::size_t size = 0;
    std::uint64_t id = 0;  // differs between allocations that lay at the same address one after the other
    bool peers = true;     // kernels of other devices of this process can use it, too, once that is enabled
};

/// Names an allocation for other processes.
struct Handle {
    std::array<std::byte, 64> bytes{};
};

/// When kernels of a GPU see what a network's adapter has written to its memory, after the host has been told of it.
enum class Arrival { at_once, after_flush, unsure };

class Gpus {
  public:
    virtual ~Gpus() = default;
    virtual int count() const = 0;
    virtual int current() const = 0;  // the calling thread's device
    virtual DeviceInfo info(int device) const = 0;
    virtual unsigned threads() const = 0;  // of a block

    virtual Uuid uuid(int device) const = 0;
    /// Whether kernels on `device` can use memory of `peer`, once that is enabled.
    virtual bool reaches(int device, int peer) const = 0;
    virtual void enable(int device, int peer) = 0;

    virtual std::byte* allocate(int device, std::size_t bytes) = 0;  // zeroed, shareable
    virtual void free(int device, std::byte* memory) noexcept = 0;
    virtual std::byte* allocate_pinned(std::size_t bytes) = 0;  // zeroed; kernels of all devices see it there, too
    virtual void free_pinned(std::byte* memory) noexcept = 0;
    /// Makes whole pages of host memory something that kernels of all devices can use, until unpin(); no part of them
    /// may be that already.
    virtual void pin(std::byte* memory, std::size_t bytes) = 0;
    virtual void unpin(std::byte* memory) noexcept = 0;
    virtual std::byte* seen(int device, std::byte* pinned) const = 0;  // where kernels see the first byte

    virtual void upload(int device, std::byte* to, const void* from, std::size_t bytes) = 0;  // done on return

    virtual Pointee pointee(const void* pointer) const = 0;
    virtual Handle share(int device, const std::byte* allocation) = 0;
    virtual std::byte* open(int device, const Handle& handle) = 0;
    virtual void close(int device, std::byte* opened) noexcept = 0;

    /// A dma-buf of some pages of an allocation, whole ones of the host's size: adapters that are given it read and
    /// write there.
    virtual Fd export_pages(int device, std::byte* pages, std::size_t bytes) = 0;
    virtual Arrival arrival(int device) const = 0;
    /// What adapters have written is seen from now on. From any thread; it waits for no kernel.
    virtual void flush(int device) = 0;

    /// channels blocks for each of the first `jobs` of launch.
    virtual void launch(int device, DataType type, unsigned channels, unsigned jobs, const Launch& launch,
                        void* stream) = 0;
    virtual void run(int device, const Flat& task, void* stream) = 0;
    virtual void run(int device, const OneSidedTask& task, void* stream) = 0;
    virtual void copy(int device, void* to, const void* from, std::size_t bytes, void* stream) = 0;

    /// work(argument) is called when the stream comes there, at every replay of a graph, too. It must not use the
    /// runtime, nor wait.
    virtual void call(int device, void (*work)(void*), void* argument, void* stream) = 0;

    /// A stream that waits for no other one. What was enqueued on it is done before it goes, or goes on without it.
    /// apart: most likely not in one of the device's queues with kernels that wait.
    virtual void* make_stream(int device, bool apart = false) = 0;
    virtual void destroy_stream(void* stream) noexcept = 0;
    /// The device of a stream; throws for what is none.
    virtual int device_of(void* stream) const = 0;
    /// The number of the capture into a graph that a stream is part of; 0: it is not captured.
    virtual std::uint64_t capture(void* stream) const = 0;
    bool capturing(void* stream) const { return capture(stream) != 0; }

    /// A mark in a stream: what is enqueued on another one after follow() runs after what was before the mark. mark()
    /// makes the event where it is nullptr, else moves it.
    virtual void mark(int device, void*& event, void* stream) = 0;
    virtual void follow(int device, void* event, void* stream) = 0;
    /// The same on a stream that is captured, for every launch of the graph: it moves the event, or follows where it
    /// was when the graph was launched, whoever moved it. mark() and follow() there are edges of the graph instead.
    /// Both make the event where it is nullptr.
    virtual void mark_at_launch(int device, void*& event, void* stream) = 0;
    virtual void follow_at_launch(int device, void*& event, void* stream) = 0;
    virtual bool reached(int device, void* event) const = 0;
    virtual void await(int device, void* event) noexcept = 0;  // here
    virtual void drop(int device, void* event) noexcept = 0;
};

/// nullptr where this build or this machine has none; `why` says so then.
Gpus* gpus();
const std::string& why_no_gpus();

/// The calling thread's device; -1 where no GPU is usable.
int current_device();

/// For tests: these instead, from now on.
void use_gpus(Gpus* instead);

}  // namespace tutti::gpu
