// Who the ranks of a communicator are, and the links from this rank to each of them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/options.hpp"
#include "gpu/places.hpp"
#include "kernels/host/executor.hpp"
#include "transport/transport.hpp"

namespace tutti {

/// One peer of this rank: the link with it, and the ends of its channels.
struct Peer {
    std::unique_ptr<Link> link;
    std::string transport;                             // its name
    bool by_network = false;                           // it needs the engine
    std::vector<std::unique_ptr<Sender>> senders;      // by channel
    std::vector<std::unique_ptr<Receiver>> receivers;  // by channel
    std::vector<std::unique_ptr<Exchange>> exchanges;  // by channel; nullptr: messages go in slots
    std::vector<std::unique_ptr<Receiver>> heard;      // by channel: messages that the peer writes once for all ranks
};

/// The session, this rank's arena and engine, and the links with its peers. A link is made when a program first names
/// the peer. Owned by its Communicator; one thread at a time uses it, inside the communicator's ticket lock. Any thread
/// may ask who the ranks are (rank() to transport_to()) and call page_of(), last_call_of() and told_by().
class Connections {
  public:
    /// here: has the endpoint infos of all ranks, and no engine yet. gpus: as for gpu::Places. options must outlive
    /// this.
    Connections(Neighbourhood here, SimilarRows<gpu::EndpointInfo> gpus, const Options& options);

    /// Starts the engine if the link with some peer needs it, and lets those peers connect that may. Otherwise drops
    /// it, which closes its port. engine: nullptr if this rank has none. sockets: how many TCP connections join two
    /// ranks.
    void start(std::shared_ptr<Engine> engine, decltype(Neighbourhood::device_slots) device_slots, Whereabouts here,
               int sockets);

    Rank rank() const { return rank_; }
    int ranks() const { return ranks_; }
    Session& session() const { return *here_.session; }
    const std::shared_ptr<Session>& shared_session() const { return here_.session; }
    Arena& arena() const { return *here_.arena; }
    RankPage& page() const { return page_; }
    const gpu::Places& places() const { return places_; }
    /// Whether any rank of the communicator is on a GPU, this one or another.
    bool on_gpus() const { return places_.any_on_gpu(); }
    /// The transport that joins two ranks, the same on all ranks. p2p makes no link: where it is the only one allowed,
    /// the result is for error texts.
    const Transport& transport_between(Rank a, Rank b) const;
    const Transport& transport_to(Rank peer) const { return transport_between(rank(), peer); }

    /// The page that the peer shares with this rank; nullptr if there is no link with it, or the link shows none.
    const RankPage* page_of(Rank peer) const {
        return pages_[static_cast<std::size_t>(peer)].load(std::memory_order_acquire);
    }
    /// For error texts. last_call_of(): what the peer last called, by its page, as a predicate ("has called 3
    /// collectives, the last one ..."). told_by(): the same, or that the peer has left, as a clause to append (", which
    /// has called ..."). Both are empty if nothing is known; told_by() also for peer -1.
    std::string last_call_of(Rank peer) const;
    std::string told_by(Rank peer) const;

    /// The page of this host's first rank, which all ranks here can write to; nullptr if they can't, or some rank is on
    /// a GPU. The first call may have to map it.
    RankPage* host_page();

    /// The peer, with its link, which is made if there is none. Throws if the peer can't be reached.
    Peer& linked(Rank peer);
    /// The peer if there is a link with it, else nullptr.
    const Peer* find(Rank peer) const;
    const std::map<Rank, Peer>& peers() const { return peers_; }
    /// This rank's ends of a channel, made with the link if there are none: with one peer; for messages that this rank
    /// writes once for all ranks; for those that the peer writes for all. Valid as long as this object.
    Connection connection(Rank peer, int channel);
    Connection connection_to_all(int channel);
    Connection connection_from_all(Rank peer, int channel);

    /// True if the peer will send nothing more and all that it has sent has arrived. (The session may tell that a peer
    /// has left before its last messages arrive.)
    bool has_left(Rank peer) const;
    /// Link::motion() of the link with the peer; 0 if there is none.
    std::uint64_t motion(Rank peer) const;
    /// True while the peer has not read everything that this rank has sent to it.
    bool unread(Rank peer) const;
    /// Keeps the arenas of all ranks of this process alive as long as this object, so that what a rank has sent
    /// outlives it.
    void keep(std::vector<std::shared_ptr<Arena>> family) { family_ = std::move(family); }
    bool all_in_process() const { return !family_.empty(); }

    /// Drives the network, if there is one; for threads that wait. True if anything moved. Throws tuttiRemoteError if a
    /// peer can't be reached any more.
    bool poll() { return here_.engine && here_.engine->poll(); }
    /// Hands the network to the background; call it before the thread sleeps (asleep) or returns to the user. True if
    /// anything moved at once.
    bool rest(bool asleep) { return here_.engine && here_.engine->rest(asleep); }
    /// The engine that drives this rank's network links; nullptr if no link needs one.
    Engine* engine() const { return here_.engine.get(); }

    /// Most memory that the links may use, in bytes.
    std::size_t memory() const;

  private:
    std::unique_ptr<Link> make_link(const Transport& transport, Rank peer);

    const Options& options_;
    Neighbourhood here_;
    RankPage& page_;
    const Rank rank_;
    const int ranks_;
    const gpu::Places places_;
    std::map<Rank, Peer> peers_;
    std::vector<std::unique_ptr<Sender>> for_all_;  // by channel
    std::vector<std::shared_ptr<Arena>> family_;
    std::vector<std::atomic<const RankPage*>> pages_;   // by rank
    std::optional<std::shared_ptr<Arena>> first_here_;  // what host_page() lies in
};

}  // namespace tutti
