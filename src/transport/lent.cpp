#include "transport/lent.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"

namespace tutti {

void LentMemory::lend(std::uint32_t gate, std::uint32_t key, std::span<std::byte> memory, std::span<std::byte> reach,
                      std::vector<Registered> known) {
    const std::lock_guard lock(mutex_);
    if (gate >= parts_.size()) parts_.resize(gate + std::size_t{1});
    parts_[gate] = {key, memory, reach, std::move(known)};
}

void LentMemory::take_back(std::uint32_t gate) {
    const std::lock_guard lock(mutex_);
    if (gate < parts_.size()) parts_[gate] = {};
}

void LentMemory::take_all_back() {
    const std::lock_guard lock(mutex_);
    parts_.clear();
}

bool LentMemory::lends_any() {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(parts_, [](const Part& part) { return part.key != 0; });
}

std::optional<LentMemory::Reach> LentMemory::reach(std::uint32_t gate, std::uint32_t key, const void* adapter) {
    const std::lock_guard lock(mutex_);
    if (gate >= parts_.size() || key == 0 || parts_[gate].key != key) return std::nullopt;
    const Part& part = parts_[gate];
    const auto known = std::ranges::find(part.known, adapter, &Registered::adapter);
    if (known == part.known.end()) return std::nullopt;
    return Reach{part.reach, static_cast<std::uint64_t>(part.reach.data() - part.memory.data()), known->remote_key};
}

/// Hold mutex_.
LentMemory::Access LentMemory::find(std::uint32_t gate, std::uint32_t key, std::uint64_t offset, std::uint64_t bytes,
                                    std::span<std::byte>& found) {
    if (gate >= parts_.size() || key == 0 || parts_[gate].key != key) return Access::not_lent;
    const std::span<std::byte> memory = parts_[gate].memory;
    if (offset > memory.size() || bytes > memory.size() - offset) return Access::out_of_bounds;
    found = memory.subspan(offset, bytes);
    return Access::done;
}

LentMemory::Access LentMemory::write(std::uint32_t gate, std::uint32_t key, std::uint64_t offset,
                                     std::span<const std::byte> data) {
    const std::lock_guard lock(mutex_);
    std::span<std::byte> memory;
    const Access access = find(gate, key, offset, data.size(), memory);
    std::ranges::copy(data.first(memory.size()), memory.begin());
    return access;
}

LentMemory::Access LentMemory::read(std::uint32_t gate, std::uint32_t key, std::uint64_t offset,
                                    std::span<std::byte> data) {
    const std::lock_guard lock(mutex_);
    std::span<std::byte> memory;
    const Access access = find(gate, key, offset, data.size(), memory);
    std::ranges::copy(memory, data.begin());
    return access;
}

LentMemory::Access LentMemory::look(std::uint32_t gate, std::uint32_t key, std::uint64_t offset, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    std::span<std::byte> memory;
    return find(gate, key, offset, bytes, memory);
}

void AwaitedMemory::expect(Rank peer, std::span<std::byte> memory) {
    const std::lock_guard lock(mutex_);
    gets_[peer].push_back({memory});
}

void AwaitedMemory::forget(Rank peer) {
    const std::lock_guard lock(mutex_);
    const auto found = gets_.find(peer);
    if (found != gets_.end() && !found->second.empty()) found->second.pop_front();
}

void AwaitedMemory::forget_all() {
    const std::lock_guard lock(mutex_);
    gets_.clear();
}

AwaitedMemory::State AwaitedMemory::state(Rank peer) {
    const std::lock_guard lock(mutex_);
    const auto found = gets_.find(peer);
    if (found == gets_.end() || found->second.empty()) return {};
    const Get& first = found->second.front();
    return {found->second.size(), first.answered, first.rest.size()};
}

std::size_t AwaitedMemory::unanswered(Rank peer) {
    const std::lock_guard lock(mutex_);
    const auto found = gets_.find(peer);
    if (found == gets_.end()) return 0;
    return static_cast<std::size_t>(std::ranges::count(found->second, false, &Get::answered));
}

/// The oldest get from that peer that is not complete; nullptr if there is none. Hold mutex_.
AwaitedMemory::Get* AwaitedMemory::next(Rank peer) {
    const auto found = gets_.find(peer);
    if (found == gets_.end()) return nullptr;
    const auto get = std::ranges::find(found->second, false, &Get::answered);
    return get == found->second.end() ? nullptr : &*get;
}

bool AwaitedMemory::fill(Rank peer, std::span<const std::byte> data) {
    const std::lock_guard lock(mutex_);
    Get* const get = next(peer);
    if (get == nullptr || data.size() > get->rest.size() || (data.empty() && !get->rest.empty())) return false;
    std::ranges::copy(data, get->rest.begin());
    get->go_on(data.size());
    return true;
}

std::span<std::byte> AwaitedMemory::wanted(Rank peer) {
    const std::lock_guard lock(mutex_);
    const Get* const get = next(peer);
    return get == nullptr ? std::span<std::byte>() : get->rest;
}

void AwaitedMemory::filled(Rank peer, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (Get* const get = next(peer)) get->go_on(std::min(bytes, get->rest.size()));
}

}  // namespace tutti
