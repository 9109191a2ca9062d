#include "harness/guarded.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace tutti::harness {
namespace {

std::size_t page() {
    static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

}  // namespace

Guarded::Guarded(std::size_t bytes, At at)
    : room_size_(std::max<std::size_t>(1, (bytes + page() - 1) / page()) * page()),
      begin_(at == At::front ? 0 : room_size_ - bytes),
      size_(bytes) {
    void* const all = mmap(nullptr, room_size_ + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    room_ = static_cast<unsigned char*>(all) + page();
    if (mprotect(room_, room_size_, PROT_READ | PROT_WRITE) != 0) {
        munmap(all, room_size_ + 2 * page());
        throw std::bad_alloc();
    }
    madvise(room_, room_size_, MADV_HUGEPAGE);  // to be filled, small pages take twice as long
    std::memset(room_, untouched_byte, room_size_);
}

Guarded::~Guarded() {
    munmap(room_ - page(), room_size_ + 2 * page());
}

bool Guarded::untouched(std::size_t from, std::size_t used) const {
    const unsigned char* const first = data() + from;
    return harness::untouched(room_, first) && harness::untouched(first + used, room_ + room_size_);
}

bool untouched(const unsigned char* first, const unsigned char* last) {  // each is as the one before it
    const auto bytes = static_cast<std::size_t>(last - first);
    return bytes == 0 || (*first == untouched_byte && std::memcmp(first, first + 1, bytes - 1) == 0);
}

}  // namespace tutti::harness
