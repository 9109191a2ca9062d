#include "transport/regions.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/result.hpp"

namespace tutti {
namespace {

struct Table {
    std::shared_mutex mutex;
    std::map<const std::byte*, std::shared_ptr<Region>> by_base;
    std::atomic<std::size_t> living{0};
    std::atomic<std::uint64_t> freed{0};
    std::atomic<std::uint64_t> next_id{1};
};

Table& table() {
    static Table* instance = new Table;  // outlives every communicator, also those destroyed at exit
    return *instance;
}

}  // namespace

Region::Region(std::size_t size) : id_(table().next_id.fetch_add(1)) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (size > SIZE_MAX / 2) fail(tuttiInvalidArgument, "cannot allocate %zu bytes", size);
    const std::size_t rounded = size == 0 ? page : (size + page - 1) / page * page;
    fd_ = make_memfd("tutti-memory", rounded);
    mapping_ = Mapping::of(fd_);
    madvise(mapping_.base(), rounded, MADV_HUGEPAGE);  // a wish; fails where huge pages are off
    // Reserved now, so that memory which is not there is an error here and not a SIGBUS later.
    if (fallocate(fd_.get(), 0, 0, static_cast<off_t>(rounded)) != 0)
        fail_errno("allocating %zu bytes of shareable memory failed", rounded);
}

Region::~Region() {
    // Peers may have it mapped still; give the pages back all the same.
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
    if (found == table().by_base.end())
        fail(tuttiInvalidArgument,
             "tuttiMemFree: %p is not the start of memory from tuttiMemAlloc, or was freed before", pointer);
    last = std::move(found->second);
    table().by_base.erase(found);
    table().living.fetch_sub(1);
    table().freed.fetch_add(1);
    lock.unlock();
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
