// A rank's message buffers: page-aligned, faulted in, private or mappable by peers, with guard zones at both ends.
#pragma once

#include <cstddef>

namespace perf {

class Buffer {
  public:
    static constexpr std::size_t guard = 4096;
    // No value that a sum or product would drive into slow denormals, in any type.
    static constexpr std::byte poison{0x41};

    /// `size` bytes between the guards. Exits if there is no such memory.
    Buffer(std::size_t size, bool mapped);
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer();

    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }

  private:
    void* base_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    bool mapped_ = false;
};

}  // namespace perf
