// Buffers that detect accesses beyond their ends.
#pragma once

#include <cstddef>

namespace tutti::harness {

/// The fill byte of memory around buffers. untouched(): true if all bytes of [first, last) have it.
constexpr unsigned char untouched_byte = 0xa5;
bool untouched(const unsigned char* first, const unsigned char* last);

/// A buffer between two inaccessible pages. It lies at the front or at the back of the memory between them, and an
/// access beyond that end is a segmentation fault, with any compiler. The rest of the memory, less than a page, has a
/// fill pattern that must not change.
class Guarded {
  public:
    enum class At { front, back };

    Guarded(std::size_t bytes, At at);
    Guarded(const Guarded&) = delete;
    ~Guarded();

    unsigned char* data() const { return room_ + begin_; }
    std::size_t size() const { return size_; }

    /// True if all memory outside of [data() + from, data() + from + used) still has the fill pattern.
    bool untouched(std::size_t from, std::size_t used) const;
    bool untouched() const { return untouched(0, size_); }

  private:
    unsigned char* room_;
    std::size_t room_size_, begin_, size_;
};

}  // namespace tutti::harness
