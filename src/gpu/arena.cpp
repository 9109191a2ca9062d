#include "gpu/arena.hpp"

#include <map>
#include <mutex>

#include "base/log.hpp"
#include "base/os.hpp"
#include "base/result.hpp"
#include "transport/arena.hpp"

namespace tutti::gpu {
namespace {

struct Registry {
    std::mutex mutex;
    std::map<std::uint64_t, std::weak_ptr<Arena>> arenas;
};

Registry& registry() {
    static Registry* instance = new Registry;  // outlives every communicator, also those destroyed at exit
    return *instance;
}

}  // namespace

std::shared_ptr<Arena> Arena::make(Gpus& gpus, int device, int ranks) {
    std::shared_ptr<Arena> arena(new Arena(gpus, device, ranks));
    arena->memory_ = gpus.allocate(device, Layout{ranks}.size());
    random_bytes(&arena->key_, sizeof arena->key_);
    const std::lock_guard lock(registry().mutex);
    registry().arenas[arena->key_] = arena;
    return arena;
}

Arena::~Arena() {
    {
        const std::lock_guard lock(registry().mutex);
        registry().arenas.erase(key_);
    }
    if (memory_ != nullptr) gpus_.free(device_, memory_);
}

std::shared_ptr<Arena> Arena::find(std::uint64_t key) {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().arenas.find(key);
    return found == registry().arenas.end() ? nullptr : found->second.lock();
}

Card Arena::card() const {
    const DeviceInfo info = gpus_.info(device_);
    Card card{device_, info.blocks, info.uuid, key_, {}};
    try {
        card.arena = gpus_.share(device_, memory_);
    } catch (const Error& error) {  // ranks of this process do not need it; others will say so
        log(Level::info, "GPU %d: its memory can't be shared with other processes: %s", device_, error.what());
    }
    return card;
}

Ends::Ends(std::shared_ptr<Arena> mine, Rank self, const std::vector<Card>& cards,
           const std::vector<std::uint64_t>& processes)
    : mine_(std::move(mine)), theirs_(cards.size()), opened_(cards.size()) {
    Gpus& gpus = mine_->gpus();
    const int device = mine_->device(), ranks = static_cast<int>(cards.size());
    const Layout layout{ranks};
    std::vector<End> ends(cards.size() * lanes_per_peer * 2);
    memory_ = Memory(gpus, device, ends.size() * sizeof(End));
    regions_ = Memory(gpus, device, max_regions * sizeof(std::byte*));
    const auto* const regions = reinterpret_cast<const std::byte* const*>(regions_.at());
    for (Rank peer = 0; peer < ranks; ++peer) {
        if (peer == self) continue;
        const auto p = static_cast<std::size_t>(peer);
        const Card& card = cards[p];
        std::byte* remote = nullptr;
        if (processes[p] == process_id()) {
            theirs_[p] = Arena::find(card.arena_key);
            if (!theirs_[p]) fail(tuttiRemoteError, "rank %d: rank %d has destroyed its communicator", self, peer);
            if (!gpus.reaches(device, card.device))
                fail(tuttiInvalidUsage, "rank %d on GPU %d can't use the memory of rank %d on GPU %d: no peer access",
                     self, device, peer, card.device);
            remote = theirs_[p]->memory();
        } else {
            remote = opened_[p] = gpus.open(device, card.arena);
        }
        for (int lane = 0; lane < lanes_per_peer; ++lane) {
            const std::size_t number = (p * lanes_per_peer + static_cast<std::size_t>(lane)) * 2;
            const auto end_in = [&](std::byte* arena, Rank sender) {
                End end;
                end.peer = peer;
                end.fifo = reinterpret_cast<Fifo*>(arena + layout.fifo(sender, lane));
                end.slots = arena + layout.slots(sender, lane);
                end.slot_stride = gpu::slot_bytes;
                if (Layout::has_lines(lane)) end.lines = reinterpret_cast<Line*>(arena + layout.lines(sender, lane));
                if (theirs_[p]) end.regions = regions;
                return end;
            };
            ends[number] = end_in(remote, self);
            ends[number + 1] = end_in(mine_->memory(), peer);
        }
    }
    gpus.upload(device, memory_.at(), ends.data(), ends.size() * sizeof(End));
}

Ends::~Ends() {
    for (std::byte* memory : opened_)
        if (memory != nullptr) mine_->gpus().close(mine_->device(), memory);
}

}  // namespace tutti::gpu
