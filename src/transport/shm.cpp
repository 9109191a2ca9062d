// Processes of one host: each maps its peers' arenas, memfds that travel over the session's Unix sockets, so nothing
// has a name in /dev/shm and nothing is left behind. Memory of tuttiMemAlloc is a memfd as well and is passed by
// reference.
//
// Not used: process_vm_readv (CMA), by which the kernel copies from the peer's private memory. It pins every page anew,
// and gains in few cases (docs/performance-cpu.md).
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "transport/regions.hpp"
#include "transport/transport.hpp"

namespace tutti {
namespace {

class ShmLink : public Link {
  public:
    ShmLink(const Neighbourhood& from, std::shared_ptr<Arena> theirs, Rank peer)
        : session_(from.session), mine_(from.arena), theirs_(std::move(theirs)), peer_(peer) {}

    Wire outlet(int channel) override { return mine_->wire(peer_, channel, &theirs_->page().wake_up).taking_places(); }
    Wire inlet(int channel) override { return theirs_->wire(session_->rank(), channel, &theirs_->page().wake_up); }
    Wire outlet_to_all(int channel) override {
        return mine_->wire_to_all(session_->rank(), *theirs_, channel, &theirs_->page().wake_up).taking_places();
    }
    Wire inlet_to_all(int channel) override {
        return theirs_->wire_to_all(peer_, *mine_, channel, &theirs_->page().wake_up);
    }

    bool refer(const void* pointer, std::size_t size, Reference& out) override {
        const auto lock = locked();
        const std::uint64_t freed = freed_regions();
        const auto* at = static_cast<const std::byte*>(pointer);
        if (freed != freed_ || !last_ || at < last_->base() || at + size > last_->base() + last_->size()) {
            if (freed != freed_) forget_freed(freed);
            last_ = find_region(pointer, size);
            if (!last_) return false;
            if (offered_.insert(last_->id()).second) session_->offer(last_->id(), last_->fd());
        }
        out = {last_->id(), static_cast<std::uint64_t>(at - last_->base())};
        return true;
    }

    std::byte* see(Reference reference, std::size_t size) override {
        const auto lock = locked();
        auto found = seen_.find(reference.region);
        if (found == seen_.end()) found = seen_.emplace(reference.region, map(reference.region)).first;
        const Mapping& region = found->second;
        if (reference.offset > region.size() || size > region.size() - reference.offset)
            fail(tuttiInternalError, "rank %d: rank %d refers to %zu bytes at %llu of memory of %zu bytes",
                 session_->rank(), peer_, size, static_cast<unsigned long long>(reference.offset), region.size());
        return region.base() + reference.offset;
    }

    void share() override { shared_ = true; }
    RankPage* page() override { return &theirs_->page(); }
    Signals* signals() override { return &theirs_->signals(session_->rank()); }

  private:
    std::unique_lock<std::mutex> locked() {
        return shared_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
    }

    /// The owner's side: withdraws the offers of freed regions, and tells the peers that some were freed.
    void forget_freed(std::uint64_t freed) {
        freed_ = freed;
        last_.reset();
        std::erase_if(offered_, [&](std::uint64_t id) {
            if (region_lives(id)) return false;
            session_->withdraw(id);
            return true;
        });
        mine_->page().freed.store(freed, std::memory_order_release);
    }

    /// The peer's side: maps a region. If the owner has freed some since, lets go of all mappings first.
    Mapping map(std::uint64_t id) {
        const std::uint64_t freed = theirs_->page().freed.load(std::memory_order_acquire);
        if (freed != peer_freed_) {
            // Running steps, of this thread and others, may still use these mappings.
            if (touching_threads(mine_->page()) <= 1) doomed_.clear();
            doomed_.push_back(std::exchange(seen_, {}));
        }
        peer_freed_ = freed;
        return Mapping::of(session_->fetch(peer_, id, Clock::now() + std::chrono::seconds(10)));
    }

    std::shared_ptr<Session> session_;
    std::shared_ptr<Arena> mine_, theirs_;
    Rank peer_;
    std::shared_ptr<Region> last_;                          // the region that was referred to last
    std::set<std::uint64_t> offered_;                       // ids of this rank's regions that the session offers
    std::uint64_t freed_ = freed_regions();                 // when last_ and offered_ were last checked
    std::map<std::uint64_t, Mapping> seen_;                 // the peer's regions, mapped here, by id
    std::vector<std::map<std::uint64_t, Mapping>> doomed_;  // earlier seen_, which running steps may still use
    std::uint64_t peer_freed_ = 0;                          // RankPage::freed of the peer when seen_ was begun
    bool shared_ = false;
    std::mutex mutex_;  // guards last_ to peer_freed_ if shared_
};

class ShmTransport : public Transport {
  public:
    std::string_view name() const override { return "shm"; }
    bool reaches(const EndpointInfo& self, const EndpointInfo& peer) const override { return self.host == peer.host; }
    Line cost() const override { return {0.1, 1.0 / 40e3}; }
    Sees sees() const override { return Sees::regions; }
    bool carries_to_all() const override { return true; }

    std::unique_ptr<Link> connect(const Neighbourhood& from, Rank peer, Deadline deadline) const override {
        return std::make_unique<ShmLink>(from, arena_of(from, peer, deadline), peer);
    }
};

}  // namespace

std::shared_ptr<Arena> arena_of(const Neighbourhood& from, Rank peer, Deadline deadline) {
    const EndpointInfo its = from.infos[static_cast<std::size_t>(peer)];
    const ArenaLayout layout = from.arena->layout();
    if (auto arena = Arena::map(layout, its.pid, its.arena_descriptor, its.arena_key)) return arena;
    return Arena::map(layout, from.session->fetch(peer, its.arena_key, deadline));
}

const Transport& shm_transport() {
    static const auto* const instance = new ShmTransport;
    return *instance;
}

}  // namespace tutti
