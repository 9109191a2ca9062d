#include "ptx_races.hpp"

#include <algorithm>

#include "ptx_code.hpp"

namespace tutti::ptx {
namespace {

constexpr std::uint16_t several = 0xffff;

}  // namespace

void Races::note(Users& users, std::uint32_t thread) const {
    const auto user = static_cast<std::uint16_t>(thread + 1);
    if (users.thread == 0 || order_.is_before(users.last, users.warps, thread)) users = {};
    users.thread = users.thread == 0 || users.thread == user ? user : several;
    users.warps |= bit_of_warp(thread);
    users.last = order_.now();
}

/// Whether others have used it, with no barrier of theirs and the thread's since.
bool Races::has_others(const Users& users, std::uint32_t thread) const {
    return users.thread != 0 && users.thread != thread + 1 && !order_.is_before(users.last, users.warps, thread);
}

void Races::use(const std::byte* at, std::size_t size, std::uint32_t thread, Kind kind, const char* space) {
    for (std::size_t n = 0; n < size;) {
        const std::byte* const byte = at + n;
        const std::size_t first = reinterpret_cast<std::uintptr_t>(byte) % 8;
        Word& w = words_[byte - first];
        if (w.epoch != epoch_) w = {epoch_, {}, {}, {}};
        for (std::size_t b = first; b < 8 && n < size; ++b, ++n) {
            const bool stores = kind == Kind::store || kind == Kind::strong_store;
            const bool strong = kind == Kind::strong_load || kind == Kind::strong_store;
            if (has_others(w.stored[b], thread) || (stores && has_others(w.loaded[b], thread)) ||
                (!strong && has_others(w.strong[b], thread)))
                fault("a race: thread %u %s %zu bytes of %s memory that another one has %s since the last barrier",
                      thread, stores ? "stores" : "loads", size, space,
                      has_others(w.stored[b], thread) || has_others(w.strong[b], thread) ? "stored" : "loaded");
            if (kind == Kind::load) note(w.loaded[b], thread);
            if (kind == Kind::store) note(w.stored[b], thread);
            if (kind == Kind::strong_store) note(w.strong[b], thread);
        }
    }
    if (words_.size() <= most_) return;
    std::erase_if(words_, [&](const auto& w) { return w.second.epoch != epoch_; });
    most_ = std::max(most_, 2 * words_.size());
}

}  // namespace tutti::ptx
