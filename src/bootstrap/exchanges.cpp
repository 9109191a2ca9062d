#include "bootstrap/exchanges.hpp"

namespace tutti::bootstrap {
namespace {

constexpr std::size_t most_exchanges = 64;  // under way or given up
// Ended exchanges that others may still need. No rank is ahead by more than one call, which makes at most two.
constexpr std::size_t most_over = 4;

}  // namespace

bool Exchanges::note(std::uint64_t number, Rank rank, const Bytes& bytes) {
    return monitor_.change([&] {
        if (over_.contains(number) || !notes_[number].emplace(rank, bytes).second) return false;
        // No rank is so many exchanges ahead of this one, so the earliest has been given up here.
        if (notes_.size() > most_exchanges) notes_.erase(notes_.begin());
        return true;
    });
}

Exchanges::Told Exchanges::wait(std::uint64_t number, Deadline deadline) {
    Told result;
    const auto over = [&] {
        const auto& told = notes_[number];
        bool gone = false;
        for (Rank r = 0; r < ranks_ && !gone; ++r) {
            if (told.contains(r)) continue;
            result.missing = r;
            gone = news_.is_gone_locked(r);
        }
        return gone || news_.left_locked() || told.size() == static_cast<std::size_t>(ranks_);
    };
    result.in_time = monitor_.wait(deadline, over);
    monitor_.look([&] {
        auto told = notes_.extract(number);
        if (told.empty()) return;  // another thread also waited for this exchange, and took it
        for (const auto& [rank, bytes] : told.mapped()) result.all.push_back(bytes);
        if (told.mapped().size() < static_cast<std::size_t>(ranks_)) return;
        over_.insert(std::move(told));
        if (over_.size() > most_over) over_.erase(over_.begin());
    });
    return result;
}

std::vector<Note> Exchanges::all() const {
    return monitor_.look([&] {
        std::vector<Note> all;
        for (const Notes* const notes : {&over_, &notes_})
            for (const auto& [number, told] : *notes)
                for (const auto& [rank, bytes] : told) all.push_back({rank, number, bytes});
        return all;
    });
}

}  // namespace tutti::bootstrap
