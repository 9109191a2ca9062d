// The interface to the GPU runtime: memory, pointers, streams, events and the launch of the library's kernels. cuda.cpp
// implements it with CUDA; tests replace it by emulated GPUs of host threads (tests/harness/emulated_gpus.cpp). Streams
// are cudaStream_t and events cudaEvent_t, both as void*. Functions that are not noexcept throw
// Error(tuttiUnhandledCudaError), whose text names what failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "gpu/memory_types.hpp"
#include "gpu/multicast.hpp"
#include "kernels/cuda/flat.hpp"
#include "kernels/cuda/meeting.hpp"
#include "kernels/cuda/multicast_plan.hpp"
#include "kernels/cuda/one_sided.hpp"
#include "kernels/cuda/plan.hpp"
#include "kernels/cuda/small_plan.hpp"

namespace tutti::gpu {

/// All GPUs of this machine. One instance serves the process and is never destroyed; any thread may call it.
class Gpus {
  public:
    virtual ~Gpus() = default;
    virtual int count() const = 0;
    virtual int current() const = 0;  // the calling thread's device
    virtual DeviceInfo info(int device) const = 0;
    virtual unsigned threads() const = 0;  // per interpreter block

    virtual Uuid uuid(int device) const = 0;
    /// Whether kernels on `device` can access memory of `peer` after enable(device, peer).
    virtual bool reaches(int device, int peer) const = 0;
    /// Whether they are one device, or NVLink joins them: not PCIe, over which twice the bytes take twice as long.
    virtual bool linked(int device, int peer) const = 0;
    virtual void enable(int device, int peer) = 0;

    virtual std::byte* allocate(int device, std::size_t bytes) = 0;  // zeroed; share() takes it
    virtual void free(int device, std::byte* memory) noexcept = 0;

    /// Virtual memory, zeroed. Rounds `bytes` up to whole pages. Kernels of all devices that reach this one can use it.
    /// share() does not take it; free() does.
    virtual std::byte* allocate_virtual(int device, std::size_t& bytes);
    /// The mappings in which these bytes of virtual memory lie, in the order of their addresses. Throws, with the
    /// reason, unless all of it is mapped, kernels of `device` may read and write it, and descriptors of it can be
    /// made.
    virtual std::vector<Segment> segments(int device, const std::byte* memory, std::size_t bytes);
    /// Whether these allocations are mapped there still.
    virtual bool are_mapped(std::span<const Segment> segments);
    /// A descriptor of the allocation that is mapped there, for map().
    virtual Fd descriptor_of(int device, const std::byte* memory);
    /// Reserves addresses until unmap().
    virtual std::byte* reserve(int device, std::size_t bytes);
    /// Maps an allocation of this or another process for kernels of `device`, `offset` bytes behind the first reserved
    /// address, until unmap(). It lives as long as it is mapped somewhere.
    virtual void map(int device, std::byte* first, std::size_t offset, const SharedAllocation& allocation);
    virtual void unmap(int device, std::byte* first) noexcept;

    /// Whether the device can take part in multicast, and this build has its kernel.
    virtual bool has_multicast(int device) const;
    /// The first part in a new object, to which so many devices are to bind `bytes` of their memory each; and those of
    /// the others, by its descriptor.
    virtual std::unique_ptr<Multicast> make_multicast(int device, int devices, std::size_t bytes);
    virtual std::unique_ptr<Multicast> join_multicast(int device, const Fd& object, std::size_t bytes);

    virtual std::byte* allocate_pinned(std::size_t bytes) = 0;  // zeroed; mapped on all devices, see seen()
    virtual void free_pinned(std::byte* memory) noexcept = 0;
    /// Pins whole pages of host memory and maps them for kernels of all devices, until unpin(). None of the pages may
    /// be pinned already.
    virtual void pin(std::byte* memory, std::size_t bytes) = 0;
    virtual void unpin(std::byte* memory) noexcept = 0;
    virtual std::byte* seen(int device, std::byte* pinned) const = 0;  // its address in kernels

    virtual void upload(int device, std::byte* to, const void* from, std::size_t bytes) = 0;  // complete on return

    virtual Pointee pointee(const void* pointer) const = 0;
    /// share() makes a handle of an allocation, given by its first byte. open() maps it in another process until
    /// close().
    virtual Handle share(int device, const std::byte* allocation) = 0;
    virtual std::byte* open(int device, const Handle& handle) = 0;
    virtual void close(int device, std::byte* opened) noexcept = 0;

    /// Exports part of an allocation as a dma-buf, through which a network adapter reads and writes it. pages, bytes:
    /// whole pages of the host's page size.
    virtual Fd export_pages(int device, std::byte* pages, std::size_t bytes) = 0;
    virtual Arrival arrival(int device) const = 0;
    /// Makes all completed writes of adapters visible to kernels. Waits for no kernel.
    virtual void flush(int device) = 0;

    /// Launches the interpreter for `type`: `channels` blocks for each of the first `jobs` jobs of `launch`.
    virtual void launch(int device, DataType type, unsigned channels, unsigned jobs, const Launch& launch,
                        void* stream) = 0;
    /// Launches that of small messages likewise, by blocks of up to threads(). has_small(): whether it is to be used.
    virtual bool has_small() const = 0;
    virtual void run(int device, DataType type, unsigned channels, unsigned jobs, unsigned threads,
                     const SmallLaunch& launch, void* stream) = 0;
    virtual void run(int device, const Flat& task, void* stream) = 0;
    virtual void run(int device, const OneSidedTask& task, void* stream) = 0;
    virtual void run(int device, const MulticastJob& job, void* stream);
    virtual void run(int device, const MeetingLaunch& launch, void* stream) = 0;
    virtual void copy(int device, void* to, const void* from, std::size_t bytes, void* stream) = 0;

    /// Enqueues a call of work(argument) on the host (cudaLaunchHostFunc). In a graph it runs at every launch. `work`
    /// must not call CUDA and must not wait.
    virtual void call(int device, void (*work)(void*), void* argument, void* stream) = 0;

    /// Makes a non-blocking stream. destroy_stream() does not cancel what is enqueued on it. apart: give it the highest
    /// priority, which few streams have, so that it most likely shares no hardware queue with kernels that wait.
    virtual void* make_stream(int device, bool apart = false) = 0;
    virtual void destroy_stream(void* stream) noexcept = 0;
    /// The device of a stream. Throws if it is not a stream.
    virtual int device_of(void* stream) const = 0;
    /// What tells streams apart: a number for each stream, never used again. A handle may be another stream in another
    /// thread (cudaStreamPerThread), or after cudaStreamDestroy, which does not wait for what is enqueued. While a
    /// stream is captured, its number is another one.
    virtual std::uintptr_t identity(void* stream) const { return reinterpret_cast<std::uintptr_t>(stream); }
    /// The id of the capture into a graph that the stream is part of; 0 if it is not being captured.
    virtual std::uint64_t capture(void* stream) const = 0;
    bool capturing(void* stream) const { return capture(stream) != 0; }

    /// mark() records the event on `stream`; it makes the event if it is nullptr. follow() makes `stream` wait for the
    /// last record. In a capture, both become edges of the graph.
    virtual void mark(int device, void*& event, void* stream) = 0;
    virtual void follow(int device, void* event, void* stream) = 0;
    /// The same as nodes of the graph that `stream` is being captured into: every launch of the graph records the
    /// event, or waits for the record that was the last one when the graph was launched, made by any stream or graph.
    /// Both make the event if it is nullptr. What comes later on the stream does not wait for a record; the next record
    /// of the same event does: `last` is the one before in this capture, nullptr at first, and becomes this one.
    virtual void mark_at_launch(int device, void*& event, void* stream, void*& last) = 0;
    virtual void follow_at_launch(int device, void*& event, void* stream) = 0;
    virtual bool reached(int device, void* event) const = 0;   // whether all before the last record is done
    virtual void await(int device, void* event) noexcept = 0;  // the calling thread waits
    virtual void drop(int device, void* event) noexcept = 0;   // destroys it
};

/// The GPUs of this machine; nullptr if this build has no CUDA or this machine no usable GPU. why_no_gpus() says which.
Gpus* gpus();
const std::string& why_no_gpus();

/// The calling thread's current device; -1 if no GPU is usable.
int current_device();

/// For tests: makes gpus() return `instead` from now on; nullptr restores the real ones.
void use_gpus(Gpus* instead);

}  // namespace tutti::gpu
