#include "transport/regions.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <vector>

#include "base/memory.hpp"
#include "base/result.hpp"

namespace tutti {
namespace {

/// What a handle of tuttiCommRegister points to.
struct Registration {
    std::shared_ptr<Region> region;  // nullptr: no whole page, or memory of tuttiMemAlloc
};

struct Table {
    std::shared_mutex mutex;
    std::set<Registration*> registrations;
    std::map<const std::byte*, std::shared_ptr<Region>> by_base;
    std::atomic<std::size_t> living{0};
    std::atomic<std::uint64_t> freed{0};
    std::atomic<std::uint64_t> next_id{1};
    std::mutex watches_mutex;
    std::set<RegionWatch*> watches;
};

Table& table() {
    static Table* instance = new Table;  // outlives every communicator, also those destroyed at exit
    return *instance;
}

const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

/// One line of /proc/self/maps.
struct Area {
    std::uintptr_t begin = 0, end = 0;
    std::string rights, offset, device, path;
    unsigned long long inode = 0;
};

/// The areas that overlap [begin, end), in their order.
std::vector<Area> areas_of(std::uintptr_t begin, std::uintptr_t end) {
    std::vector<Area> areas;
    std::istringstream maps(read_file("/proc/self/maps"));
    maps.exceptions(std::ios::badbit);  // else a lack of memory would pass for the end of the list
    for (std::string line; std::getline(maps, line);) {
        std::istringstream words(line);
        words.exceptions(std::ios::badbit);
        Area a;
        char dash;
        words >> std::hex >> a.begin >> dash >> a.end >> a.rights >> a.offset >> a.device >> std::dec >> a.inode;
        std::getline(words >> std::ws, a.path);
        if (a.begin < end && a.end > begin) areas.push_back(a);
    }
    return areas;
}

void check_private(std::uintptr_t begin, std::uintptr_t end) {
    std::uintptr_t seen = begin;
    for (const Area& a : areas_of(begin, end)) {
        if (a.begin > seen) break;
        const bool ours = a.rights == "rw-p" && a.inode == 0 && !a.path.starts_with("[stack");
        if (!ours)
            fail(tuttiInvalidArgument, "%#llx, inside the buffer, is %s%s%s: only private memory can be registered",
                 static_cast<unsigned long long>(std::max(a.begin, begin)), a.rights.c_str(), a.path.empty() ? "" : " ",
                 a.path.c_str());
        seen = a.end;
    }
    if (seen < end)
        fail(tuttiInvalidArgument, "there is no memory at %#llx, inside the buffer",
             static_cast<unsigned long long>(seen));
}

/// Moves the mapping at `from` over the one at `to`, atomically. Unmaps it and throws if that fails.
void move_over(void* from, void* to, std::size_t size) {
    if (mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to) return;
    const int error = errno;
    munmap(from, size);
    errno = error;
    fail_errno("remapping %zu bytes failed", size);
}

void tell_of(std::uint64_t id) {
    const std::lock_guard lock(table().watches_mutex);
    for (const RegionWatch* watch : table().watches) watch->tell(id);
}

}  // namespace

RegionWatch::RegionWatch(std::function<void(std::uint64_t id)> gone) : gone_(std::move(gone)) {
    const std::lock_guard lock(table().watches_mutex);
    table().watches.insert(this);
}

RegionWatch::~RegionWatch() {
    const std::lock_guard lock(table().watches_mutex);
    table().watches.erase(this);
}

void Region::make(std::size_t size) {
    // Reserving more memory than there is would not fail, but the kernel would kill processes.
    if (const std::size_t most = available_memory(); size > most)
        fail(tuttiSystemError, "allocating %zu bytes of shareable memory failed: %zu are available", size, most);
    size_ = size;
    fd_ = make_memfd("tutti-memory", size);
    // Reserves the pages now, so that a lack of memory is an error here and not a SIGBUS later.
    if (fallocate(fd_.get(), 0, 0, static_cast<off_t>(size)) != 0)
        fail_errno("allocating %zu bytes of shareable memory failed", size);
}

Region::Region(std::size_t size) : id_(table().next_id.fetch_add(1)), process_(getpid()) {
    if (size > SIZE_MAX / 2) fail(tuttiInvalidArgument, "cannot allocate %zu bytes", size);
    make(size == 0 ? page : (size + page - 1) / page * page);
    mapping_ = Mapping::of(fd_);
    base_ = mapping_.base();
    madvise(base_, size_, MADV_HUGEPAGE);  // a hint; fails where huge pages are off
}

Region::Region(std::byte* begin, std::size_t size)
    : id_(table().next_id.fetch_add(1)), process_(getpid()), base_(begin) {
    make(size);
    void* draft = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (draft == MAP_FAILED) fail_errno("mapping %zu bytes of shared memory failed", size);
    std::memcpy(draft, begin, size);
    move_over(draft, begin, size);
}

void Region::give_back() {
    struct stat info {};
    const auto begin = reinterpret_cast<std::uintptr_t>(base_);
    const std::vector<Area> areas = areas_of(begin, begin + size_);
    // If the user has unmapped the buffer, other memory may lie there now, which must not be replaced.
    if (fstat(fd_.get(), &info) != 0 || areas.size() != 1 || areas[0].inode != info.st_ino || areas[0].begin > begin ||
        areas[0].end < begin + size_)
        fail(tuttiInvalidUsage, "the buffer at %p was unmapped before it was deregistered", static_cast<void*>(base_));
    void* draft = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (draft == MAP_FAILED) fail_errno("allocating %zu bytes failed", size_);
    std::memcpy(draft, base_, size_);
    move_over(draft, base_, size_);
}

Region::~Region() {
    if (process_ != getpid()) return;  // a forked child's, which shares the pages with its parent
    // Frees the pages now, since peers may still have the file mapped.
    if (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size())) != 0) errno = 0;
}

void* allocate_region(std::size_t size) {
    auto region = std::make_shared<Region>(size);
    std::unique_lock lock(table().mutex);
    table().by_base[region->base()] = region;
    table().living.fetch_add(1);
    return region->base();
}

void free_region(void* pointer) {
    std::shared_ptr<Region> last;
    std::unique_lock lock(table().mutex);
    auto found = table().by_base.find(static_cast<const std::byte*>(pointer));
    if (found == table().by_base.end() || found->second->registered > 0)
        fail(tuttiInvalidArgument,
             "tuttiMemFree: %p is not the start of memory from tuttiMemAlloc, or was freed before", pointer);
    last = std::move(found->second);
    table().by_base.erase(found);
    table().living.fetch_sub(1);
    table().freed.fetch_add(1);
    lock.unlock();
    tell_of(last->id());
}

void* register_memory(void* pointer, std::size_t size) {
    const auto at = reinterpret_cast<std::uintptr_t>(pointer);
    const std::uintptr_t begin = (at + page - 1) / page * page, end = (at + size) / page * page;
    auto registration = std::make_unique<Registration>();
    std::unique_lock lock(table().mutex);
    if (begin < end) {
        auto* const first = reinterpret_cast<std::byte*>(begin);
        std::shared_ptr<Region> region;
        for (const auto& [base, r] : table().by_base) {
            if (base >= first + (end - begin) || base + r->size() <= first) continue;
            if (base > first || base + r->size() < first + (end - begin))
                fail(tuttiInvalidArgument,
                     "the buffer overlaps one of %zu bytes at %p that is registered, or of tuttiMemAlloc", r->size(),
                     static_cast<const void*>(base));
            region = r;
        }
        if (!region) {
            check_private(begin, end);
            region = std::make_shared<Region>(first, end - begin);
            table().by_base[first] = region;
            table().living.fetch_add(1);
            region->registered = 1;
        } else if (region->registered > 0) {
            ++region->registered;
        } else {
            region = nullptr;  // memory of tuttiMemAlloc is mappable already
        }
        registration->region = std::move(region);
    }
    table().registrations.insert(registration.get());
    return registration.release();
}

void deregister_memory(void* handle) {
    std::unique_lock lock(table().mutex);
    auto* const registration = static_cast<Registration*>(handle);
    if (!table().registrations.contains(registration))
        fail(tuttiInvalidArgument, "%p is no registration, or was deregistered before", handle);
    const std::shared_ptr<Region> region = registration->region;
    std::optional<Error> gone;
    if (region && region->registered == 1) {
        tell_of(region->id());
        try {
            region->give_back();
        } catch (const Error& error) {
            if (error.code() == tuttiSystemError) throw;  // the registration stands
            gone = error;
        }
    }
    table().registrations.erase(registration);
    delete registration;
    if (region && --region->registered == 0) {
        table().by_base.erase(region->base());
        table().living.fetch_sub(1);
        table().freed.fetch_add(1);
    }
    if (gone) throw *gone;
}

std::shared_ptr<Region> find_region(const void* pointer, std::size_t size) {
    if (table().living.load(std::memory_order_relaxed) == 0) return nullptr;
    const auto* at = static_cast<const std::byte*>(pointer);
    std::shared_lock lock(table().mutex);
    auto after = table().by_base.upper_bound(at);
    if (after == table().by_base.begin()) return nullptr;
    const std::shared_ptr<Region>& region = std::prev(after)->second;
    const auto offset = static_cast<std::size_t>(at - region->base());
    if (offset > region->size() || size > region->size() - offset) return nullptr;
    return region;
}

std::span<std::byte> part_in_region(std::span<std::byte> memory) {
    std::byte *const begin = memory.data(), *const end = begin + memory.size();
    std::shared_lock lock(table().mutex);
    for (const auto& [base, region] : table().by_base) {
        std::byte *const first = std::max(begin, region->base()), *const last =
                                                                      std::min(end, region->base() + region->size());
        if (first < last) return {first, last};
    }
    return {};
}

std::uint64_t freed_regions() {
    return table().freed.load(std::memory_order_acquire);
}

bool region_lives(std::uint64_t id) {
    std::shared_lock lock(table().mutex);
    for (const auto& [base, region] : table().by_base)
        if (region->id() == id) return true;
    return false;
}

}  // namespace tutti
