// Ranks of one process: they see each other's memory as it is. The shortest transport; read it before you write
// another.
#include "base/peer_error.hpp"
#include "transport/transport.hpp"

namespace tutti {
namespace {

class LocalLink : public Link {
  public:
    LocalLink(std::shared_ptr<Arena> mine, std::shared_ptr<Arena> theirs, Rank self, Rank peer)
        : mine_(std::move(mine)), theirs_(std::move(theirs)), self_(self), peer_(peer) {}

    // What a rank writes lies in its own arena; what it reads, in the peer's.
    Wire outlet(int channel) override { return mine_->wire(peer_, channel, &theirs_->page().wake_up).taking_places(); }
    Wire inlet(int channel) override { return theirs_->wire(self_, channel, &theirs_->page().wake_up); }
    Wire outlet_to_all(int channel) override {
        return mine_->wire_to_all(self_, *theirs_, channel, &theirs_->page().wake_up).taking_places();
    }
    Wire inlet_to_all(int channel) override {
        return theirs_->wire_to_all(peer_, *mine_, channel, &theirs_->page().wake_up);
    }

    bool refer(const void* pointer, std::size_t, Reference& out) override {
        out = {0, reinterpret_cast<std::uint64_t>(pointer)};
        return true;
    }
    std::byte* see(Reference reference, std::size_t) override { return reinterpret_cast<std::byte*>(reference.offset); }
    RankPage* page() override { return &theirs_->page(); }
    Signals* signals() override { return &theirs_->signals(self_); }

  private:
    std::shared_ptr<Arena> mine_, theirs_;
    Rank self_, peer_;
};

class LocalTransport : public Transport {
  public:
    std::string_view name() const override { return "local"; }
    bool reaches(const EndpointInfo& self, const EndpointInfo& peer) const override {
        return self.process == peer.process;
    }
    Line cost() const override { return {0.08, 1.0 / 60e3}; }
    Sees sees() const override { return Sees::everything; }
    bool carries_to_all() const override { return true; }

    std::unique_ptr<Link> connect(const Neighbourhood& from, Rank peer, Deadline) const override {
        std::shared_ptr<Arena> theirs = Arena::find(from.infos[static_cast<std::size_t>(peer)].arena_key);
        if (!theirs)
            fail_by(peer, tuttiRemoteError, "rank %d: rank %d has destroyed its communicator", from.self(), peer);
        theirs->use_slots_of(from.arena->slot());  // the owner may not have set it yet
        return std::make_unique<LocalLink>(from.arena, theirs, from.self(), peer);
    }
};

}  // namespace

const Transport& local_transport() {
    static const auto* const instance = new LocalTransport;
    return *instance;
}

}  // namespace tutti
