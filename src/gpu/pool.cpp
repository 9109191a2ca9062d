#include "gpu/pool.hpp"

namespace tutti::gpu {
namespace {

std::size_t whole(std::size_t bytes) {
    return (bytes + Pool::alignment - 1) / Pool::alignment * Pool::alignment;
}

}  // namespace

Pool::Pool(Gpus& gpus, int device, std::size_t bytes)
    : gpus_(gpus), device_(device), memory_(gpus.allocate(device, bytes)), parts_{{memory_, {bytes, true}}} {}

Pool::~Pool() {
    gpus_.free(device_, memory_);
}

/// First fit.
std::byte* Pool::take(std::size_t bytes) {
    const std::size_t size = whole(bytes);
    const std::lock_guard lock(mutex_);
    for (auto& [at, part] : parts_) {
        if (!part.free || part.bytes < size) continue;
        if (part.bytes > size) parts_[at + size] = {part.bytes - size, true};
        part = {size, false};
        return at;
    }
    return nullptr;
}

void Pool::give_back(std::byte* part) noexcept {
    const std::lock_guard lock(mutex_);
    auto own = parts_.find(part);
    own->second.free = true;
    if (own != parts_.begin())
        if (const auto before = std::prev(own); before->second.free) {
            before->second.bytes += own->second.bytes;
            parts_.erase(own);
            own = before;
        }
    if (const auto after = std::next(own); after != parts_.end() && after->second.free) {
        own->second.bytes += after->second.bytes;
        parts_.erase(after);
    }
}

Memory::Memory(Pool& pool, std::size_t bytes) : gpus_(&pool.gpus()), device_(pool.device()) {
    if (bytes == 0) return;
    if ((at_ = pool.take(bytes)) != nullptr)
        pool_ = &pool;
    else
        at_ = gpus_->allocate(device_, bytes);
}

Memory::~Memory() {
    if (at_ == nullptr) return;
    if (pool_ != nullptr)
        pool_->give_back(at_);
    else
        gpus_->free(device_, at_);
}

}  // namespace tutti::gpu
