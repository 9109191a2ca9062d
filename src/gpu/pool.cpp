#include "gpu/pool.hpp"

namespace tutti::gpu {
namespace {

std::size_t whole(std::size_t bytes) {
    return (bytes + Pool::alignment - 1) / Pool::alignment * Pool::alignment;
}

}  // namespace

Pool::Pool(Gpus& gpus, int device, std::size_t bytes)
    : gpus_(gpus), device_(device), memory_(gpus.allocate(device, bytes)), free_{{memory_, bytes}} {}

Pool::~Pool() {
    gpus_.free(device_, memory_);
}

/// First fit.
std::byte* Pool::take(std::size_t bytes) {
    const std::size_t size = whole(bytes);
    const std::lock_guard lock(mutex_);
    for (auto part = free_.begin(); part != free_.end(); ++part) {
        if (part->second < size) continue;
        const auto [at, room] = *part;
        free_.erase(part);
        if (room > size) free_[at + size] = room - size;
        return at;
    }
    return nullptr;
}

void Pool::give_back(std::byte* part, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    auto own = free_.emplace(part, whole(bytes)).first;
    if (own != free_.begin())
        if (const auto before = std::prev(own); before->first + before->second == own->first) {
            before->second += own->second;
            free_.erase(own);
            own = before;
        }
    if (const auto after = std::next(own); after != free_.end() && own->first + own->second == after->first) {
        own->second += after->second;
        free_.erase(after);
    }
}

Memory::Memory(Pool& pool, std::size_t bytes) : gpus_(&pool.gpus()), device_(pool.device()) {
    if (bytes == 0) return;
    if ((at_ = pool.take(bytes)) != nullptr)
        pool_ = &pool, bytes_ = bytes;
    else
        at_ = gpus_->allocate(device_, bytes);
}

Memory::~Memory() {
    if (at_ == nullptr) return;
    if (pool_ != nullptr)
        pool_->give_back(at_, bytes_);
    else
        gpus_->free(device_, at_);
}

}  // namespace tutti::gpu
