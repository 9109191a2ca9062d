// Memory that nobody can leave unseen.
#pragma once

#include <cstddef>

namespace tutti::harness {

/// What memory around a buffer is filled with, and whether [first, last) still is.
constexpr unsigned char untouched_byte = 0xa5;
bool untouched(const unsigned char* first, const unsigned char* last);

/// Bytes between two pages without access: a read or a write beyond one end ends the program, whatever code does it
/// and whatever it was compiled with. They lie at the front or at the back of what is between the pages; the rest, less
/// than a page, has a pattern that must not change.
class Guarded {
  public:
    enum class At { front, back };

    Guarded(std::size_t bytes, At at);
    Guarded(const Guarded&) = delete;
    ~Guarded();

    unsigned char* data() const { return room_ + begin_; }
    std::size_t size() const { return size_; }

    /// Whether the pattern is as it was, but for `used` bytes from data() + `from` on.
    bool untouched(std::size_t from, std::size_t used) const;
    bool untouched() const { return untouched(0, size_); }

  private:
    unsigned char* room_;
    std::size_t room_size_, begin_, size_;
};

}  // namespace tutti::harness
