// Memory that peers on this host can map, so that messages from and to it need no copy: memfds, either new ones
// (tuttiMemAlloc), or put in the place of private memory with its content (tuttiCommRegister).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/os.hpp"

namespace tutti {

class Region {
  public:
    explicit Region(std::size_t size);
    /// Takes the place of the private pages [begin, begin + size).
    Region(std::byte* begin, std::size_t size);
    ~Region();
    std::uint64_t id() const { return id_; }  // never 0, never used again
    std::byte* base() const { return base_; }
    std::size_t size() const { return size_; }
    const Fd& fd() const { return fd_; }

    /// Private pages with the same content take its place in turn, if it still lies there.
    void give_back();
    int registered = 0;  // how many registrations hold it; 0: it is of allocate_region()

  private:
    void make(std::size_t size);
    std::uint64_t id_;
    Fd fd_;
    Mapping mapping_;  // of an allocated one
    std::byte* base_ = nullptr;
    std::size_t size_ = 0;
};

/// At least one page. Throws tuttiSystemError when memory or descriptors are exhausted.
void* allocate_region(std::size_t size);

/// Throws tuttiInvalidArgument if pointer is not the start of a living region.
void free_region(void* pointer);

/// Makes the whole pages of [pointer, pointer + size) mappable; without effect where they are already. Nobody may use
/// the range meanwhile. Throws tuttiInvalidArgument if it is not private memory that can be written (a file, a stack,
/// shared memory, nothing), or overlaps what is registered without being a part of it.
void* register_memory(void* pointer, std::size_t size);

/// The inverse, with the last registration that holds the pages. Throws tuttiInvalidArgument for what is no
/// registration.
void deregister_memory(void* registration);

/// The region that holds all of [pointer, pointer + size); nullptr if there is none.
std::shared_ptr<Region> find_region(const void* pointer, std::size_t size);

/// Hears of every region that goes, while its memory is still there, from the thread that frees it.
class RegionWatch {
  public:
    /// gone: given the region's id. It neither waits for its caller nor asks for regions.
    explicit RegionWatch(std::function<void(std::uint64_t id)> gone);
    ~RegionWatch();
    RegionWatch(const RegionWatch&) = delete;
    void tell(std::uint64_t id) const { gone_(id); }

  private:
    const std::function<void(std::uint64_t id)> gone_;
};

/// How many regions this process has freed so far: whoever keeps something of a region looks here whether to let go.
std::uint64_t freed_regions();

/// Whether the region with this id lives.
bool region_lives(std::uint64_t id);

}  // namespace tutti
