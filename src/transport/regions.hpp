// Regions: memory that peers on this host can map, so that messages from and to it need no copy. A region is a memfd.
// It is new memory (tuttiMemAlloc), or replaces private pages and keeps their content (tuttiCommRegister). All
// functions here may be called from any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/os.hpp"

namespace tutti {

/// One such memory. The table of regions owns it, with those that find_region() gave it to. Immutable but for
/// `registered`, which the table's lock guards.
class Region {
  public:
    /// New memory. Throws tuttiSystemError when memory or descriptors are exhausted.
    explicit Region(std::size_t size);
    /// Replaces the private pages [begin, begin + size) and keeps their content.
    Region(std::byte* begin, std::size_t size);
    ~Region();
    std::uint64_t id() const { return id_; }  // never 0, never used again
    std::byte* base() const { return base_; }
    std::size_t size() const { return size_; }
    const Fd& fd() const { return fd_; }

    /// Puts private pages with the same content in its place. Throws tuttiInvalidUsage if it does not lie there any
    /// more, and tuttiSystemError.
    void give_back();
    int registered = 0;  // how many registrations hold it; 0 if it comes from allocate_region()

  private:
    void make(std::size_t size);
    std::uint64_t id_;
    pid_t process_;  // that made it
    Fd fd_;
    Mapping mapping_;  // of allocated memory only
    std::byte* base_ = nullptr;
    std::size_t size_ = 0;
};

/// Allocates size bytes, rounded up to whole pages, at least one. Throws tuttiSystemError when memory or descriptors
/// are exhausted.
void* allocate_region(std::size_t size);

/// Frees memory of allocate_region(). Throws tuttiInvalidArgument if pointer is not the start of such memory.
void free_region(void* pointer);

/// Makes the whole pages inside [pointer, pointer + size) mappable, unless they are already. No thread may use the
/// range meanwhile. Returns a handle for deregister_memory(). Throws tuttiInvalidArgument if the range is not writable
/// private memory (but a file, a stack, shared memory, nothing), or overlaps a region without lying inside it.
void* register_memory(void* pointer, std::size_t size);

/// Ends a registration. The last one that holds the pages makes them private again. Throws tuttiInvalidArgument if the
/// handle is no registration, tuttiInvalidUsage if the buffer was unmapped before, and tuttiSystemError, after which
/// the registration still stands.
void deregister_memory(void* registration);

/// The region that holds all of [pointer, pointer + size); nullptr if there is none.
std::shared_ptr<Region> find_region(const void* pointer, std::size_t size);

/// The part of memory that lies in a region; in the first one if there are several. Empty if there is none.
std::span<std::byte> part_in_region(std::span<std::byte> memory);

/// Calls a function for every region that is freed, on the thread that frees it, while the memory is still there.
class RegionWatch {
  public:
    /// gone: takes the region's id. It must not wait for other threads, and must not call functions of this file.
    explicit RegionWatch(std::function<void(std::uint64_t id)> gone);
    ~RegionWatch();
    RegionWatch(const RegionWatch&) = delete;
    void tell(std::uint64_t id) const { gone_(id); }

  private:
    const std::function<void(std::uint64_t id)> gone_;
};

/// How many regions this process has freed so far. A cache of regions is stale if this has changed.
std::uint64_t freed_regions();

/// Whether the region with this id lives.
bool region_lives(std::uint64_t id);

}  // namespace tutti
