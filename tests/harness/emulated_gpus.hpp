// GPUs made of host threads: what kernels/cuda would run on a device runs here, block by block, with the very same code
// (see kernels/cuda/simt.hpp). Memory of a device is a memfd, so that processes can share it; streams are workers.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "comm/stream.hpp"
#include "gpu/gpus.hpp"
#include "tutti/tutti.h"

namespace tutti::harness {

class EmulatedGpus : public gpu::Gpus {
  public:
    /// blocks: how many run at the same time on a device; threads: in a block.
    explicit EmulatedGpus(int devices = 2, int blocks = 16, unsigned threads = 3);
    ~EmulatedGpus() override;

    /// Under sanitizers only some types are: the others would take minutes to compile.
    static bool emulates(tuttiDataType_t type);

    void* make_stream(int device);
    void destroy_stream(void* stream);  // waits for what was enqueued
    void synchronize_stream(void* stream);

    int count() const override { return devices_; }
    int current() const override { return 0; }
    gpu::DeviceInfo info(int device) const override;
    unsigned threads() const override { return threads_; }
    bool reaches(int device, int peer) override;
    std::byte* allocate(int device, std::size_t bytes) override;
    void free(int device, std::byte* memory) noexcept override;
    std::byte* allocate_pinned(std::size_t bytes) override;
    void free_pinned(std::byte* memory) noexcept override;
    void upload(int device, std::byte* to, const void* from, std::size_t bytes) override;
    gpu::Pointee pointee(const void* pointer) const override;
    gpu::Handle share(int device, const std::byte* allocation) override;
    std::byte* open(int device, const gpu::Handle& handle) override;
    void close(int device, std::byte* opened) noexcept override;
    void launch(int device, DataType type, unsigned lanes, unsigned jobs, const gpu::Launch& launch,
                void* stream) override;
    void run(int device, const gpu::Flat& task, void* stream) override;
    void copy(int device, void* to, const void* from, std::size_t bytes, void* stream) override;
    int device_of(void* stream) const override;
    bool capturing(void*) const override { return false; }
    void mark(int device, void*& event, void* stream) override;
    void follow(int device, void* event, void* stream) override;
    void await(int device, void* event) noexcept override;
    void drop(int device, void* event) noexcept override;

    int launches() const;  // so far

  private:
    struct Allocation {
        int device;  // -1: pinned
        Mapping mapping;
        Fd fd;
        std::uint64_t id;
    };
    Stream& stream_of(void* stream) const;

    const int devices_, blocks_;
    const unsigned threads_;
    mutable std::mutex mutex_;
    std::map<const std::byte*, Allocation> allocations_;
    std::map<void*, std::pair<int, std::unique_ptr<Stream>>> streams_;
    std::uint64_t last_id_ = 0;
    int launches_ = 0;
};

}  // namespace tutti::harness
