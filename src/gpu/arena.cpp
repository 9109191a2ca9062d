#include "gpu/arena.hpp"

#include "base/by_key.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "base/os.hpp"
#include "base/peer_error.hpp"
#include "transport/arena.hpp"

namespace tutti::gpu {
namespace {

ByKey<Arena>& arenas() {
    static auto* const all = new ByKey<Arena>;  // never destroyed: communicators may be destroyed at exit
    return *all;
}

}  // namespace

std::shared_ptr<Arena> Arena::make(Gpus& gpus, int device, int ranks) {
    free_what_is_back();
    std::shared_ptr<Arena> arena(new Arena(gpus, device, Places::seats(ranks)));
    arena->memory_ = gpus.allocate(device, arena->bytes());
    random_bytes(&arena->key_, sizeof arena->key_);
    arenas().add(arena->key_, arena);
    return arena;
}

Arena::~Arena() {
    arenas().remove(key_);
    ledger_->close();
    const Claim lease{ledger_};
    if (memory_ != nullptr) free_when_back(gpus_, device_, memory_, {&lease, 1});
}

std::shared_ptr<Arena> Arena::find(std::uint64_t key) {
    return arenas().find(key);
}

EndpointInfo Arena::info() const {
    const DeviceInfo device = gpus_.info(device_);
    EndpointInfo info;
    info.device = device_;
    info.blocks = device.blocks;
    info.uuid = device.uuid;
    info.arena_key = key_;
    info.multicast = config().gpu_virtual && config().gpu_multicast && gpus_.has_multicast(device_) ? 1 : 0;
    std::size_t reached = 0;
    for (int d = 0; d < gpus_.count() && reached < info.reach.size(); ++d) {
        if (!gpus_.reaches(device_, d)) continue;
        if (gpus_.linked(device_, d)) info.linked |= 1u << reached;
        info.reach[reached++] = short_of(gpus_.uuid(d));
    }
    try {
        info.arena = gpus_.share(device_, memory_);
        info.shareable = 1;
    } catch (const Error& error) {  // info.shareable stays 0: messages with other processes go through host memory
        log(Level::info, "GPU %d: its memory can't be shared with other processes: %s", device_, error.what());
    }
    return info;
}

namespace {

/// Opens a peer's arena. Only this shows whether processes can share memory: the driver made the handle all the same.
std::byte* open_arena(Gpus& gpus, int device, Rank self, Rank peer, const Handle& handle) {
    try {
        return gpus.open(device, handle);
    } catch (const Error& error) {
        fail(error.code(),
             "rank %d can't use rank %d's GPU memory, of another process of this host: %s; where processes may not "
             "share it (in containers of their own, say), TUTTI_TRANSPORT=shm on all ranks goes through host memory",
             self, peer, error.what());
    }
}

}  // namespace

Ends::Ends(std::shared_ptr<Arena> mine, Rank self, const Places& places, std::vector<Fd> leases)
    : mine_(std::move(mine)),
      theirs_(static_cast<std::size_t>(places.ranks())),
      leases_(std::move(leases)),
      opened_(static_cast<std::size_t>(places.ranks())) {
    Gpus& gpus = mine_->gpus();
    const int device = mine_->device();
    memory_ = Memory(gpus, device, theirs_.size() * channels_per_peer * 2 * sizeof(End));
    tables_ = Memory(gpus, device, theirs_.size() * max_regions * sizeof(std::byte*));
    try {
        open_all(self, places);
    } catch (...) {
        close_all();
        throw;
    }
}

void Ends::open_all(Rank self, const Places& places) {
    Gpus& gpus = mine_->gpus();
    const int device = mine_->device();
    for (Rank peer = 0; peer < places.ranks(); ++peer) {
        if (peer == self || !places.p2p(self, peer)) continue;
        const auto p = static_cast<std::size_t>(peer);
        const bool here = places.info(self).process == places.info(peer).process;
        if (here) {
            theirs_[p] = Arena::find(places.gpu(peer).arena_key);
            if (!theirs_[p])
                fail_by(peer, tuttiRemoteError, "rank %d: rank %d has destroyed its communicator", self, peer);
            gpus.enable(device, places.gpu(peer).device);
        } else {
            opened_[p] = open_arena(gpus, device, self, peer, places.gpu(peer).arena);
        }
        join(peer, here ? theirs_[p]->memory() : opened_[p], places.seat(self), places.seat(peer), here);
        log(Level::info, "rank %d on GPU %d reaches rank %d on GPU %d by p2p (%s)", self, device, peer,
            places.gpu(peer).device, here ? "of one process" : "CUDA IPC");
    }
}

/// Connects all channels with a peer whose arena is at `remote`. seat: this rank's.
void Ends::join(Rank peer, std::byte* remote, int seat, int peers_seat, bool in_process) {
    const Layout layout{Places::seats(static_cast<int>(theirs_.size()))};
    std::vector<End> ends;
    for (int channel = 0; channel < channels_per_peer; ++channel) {
        const auto add = [&](std::byte* arena, int sender) {
            End end;
            end.peer = peer;
            end.fifo = reinterpret_cast<Fifo*>(arena + layout.fifo(sender, channel));
            end.slots = arena + layout.slots(sender, channel);
            end.slot_stride = slot_bytes_of(layout.seats);
            if (Layout::has_lines(channel)) end.lines = reinterpret_cast<Line*>(arena + layout.lines(sender, channel));
            end.line_stride = static_cast<std::uint32_t>(layout.lines_per_message());
            end.in_process = in_process;
            if (!in_process) end.regions = reinterpret_cast<const std::byte* const*>(table_of(peer));
            ends.push_back(end);
        };
        add(remote, seat);
        add(mine_->memory(), peers_seat);
    }
    mine_->gpus().upload(mine_->device(), reinterpret_cast<std::byte*>(to(peer, 0)), ends.data(),
                         ends.size() * sizeof(End));
}

std::byte* Ends::arena_of(Rank peer) const {
    const auto p = static_cast<std::size_t>(peer);
    return theirs_[p] ? theirs_[p]->memory() : opened_[p] != nullptr ? opened_[p] : mine_->memory();
}

bool Ends::attached(Rank peer, int channel) const {
    const auto p = static_cast<std::size_t>(peer);
    return theirs_[p] || opened_[p] != nullptr || attached_.contains({peer, channel});
}

void Ends::attach(Rank peer, int channel, const Wire& out, const Wire& in) {
    const End ends[] = {through_host(peer, out), through_host(peer, in)};
    mine_->gpus().upload(mine_->device(), reinterpret_cast<std::byte*>(to(peer, channel)), ends, sizeof ends);
    attached_.insert({peer, channel});
}

End Ends::through_host(Rank peer, const Wire& wire) {
    TUTTI_ASSERT(!wire.cells.empty());
    const Pinned& cells = pinned_.emplace_back(mine_->gpus(), wire.cells);
    End end;
    end.peer = peer;
    end.fifo = reinterpret_cast<Fifo*>(cells.seen(mine_->device(), reinterpret_cast<std::byte*>(wire.fifo)));
    end.slots = wire.slots;
    end.slot_stride = wire.stride;
    if (wire.on_device) return end;
    const Pinned& slots = pinned_.emplace_back(mine_->gpus(), std::span(wire.slots, slot_depth * wire.stride));
    end.slots = slots.seen(mine_->device(), wire.slots);
    return end;
}

Ends::~Ends() {
    close_all();
}

void Ends::close_all() noexcept {
    for (std::byte* memory : opened_)
        if (memory != nullptr) mine_->gpus().close(mine_->device(), memory);
}

}  // namespace tutti::gpu
