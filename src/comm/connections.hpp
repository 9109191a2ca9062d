// Who the ranks of a communicator are, and what joins this one to each of them.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/options.hpp"
#include "gpu/places.hpp"
#include "kernels/host/executor.hpp"
#include "transport/transport.hpp"

namespace tutti {

/// A peer with which this rank has a link.
struct Peer {
    std::unique_ptr<Link> link;
    std::string transport;
    bool by_network = false;
    std::vector<std::unique_ptr<Sender>> senders;      // by channel
    std::vector<std::unique_ptr<Receiver>> receivers;  // by channel
    std::vector<std::unique_ptr<Receiver>> heard;      // by channel: of what the peer writes to all
};

/// The session, this rank's arena and engine, and the links with its peers, each made when a program first names the
/// peer. Owned by its Communicator, and used inside that one's ticket lock by one thread at a time; except that who the
/// ranks are (rank() to transport_to()), page_of() and what it tells may be asked from any thread.
class Connections {
  public:
    /// here: with the endpoint infos of all ranks, and no engine. gpus: see gpu::Places. options outlives it.
    Connections(Neighbourhood here, std::vector<gpu::EndpointInfo> gpus, const Options& options);

    /// Where a peer needs the engine for its link, it starts, and lets those in that may connect; else its port closes.
    /// sockets: between two ranks.
    void start(std::shared_ptr<Engine> engine, decltype(Neighbourhood::device_slots) device_slots, Whereabouts here,
               int sockets);

    Rank rank() const { return rank_; }
    int ranks() const { return ranks_; }
    Session& session() const { return *here_.session; }
    const std::shared_ptr<Session>& shared_session() const { return here_.session; }
    Arena& arena() const { return *here_.arena; }
    RankPage& page() const { return here_.arena->page(); }
    const gpu::Places& places() const { return places_; }
    /// Whether ranks are on GPUs: this one or others.
    bool on_gpus() const { return places_.any_on_gpu(); }
    const Transport& transport_between(Rank a, Rank b) const;
    const Transport& transport_to(Rank peer) const { return transport_between(rank(), peer); }

    /// What the peer shows to this rank; nullptr if they have no link, or it can't be seen.
    const RankPage* page_of(Rank peer) const {
        return pages_[static_cast<std::size_t>(peer)].load(std::memory_order_acquire);
    }
    /// For error texts, as far as page_of() tells: what the peer last called; the same, or that it has left, as a
    /// clause that follows its name. Empty: not known, nor whom (-1).
    std::string last_call_of(Rank peer) const;
    std::string told_by(Rank peer) const;

    /// Makes the link if there is none.
    Peer& linked(Rank peer);
    /// nullptr if there is no link.
    const Peer* find(Rank peer) const;
    const std::map<Rank, Peer>& peers() const { return peers_; }
    Connection connection(Rank peer, int channel);
    Connection connection_to_all(int channel);
    Connection connection_from_all(Rank peer, int channel);

    /// The peer issues nothing any more, and all that it has sent is here: the news that it has left may come first.
    bool has_left(Rank peer) const;
    /// Whether the peer has not read yet all that this rank has sent to it.
    bool unread(Rank peer) const;
    /// Arenas that live as long as this: all ranks' of this process, so that what one has sent outlives it.
    void keep(std::vector<std::shared_ptr<Arena>> family) { family_ = std::move(family); }
    bool all_in_process() const { return !family_.empty(); }

    /// Who waits drives the network, if there is one; true if anything moved. Throws for peers that can't be reached.
    bool poll() { return here_.engine && here_.engine->poll(); }
    /// Before the caller sleeps, or goes; true if anything moved at once.
    bool rest(bool asleep) { return here_.engine && here_.engine->rest(asleep); }
    /// nullptr: no peer needs one.
    Engine* engine() const { return here_.engine.get(); }

    /// Upper bound of what they use, in bytes.
    std::size_t memory() const;

  private:
    std::unique_ptr<Link> make_link(const Transport& transport, Rank peer);

    const Options& options_;
    Neighbourhood here_;
    const Rank rank_;
    const int ranks_;
    const gpu::Places places_;
    std::map<Rank, Peer> peers_;
    std::vector<std::unique_ptr<Sender>> for_all_;  // by channel
    std::vector<std::shared_ptr<Arena>> family_;
    std::vector<std::atomic<const RankPage*>> pages_;  // by rank
};

}  // namespace tutti
