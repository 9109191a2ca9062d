#include "transport/lent.hpp"

#include <algorithm>

namespace tutti {

void LentMemory::lend(std::uint32_t gate, std::uint32_t key, std::span<std::byte> memory) {
    const std::lock_guard lock(mutex_);
    if (gate >= parts_.size()) parts_.resize(gate + std::size_t{1});
    parts_[gate] = {key, memory};
}

void LentMemory::take_back(std::uint32_t gate) {
    const std::lock_guard lock(mutex_);
    if (gate < parts_.size()) parts_[gate] = {};
}

void LentMemory::take_all_back() {
    const std::lock_guard lock(mutex_);
    std::ranges::fill(parts_, Part{});
}

LentMemory::Written LentMemory::write(std::uint32_t gate, std::uint32_t key, std::uint64_t offset,
                                      std::span<const std::byte> data) {
    const std::lock_guard lock(mutex_);
    if (gate >= parts_.size() || key == 0 || parts_[gate].key != key) return Written::not_lent;
    const std::span<std::byte> memory = parts_[gate].memory;
    if (offset > memory.size() || data.size() > memory.size() - offset) return Written::out_of_bounds;
    std::ranges::copy(data, memory.begin() + static_cast<std::ptrdiff_t>(offset));
    return Written::done;
}

}  // namespace tutti
