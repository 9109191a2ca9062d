#include "ptx_races.hpp"

#include <algorithm>

#include "ptx_code.hpp"

namespace tutti::ptx {
namespace {

constexpr std::uint16_t several = 0xffff;

void note(std::uint16_t& users, std::uint16_t user) {
    users = users == 0 || users == user ? user : several;
}
bool others(std::uint16_t users, std::uint16_t user) {
    return users != 0 && users != user;
}

}  // namespace

void Races::use(const std::byte* at, std::size_t size, std::uint32_t thread, Kind kind, const char* space) {
    const auto user = static_cast<std::uint16_t>(thread + 1);
    for (std::size_t n = 0; n < size;) {
        const std::byte* const byte = at + n;
        const std::size_t first = reinterpret_cast<std::uintptr_t>(byte) % 8;
        Word& w = words_[byte - first];
        if (w.epoch != epoch_) w = {epoch_, {}, {}, {}};
        for (std::size_t b = first; b < 8 && n < size; ++b, ++n) {
            const bool stores = kind == Kind::store || kind == Kind::strong_store;
            const bool strong = kind == Kind::strong_load || kind == Kind::strong_store;
            if (others(w.stored[b], user) || (stores && others(w.loaded[b], user)) ||
                (!strong && others(w.strong[b], user)))
                fault("a race: thread %u %s %zu bytes of %s memory that another one has %s since the last barrier",
                      thread, stores ? "stores" : "loads", size, space,
                      others(w.stored[b], user) || others(w.strong[b], user) ? "stored" : "loaded");
            if (kind == Kind::load) note(w.loaded[b], user);
            if (kind == Kind::store) note(w.stored[b], user);
            if (kind == Kind::strong_store) note(w.strong[b], user);
        }
    }
    if (words_.size() <= most_) return;
    std::erase_if(words_, [&](const auto& w) { return w.second.epoch != epoch_; });
    most_ = std::max(most_, 2 * words_.size());
}

}  // namespace tutti::ptx
