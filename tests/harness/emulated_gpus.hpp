// GPUs emulated by host threads. They run the same source of kernels/cuda as GPUs do, block by block (see
// kernels/cuda/simt.hpp). Device memory is a memfd, so that processes can share it. A stream is a worker thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/stream.hpp"
#include "gpu/gpus.hpp"
#include "tutti/tutti.h"

namespace tutti::harness {

class EmulatedGpus : public gpu::Gpus {
  public:
    /// blocks: how many run at the same time on a device; threads: of a block. peer_access: true if kernels of a device
    /// can access the memory of others.
    explicit EmulatedGpus(int devices = 2, int blocks = 16, unsigned threads = 3, bool peer_access = true);
    ~EmulatedGpus() override;

    /// True if kernels for the type exist. Under sanitizers only some do, because others would take minutes to compile.
    static bool emulates(tuttiDataType_t type);

    void synchronize_stream(void* stream);

    /// Work that is captured from a stream and can be replayed on it or on another one.
    using Work = std::function<std::optional<Error>()>;
    /// A captured node: work, or a function that makes it when the graph is launched.
    struct Node {
        Work work;
        std::function<Work()> at_launch;
    };
    using Graph = std::vector<Node>;
    void begin_capture(void* stream);
    Graph end_capture(void* stream);
    void replay(const Graph& graph, void* stream);

    int count() const override { return devices_; }
    int current() const override { return 0; }
    gpu::DeviceInfo info(int device) const override;
    unsigned threads() const override { return threads_; }
    gpu::Uuid uuid(int device) const override { return info(device).uuid; }
    bool reaches(int device, int peer) const override { return device == peer || peer_access_; }
    bool linked(int device, int peer) const override { return device == peer || nvlink; }
    void enable(int device, int peer) override;
    std::byte* allocate(int device, std::size_t bytes) override;
    void free(int device, std::byte* memory) noexcept override;
    std::byte* allocate_pinned(std::size_t bytes) override;
    void free_pinned(std::byte* memory) noexcept override;
    void pin(std::byte* memory, std::size_t bytes) override;
    void unpin(std::byte* memory) noexcept override;
    std::byte* seen(int device, std::byte* pinned) const override;
    void upload(int device, std::byte* to, const void* from, std::size_t bytes) override;
    gpu::Pointee pointee(const void* pointer) const override;
    Fd export_pages(int device, std::byte* pages, std::size_t bytes) override;
    gpu::Arrival arrival(int) const override { return adapters.arrival; }
    void flush(int device) override;
    gpu::Handle share(int device, const std::byte* allocation) override;
    std::byte* open(int device, const gpu::Handle& handle) override;
    void close(int device, std::byte* opened) noexcept override;
    void launch(int device, DataType type, unsigned channels, unsigned jobs, const gpu::Launch& launch,
                void* stream) override;
    bool has_small() const override { return small; }
    void run(int device, DataType type, unsigned channels, unsigned jobs, unsigned threads,
             const gpu::SmallLaunch& launch, void* stream) override;
    void run(int device, const gpu::Flat& task, void* stream) override;
    void run(int device, const gpu::OneSidedTask& task, void* stream) override;
    void run(int device, const gpu::MeetingLaunch& launch, void* stream) override;
    void copy(int device, void* to, const void* from, std::size_t bytes, void* stream) override;
    void call(int device, void (*work)(void*), void* argument, void* stream) override;
    void* make_stream(int device, bool apart = false) override;
    void destroy_stream(void* stream) noexcept override;  // waits for what was enqueued
    int device_of(void* stream) const override;
    std::uint64_t capture(void* stream) const override;
    void mark(int device, void*& event, void* stream) override;
    void mark_at_launch(int device, void*& event, void* stream, void*& last) override;
    void follow_at_launch(int device, void*& event, void* stream) override;
    void follow(int device, void* event, void* stream) override;
    bool reached(int device, void* event) const override;
    void await(int device, void* event) noexcept override;
    void drop(int device, void* event) noexcept override;

    /// How the emulated driver supports network adapters. Set it before any allocation.
    struct Adapters {
        int exports = 16;  // the first so many devices can export memory to adapters
        gpu::Arrival arrival = gpu::Arrival::after_flush;
        std::function<void()> flush = [] {};
    } adapters;

    bool nvlink = true;              // joins the devices
    std::atomic<bool> small = true;  // small messages have a kernel of their own
    bool opens = true;               // false: open() fails for memory that other processes share

    /// Allocates memory that can't be shared with other processes or devices, as that of a CUDA memory pool.
    std::byte* allocate_from_pool(int device, std::size_t bytes);
    /// How often a launch could have given peers a reference to such memory.
    int offers_of_pools() const;

    int launches() const;                                       // so far
    int small_launches() const { return small_launches_; }      // of these, kernels of small messages
    int meetings() const { return meetings_; }                  // likewise, which are none of launches()
    int widest() const;                                         // most channels of a launch so far
    int host_functions() const { return host_functions_; }      // enqueued or captured so far
    int refused_shares() const;                                 // so far
    int flushes() const;                                        // so far
    const std::byte* find_allocation(std::size_t bytes) const;  // the first of that size; nullptr if there is none
    std::size_t pinned() const;                                 // bytes of host memory, now
    std::size_t allocations() const;                            // on all devices, now

  private:
    struct Allocation {
        int device;  // -1 for pinned host memory
        Mapping mapping;
        Fd fd;
        std::uint64_t id;
        bool shareable = true;
    };
    Stream& stream_of(void* stream) const;
    std::shared_ptr<void> mark_of(void* event) const;
    void watch(const gpu::Launch& launch, unsigned jobs);
    void enqueue(void* stream, Work work);
    void enqueue_at_launch(void* stream, std::function<Work()> make);

    const int devices_, blocks_;
    const unsigned threads_;
    const bool peer_access_;
    std::map<std::byte*, std::size_t> pinned_;
    struct Capture {
        std::uint64_t number;
        Graph graph;
    };
    std::map<void*, Capture> captured_;  // by stream
    std::uint64_t last_capture_ = 0;
    mutable std::mutex mutex_;
    std::map<const std::byte*, Allocation> allocations_;
    std::map<void*, std::pair<int, std::unique_ptr<Stream>>> streams_;
    std::vector<std::shared_ptr<void>> multiprocessors_;  // by device
    int offers_of_pools_ = 0;
    std::atomic<int> host_functions_{0}, small_launches_{0}, meetings_{0};
    std::uint64_t last_id_ = 0;
    int launches_ = 0, widest_ = 0, refused_shares_ = 0, flushes_ = 0;
};

}  // namespace tutti::harness
