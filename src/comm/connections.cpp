#include "comm/connections.hpp"

#include <algorithm>

#include "base/caught.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "bootstrap/rendezvous.hpp"
#include "schedule/to_all.hpp"
#include "transport/faulty.hpp"
#include "transport/numbering.hpp"

namespace tutti {
namespace {

constexpr std::chrono::seconds time_to_map{1};  // a page that ranks can do without

}  // namespace

Connections::Connections(Neighbourhood here, SimilarRows<gpu::EndpointInfo> gpus, const Options& options)
    : options_(options),
      here_(std::move(here)),
      page_(here_.arena->page()),
      rank_(here_.self()),
      ranks_(here_.session->ranks()),
      places_(here_.infos, std::move(gpus), options.transport),
      pages_(static_cast<std::size_t>(ranks())) {}

void Connections::start(std::shared_ptr<Engine> engine, decltype(Neighbourhood::device_slots) device_slots,
                        Whereabouts here, int sockets) {
    if (!engine) return;
    bool needed = false;
    std::set<Rank>& callers = here_.callers.emplace();
    for (Rank r = 0; r < ranks(); ++r) {
        if (r == rank() || (on_gpus() && places_.p2p(rank(), r)) || !transport_to(r).needs_engine()) continue;
        needed = true;
        if (r < rank()) callers.insert(r);
    }
    if (!needed) return;
    here_.engine = std::move(engine);
    here_.device_slots = std::move(device_slots);
    here_.here = std::move(here);
    here_.sockets = sockets;
    here_.engine->start(here_, options_.timeout);
}

const Transport& Connections::transport_between(Rank a, Rank b) const {
    const bool p2p = on_gpus() && options_.transport == "p2p";  // p2p is no link: the one returned is for error texts
    const auto info = [&](Rank r) { return here_.infos[static_cast<std::size_t>(r)]; };
    return choose_transport(info(a), info(b), p2p ? "" : options_.transport);
}

std::string Connections::last_call_of(Rank peer) const {
    const RankPage* const page = page_of(peer);
    if (page == nullptr) return "";
    const auto begun = static_cast<std::uint32_t>(page->sequence.load(std::memory_order_acquire));
    if (begun == 0)
        return transport_to(peer).needs_engine() ? "has told of no collective yet" : "has called no collective yet";
    return text("has called %u collectives, the last one %s", begun,
                call_text(page->board[(begun - 1) % board_entries].get()).c_str());
}

std::string Connections::told_by(Rank peer) const {
    if (peer < 0) return "";
    const std::string known = session().has_left(peer) ? "has destroyed its communicator" : last_call_of(peer);
    return known.empty() ? "" : ", which " + known;
}

std::unique_ptr<Link> Connections::make_link(const Transport& transport, Rank peer) {
    std::unique_ptr<Link> link = transport.connect(here_, peer, Clock::now() + options_.init_timeout);
    if (places_.on_gpu(rank()) || places_.on_gpu(peer)) link = without_references(std::move(link));
    if (config().fault.empty() || places_.on_gpu(rank())) return link;  // kernels bypass the decorator
    // A delayed message may go on when the rank's thread no longer polls: the engine then looks.
    const auto look = [engine = transport.needs_engine() ? engine() : nullptr] {
        if (engine == nullptr) return;
        engine->serve(true);
        engine->serve(false);
    };
    return faulty(std::move(link), FaultPlan::parse(config().fault), static_cast<std::uint64_t>(rank() * 4096 + peer),
                  look);
}

RankPage* Connections::host_page() {
    if (!first_here_) {
        first_here_.emplace();
        const EndpointInfo mine = here_.infos[static_cast<std::size_t>(rank())];
        Rank first = 0;
        while (here_.infos[static_cast<std::size_t>(first)].host != mine.host) ++first;
        const EndpointInfo info = here_.infos[static_cast<std::size_t>(first)];
        shielded("mapping the page of a host's first rank", [&] {
            if (on_gpus() || (first != rank() && transport_to(first).needs_engine())) return;
            if (info.process == mine.process)
                *first_here_ = Arena::find(info.arena_key);
            else
                *first_here_ = arena_of(here_, first, Clock::now() + time_to_map);
        });
    }
    return *first_here_ ? &(*first_here_)->page() : nullptr;
}

Peer& Connections::linked(Rank rank) {
    Peer& peer = peers_[rank];
    if (peer.link) return peer;
    const Transport& transport = transport_to(rank);
    peer.link = make_link(transport, rank);
    if (options_.threads.number > 1) peer.link->share();
    peer.transport = transport.name();
    peer.by_network = transport.needs_engine();
    peer.senders.resize(channels_per_link);
    peer.receivers.resize(channels_per_link);
    peer.exchanges.resize(channels_per_link);
    peer.heard.resize(channels_per_link);
    pages_[static_cast<std::size_t>(rank)].store(peer.link->page(), std::memory_order_release);
    const char* const obstacle =
        places_.on_gpu(this->rank()) || places_.on_gpu(rank) ? places_.obstacle(this->rank(), rank) : nullptr;
    const std::string why = obstacle != nullptr ? text(", not by p2p: %s", obstacle) : "";
    log(Level::info, "rank %d reaches rank %d by %s%s", this->rank(), rank, peer.transport.c_str(), why.c_str());
    return peer;
}

const Peer* Connections::find(Rank peer) const {
    const auto found = peers_.find(peer);
    return found == peers_.end() || !found->second.link ? nullptr : &found->second;
}

Connection Connections::connection(Rank rank, int channel) {
    Peer& peer = linked(rank);
    const auto l = static_cast<std::size_t>(channel);
    if (!peer.senders[l]) {
        const Wire out = peer.link->outlet(channel), in = peer.link->inlet(channel);
        peer.senders[l] = std::make_unique<Sender>(out, first_message);
        peer.receivers[l] = std::make_unique<Receiver>(in, first_message);
        if (!peer.by_network && out.exchange != nullptr && in.exchange != nullptr) {
            peer.exchanges[l] = std::make_unique<Exchange>(out.exchange, in.exchange, exchange_place_for(ranks()));
            peer.senders[l]->exchange_by(peer.exchanges[l].get());
            peer.receivers[l]->exchange_by(peer.exchanges[l].get());
        }
    }
    return {rank, peer.link.get(), peer.senders[l].get(), peer.receivers[l].get()};
}

Connection Connections::connection_to_all(int channel) {
    for_all_.resize(channels_per_link);
    std::unique_ptr<Sender>& sender = for_all_[static_cast<std::size_t>(channel)];
    if (!sender) {
        std::vector<Wire> readers;
        for (Rank r = 0; r < ranks(); ++r)
            if (r != rank()) readers.push_back(linked(r).link->outlet_to_all(channel));
        sender = std::make_unique<Sender>(readers, first_message);
    }
    return {everybody, nullptr, sender.get(), nullptr};
}

Connection Connections::connection_from_all(Rank rank, int channel) {
    Peer& peer = linked(rank);
    std::unique_ptr<Receiver>& receiver = peer.heard[static_cast<std::size_t>(channel)];
    if (!receiver) receiver = std::make_unique<Receiver>(peer.link->inlet_to_all(channel), first_message);
    return {rank, peer.link.get(), nullptr, receiver.get()};
}

bool Connections::has_left(Rank rank) const {
    const Peer* const peer = find(rank);
    if (peer == nullptr) return session().has_left(rank);
    const RankPage* const page = page_of(rank);
    if (page != nullptr && page->leaving.load(std::memory_order_acquire) != 0) return true;
    return session().has_left(rank) && !peer->link->arriving();
}

std::uint64_t Connections::motion(Rank rank) const {
    const Peer* const peer = find(rank);
    return peer == nullptr ? 0 : peer->link->motion();
}

bool Connections::unread(Rank rank) const {
    const auto reader = static_cast<std::size_t>(rank < this->rank() ? rank : rank - 1);
    const Peer* const peer = find(rank);
    return peer != nullptr && (std::ranges::any_of(peer->senders, [](const auto& s) { return s && !s->drained(); }) ||
                               std::ranges::any_of(for_all_, [&](const auto& s) { return s && !s->drained(reader); }));
}

std::size_t Connections::memory() const {
    std::size_t wires = 0;
    for (const auto& [rank, peer] : peers_)
        for (const auto& sender : peer.senders) wires += sender != nullptr;
    const auto to_all = static_cast<std::size_t>(std::ranges::count_if(for_all_, [](const auto& s) { return !!s; }));
    wires += to_all;
    return page_bytes + to_all * depth_to_all * sizeof(Cell) +
           wires * (sizeof(Fifo) + slot_depth * slot_stride_of(arena().slot()) + arena().layout().exchange_bytes());
}

}  // namespace tutti
