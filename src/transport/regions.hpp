// Memory of tuttiMemAlloc: memfds that peers on this host can map, so that messages from and to it need no copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/os.hpp"

namespace tutti {

class Region {
  public:
    explicit Region(std::size_t size);
    ~Region();
    std::uint64_t id() const { return id_; }  // never 0, never used again
    std::byte* base() const { return mapping_.base(); }
    std::size_t size() const { return mapping_.size(); }
    const Fd& fd() const { return fd_; }

  private:
    std::uint64_t id_;
    Fd fd_;
    Mapping mapping_;
};

/// At least one page. Throws tuttiSystemError when memory or descriptors are exhausted.
void* allocate_region(std::size_t size);

/// Throws tuttiInvalidArgument if pointer is not the start of a living region.
void free_region(void* pointer);

/// The region that holds all of [pointer, pointer + size); nullptr if there is none.
std::shared_ptr<Region> find_region(const void* pointer, std::size_t size);

/// How many regions this process has freed so far: whoever keeps something of a region looks here whether to let go.
std::uint64_t freed_regions();

/// Whether the region with this id lives.
bool region_lives(std::uint64_t id);

}  // namespace tutti
