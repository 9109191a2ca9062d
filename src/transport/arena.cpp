#include "transport/arena.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <new>
#include <string>
#include <string_view>

#include "base/by_key.hpp"
#include "base/result.hpp"
#include "transport/numbering.hpp"

namespace tutti {

std::uint32_t first_message = 0;

namespace {

constexpr char label[] = "tutti-arena";

ByKey<Arena>& arenas() {
    static auto* const all = new ByKey<Arena>;  // outlives every communicator, also those destroyed at exit
    return *all;
}

/// Sets all credits and cells as if the messages before that one had been sent and released.
void number_from(std::uint32_t message, const Arena& arena, int ranks) {
    const auto number = [message](const Wire& wire) {
        wire.credits() = message;
        for (Cell& cell : std::span(wire.ring, wire.depth)) cell.turn = message;
    };
    for (Rank peer = 0; peer < ranks; ++peer)
        for (int channel = 0; channel < channels_per_link; ++channel) {
            number(arena.wire(peer, channel, nullptr));
            if (channel < program_channels) number(arena.wire_to_all(peer, arena, channel, nullptr));
        }
}

}  // namespace

std::shared_ptr<Arena> Arena::make(const ArenaLayout& layout, bool shared) {
    ByKey<Arena>& all = arenas();  // first: the destructor needs it, and no memory
    std::shared_ptr<Arena> arena(new Arena(layout));
    if (shared) {
        arena->fd_ = make_memfd(label, layout.size());
        arena->mapping_ = Mapping::of(arena->fd_);
    } else {
        arena->mapping_ = Mapping::anonymous(layout.size());
    }
    if (first_message != 0) number_from(first_message, *arena, layout.ranks);
    random_bytes(&arena->key_, sizeof arena->key_);
    arena->page().key = arena->key_;
    all.add(arena->key_, arena);
    return arena;
}

std::shared_ptr<Arena> Arena::map(const ArenaLayout& layout, const Fd& fd) {
    return over(layout, Mapping::of(fd));
}

std::shared_ptr<Arena> Arena::map(const ArenaLayout& layout, pid_t process, int descriptor, std::uint64_t key) {
    const std::string path = text("/proc/%d/fd/%d", process, descriptor);
    // By now the number may be that of anything, and to open it could wait, or do something.
    char name[64];
    const ssize_t length = readlink(path.c_str(), name, sizeof name);
    const std::string_view its(name, length < 0 ? 0 : static_cast<std::size_t>(length));
    if (!its.starts_with(std::string("/memfd:") + label)) return nullptr;
    const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!fd) return nullptr;
    Mapping mapping = Mapping::of(fd);
    const bool right = mapping.size() >= page_bytes && reinterpret_cast<const RankPage*>(mapping.base())->key == key;
    return right ? over(layout, std::move(mapping)) : nullptr;
}

std::shared_ptr<Arena> Arena::over(const ArenaLayout& layout, Mapping mapping) {
    std::shared_ptr<Arena> arena(new Arena(layout));
    arena->mapping_ = std::move(mapping);
    if (arena->mapping_.size() < layout.size())
        fail(tuttiInternalError, "a peer's arena has %zu bytes, %zu were expected: do all ranks use the same version?",
             arena->mapping_.size(), layout.size());
    return arena;
}

void Arena::use_slots_of(std::size_t bytes) {
    const ArenaLayout wanted{ranks_, bytes};
    if (wanted.size() > mapping_.size())
        fail(tuttiInvalidUsage,
             "the path between the ranks is long, which this rank did not prepare for: is it told another transport "
             "(config.transport, TUTTI_TRANSPORT) than others?");
    slot_.store(bytes, std::memory_order_relaxed);
}

Arena::~Arena() {
    if (key_ != 0) arenas().remove(key_);
}

std::shared_ptr<Arena> Arena::find(std::uint64_t key) {
    return arenas().find(key);
}

Wire Arena::wire(Rank reader, int channel, WakeUp* wake_up_at_other_end) const {
    // The memory is zeroed, which is the initial state of every word of a FIFO.
    const ArenaLayout its = layout();
    Wire wire;
    wire.fifo = std::launder(reinterpret_cast<Fifo*>(mapping_.base() + its.fifo_offset(reader, channel)));
    wire.ring = wire.fifo->cells;
    wire.slots = mapping_.base() + its.slots_offset(reader, channel);
    wire.wake_up = wake_up_at_other_end;
    wire.stride = slot_stride_of(its.slot);
    if (its.exchange_bytes() > 0 && channel < program_channels)
        wire.exchange = mapping_.base() + its.exchange_offset(reader, channel);
    wire.cells = memory().subspan(page_bytes, its.slots_begin() - page_bytes);
    return wire;
}

Wire Arena::wire_to_all(Rank owner, const Arena& reader, int channel, WakeUp* wake_up_at_other_end) const {
    TUTTI_ASSERT(channel < program_channels);
    Wire to_all = wire(owner, channel, wake_up_at_other_end);
    to_all.ring = std::launder(reinterpret_cast<Cell*>(mapping_.base() + layout().cells_to_all_offset(owner, channel)));
    to_all.depth = depth_to_all;
    to_all.released = reader.credits_to_all(channel) + owner;
    return to_all;
}

std::atomic<std::uint32_t>* Arena::credits_to_all(int channel) const {
    return std::launder(
        reinterpret_cast<std::atomic<std::uint32_t>*>(mapping_.base() + layout().credits_to_all_offset(channel)));
}

Signals& Arena::signals(Rank from) const {
    return *std::launder(reinterpret_cast<Signals*>(mapping_.base() + layout().signals_offset(from)));
}

}  // namespace tutti
