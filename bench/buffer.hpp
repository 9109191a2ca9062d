// A rank's message buffers: page-aligned, faulted in, private or mappable by peers, or on a GPU, with guard zones at
// both ends.
#pragma once

#include <cstddef>
#include <vector>

namespace perf {

class Buffer {
  public:
    static constexpr std::size_t guard = 4096;
    // No value that a sum or product would drive into slow denormals, in any type.
    static constexpr std::byte poison{0x41};

    /// `size` bytes between the guards. device: of CUDA; -1: host memory. Exits if there is no such memory.
    Buffer(std::size_t size, bool mapped, int device);
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer();

    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }
    int device() const { return device_; }

  private:
    void* base_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    bool mapped_ = false;
    int device_ = -1;
};

/// A part of a buffer as the host sees it: itself, or a copy that goes to the GPU and comes from there when asked to.
class HostView {
  public:
    HostView(const Buffer& buffer, std::byte* from, std::size_t bytes);
    std::byte* data() { return device_ < 0 ? there_ : copy_.data(); }
    void push();
    void pull();

  private:
    std::byte* there_;
    int device_;
    std::vector<std::byte> copy_;
};

}  // namespace perf
