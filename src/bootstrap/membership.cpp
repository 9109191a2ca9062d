#include "bootstrap/membership.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/peer_error.hpp"
#include "base/result.hpp"

namespace tutti::bootstrap {

Membership::Membership(std::shared_ptr<Service> service, const Rendezvous& rendezvous, Rank rank, int ranks, View info,
                       std::chrono::milliseconds timeout, std::span<const std::uint64_t> processes, const Address& here)
    : service_(std::move(service)),
      rendezvous_(rendezvous),
      secret_(rendezvous.secret.derive("tutti members")),
      roster_(rank, ranks, info, processes),
      news_(monitor_, ranks),
      exchanges_(monitor_, news_, ranks),
      neighbours_(*service_, *this),
      joining_(*this, timeout, here),
      mending_(*this),
      pairs_(*this),
      descriptors_(monitor_, news_),
      consensus_(monitor_, news_, pairs_, rank, ranks) {}

void Membership::start() {
    try {
        joining_.open();
        shutting_ = Service::prepared([weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->shut();
        });
        service_->keep(shared_from_this());
        enlist();
        joining_.start();
    } catch (...) {
        shut();
        throw;
    }
}

namespace {

/// The text that what() makes; a short one if there is no memory for it.
std::string say(auto&& what) {
    try {
        return what();
    } catch (const std::bad_alloc&) {
        return "out of memory";
    }
}

}  // namespace

/// An error of this process while it handled a connection. The fault names this member, not the peer.
void Membership::failed(Connection&, const Error& error) {
    const std::string what = say([&] { return name_of(rank()) + ": " + error.what(); });
    consensus_.give_up(what, true);
    hear({tuttiSystemError, rank(), what});
}

/// Does work for which no thread waits. An exception becomes a fault of this member.
void Membership::attempt(Errand work) {
    try {
        work();
    } catch (...) {
        const std::string what = say([&] { return name_of(rank()) + ": " + caught().what(); });
        consensus_.give_up(what);
        hear({tuttiSystemError, rank(), what});
    }
}

void Membership::post(std::function<void()> work) {
    service_->post(attempted(std::move(work)));
}

void Membership::after(std::chrono::microseconds pause, std::function<void()> work) {
    service_->after(pause, attempted(std::move(work)));
}

std::function<void()> Membership::attempted(std::function<void()> work) {
    return [weak = weak_from_this(), work = std::move(work)] {
        if (const auto self = weak.lock(); self && !self->gone_) self->attempt(work);
    };
}

void Membership::shut_soon() {
    if (shutting_) service_->post(std::move(shutting_));
}

void Membership::opened(Connection& connection) {
    switch (connection.role) {
        case Role::unknown:
            neighbours_.add(connection);
            return;  // the peer has to say which rank it is
        case Role::directory:
            connection.recognise();
            roster_.add_round_trip(connection.round_trip());
            connection.send(Register{ranks(), roster_.mine()});
            send_news(connection);
            if (news_.is(State::failed)) shut_soon();  // since it called: see spread()
            return;
        case Role::parent:
            connection.recognise();
            connection.send(Attach{ranks(), rank(), true});
            // A joined rank that reconnects may have lost records on the way that the parent still waits for.
            if (news_.is(State::joining) || mending_.is_mending(connection.peer)) send_table(connection);
            send_news(connection);
            tell_again(connection);
            return;
        case Role::pair:
            connection.recognise();
            connection.send(Attach{ranks(), rank(), false});
            send_news(connection);
            return pairs_.opened(connection);
        case Role::child:
            return;
    }
}

void Membership::received(Connection& connection, Message& message, Fd descriptor) {
    const auto self = shared_from_this();
    if (connection.role == Role::unknown) {
        if (const auto* m = std::get_if<Attach>(&message)) return on_attach(connection, *m);
        connection.close();
        return neighbours_.drop(connection);
    }
    if (!connection.welcome && !may_come_early(message))
        return hear({tuttiRemoteError, connection.peer,
                     text("%s told %s something before it had let it in", name_of(connection.peer).c_str(),
                          name_of(rank()).c_str())});
    if (!is_plausible(message))
        return hear({tuttiRemoteError, connection.peer,
                     text("%s told %s of a rank that can't be meant", name_of(connection.peer).c_str(),
                          name_of(rank()).c_str())});
    if (std::holds_alternative<Welcome>(message)) {
        connection.welcome = true;
        joining_.welcomed(connection);
        if (connection.role == Role::parent) mending_.welcomed(connection.peer);
        consensus_.say_again(connection);
        if (connection.role == Role::directory && roster_.complete() && news_.is(State::joining)) joining_.finish();
    } else if (const auto* parent = std::get_if<Parent>(&message); parent && connection.role == Role::directory) {
        joining_.met(parent->member);
    } else if (auto* record = std::get_if<Record>(&message); record && is_tree(connection)) {
        joining_.heard(*record, connection.peer);
    } else if (const auto* ask = std::get_if<Ask>(&message); ask && is_tree(connection)) {
        const auto& parent_there = neighbours_.parent();
        const auto& up = parent_there && parent_there->welcome ? parent_there : neighbours_.directory();
        if (up) up->send(*ask);
    } else if (auto* failure = std::get_if<Failure>(&message)) {
        if (connection.role == Role::directory && !connection.welcome)
            return joining_.turned_away(connection, failure->text);
        if (failure->text.empty()) failure->text = name_of(connection.peer) + " told of a failure, and no reason";
        hear(*failure, &connection);
    } else if (const auto* left = std::get_if<Left>(&message)) {
        on_left(connection, *left);
    } else if (const auto* fetch = std::get_if<Fetch>(&message)) {
        descriptors_.asked(connection, *fetch);
    } else if (const auto* give = std::get_if<Give>(&message)) {
        pairs_.given(connection, *give, std::move(descriptor));
    } else if (const auto* note = std::get_if<Note>(&message); note && is_tree(connection)) {
        on_note(*note, &connection);
    } else if (auto* agree = std::get_if<Agree>(&message)) {
        consensus_.received(connection.peer, *agree);
    }
}

/// Messages that a peer may send before its Welcome: only those that it sends to all.
bool Membership::may_come_early(const Message& message) {
    return std::holds_alternative<Welcome>(message) || std::holds_alternative<Failure>(message) ||
           std::holds_alternative<Left>(message);
}

/// Ranks in messages are used as indices, so they are checked before anything else.
bool Membership::is_plausible(const Message& message) const {
    const auto* parent = std::get_if<Parent>(&message);
    return fits(message, ranks()) && (parent == nullptr || parent->member.rank == parent_of(rank()));
}

void Membership::on_attach(Connection& connection, const Attach& attach) {
    if (attach.ranks != ranks() || attach.rank == rank() || gone_) {
        connection.close();
        return neighbours_.drop(connection);
    }
    connection.recognise();
    connection.peer = attach.rank;
    connection.role = attach.tree ? Role::child : Role::pair;
    connection.welcome = true;
    const bool again = attach.tree && news_.is(State::joined) && is_again(connection);
    connection.send(Welcome{});
    // Once this rank has joined, the records are everywhere or on their way. A child that connects now seeks a new
    // parent and needs no records, unless it reconnects: it may have lost the last ones with the old connection.
    if (attach.tree && (news_.is(State::joining) || again)) send_table(connection);
    send_news(connection);
    consensus_.say_again(connection);
    if (!attach.tree) return mending_.try_parent(attach.rank);
    tell_again(connection);
    mending_.mended(attach.rank);
}

void Membership::send_table(Connection& connection) {
    for (Rank r = 0; r < ranks(); ++r)
        if (roster_.has(r)) connection.send(record(r));
}

/// Sends the notes of exchanges over a new connection, since they may have been lost with an old one. The peer does the
/// same.
void Membership::tell_again(Connection& connection) {
    if (news_.is(State::joining)) return;
    for (const Note& note : exchanges_.all()) connection.send(note);
}

/// Whether a child that connects is reconnecting after a loss. Drops its old connection if this end still has it.
bool Membership::is_again(const Connection& connection) {
    const auto found = std::ranges::find_if(neighbours_.all(), [&](const auto& c) {
        return c.get() != &connection && c->peer == connection.peer && c->role == Role::child;
    });
    if (found == neighbours_.all().end()) return mending_.is_mending(connection.peer);
    const std::shared_ptr<Connection> former = *found;
    neighbours_.drop(*former);
    former->close();
    return true;
}

// Sends the departures, the fault and the deaths that came before this connection was made.
void Membership::send_news(Connection& connection) {
    std::vector<Rank> left;
    for (Rank r = 0; r < ranks(); ++r)
        if (has_left(r)) left.push_back(r);
    send_left(connection, left);
    if (const auto fault = this->fault()) connection.send(*fault);
    for (const Rank r : dead()) {
        const bool silent = silent_hosts_.contains(member(r).host);
        connection.send(Failure{tuttiRemoteError, r, name_of(r) + (silent ? " is on a silent host" : " died"), rank(),
                                true, silent});
    }
}

void Membership::closed(Connection& connection, const Loss& loss) {
    const auto self = shared_from_this();
    const auto keep = connection.shared_from_this();
    const Role role = connection.role;
    const Rank peer = connection.peer;
    neighbours_.drop(connection);
    if (gone_ || role == Role::unknown) return;
    if (role == Role::directory) return joining_.directory_lost(connection, loss);
    if (!connection.welcome) {
        // The peer had not let this rank in yet, so the loss says nothing about the peer's life.
        joining_.not_let_in(connection, loss);
        if (role != Role::child && mending_.is_mending(peer)) return mending_.missed(peer, loss);
        if (role == Role::parent && news_.is(State::joined))
            mending_.seek_parent(peer, true);
        else if (role == Role::parent)
            joining_.call_parent_again(connection);
        else if (role == Role::pair)
            pairs_.lost(peer, loss);
        if (role != Role::pair) pairs_.call(peer);  // the agreement may have waited for this connection
        return finish_if_idle();
    }
    const bool passes_on =
        role == Role::parent && connection.may_heal(loss);  // a parent that has left still passes on news
    if (has_left(peer) && !passes_on) {
        descriptors_.fail({tuttiRemoteError, peer, name_of(peer) + " has left"}, peer);
        consensus_.lost(peer);
        if (role == Role::parent) mending_.seek_parent(peer, false);
        return finish_if_idle();
    }
    if (mending_.outlives(connection, loss)) return;
    log(Level::info, "rank %d lost its connection to rank %d: %s", rank(), peer, loss.text);
    // A process that ends closes its connections, also over a network. Other errors are the network's.
    const std::string what = loss.ended ? name_of(peer) + " died" : unreachable(peer, loss.text);
    const bool silent = loss.silent && !connection.address().is_local();
    hear({tuttiRemoteError, peer, what, rank(), loss.ended || silent, silent});
    consensus_.broken(peer);
    pairs_.call(peer);  // unless it counts as dead: an agreement with it goes on
}

void Membership::tell(std::uint64_t number, View bytes) {
    TUTTI_ASSERT(bytes.size() <= note_limit);
    on_note({rank(), number, Bytes(bytes.begin(), bytes.end())}, nullptr);
}

void Membership::on_note(const Note& note, const Connection* from) {
    if (exchanges_.note(note.number, note.rank, note.bytes))
        neighbours_.pass_on(note, from == nullptr ? -1 : from->peer);
}

std::vector<Bytes> Membership::wait_told(std::uint64_t number, Deadline deadline) {
    Exchanges::Told told = exchanges_.wait(number, deadline);
    if (told.all.size() == static_cast<std::size_t>(ranks())) return std::move(told.all);
    const std::string name = name_of(told.missing);
    if (told.in_time)
        throw PeerError(tuttiRemoteError, name + (has_left(told.missing) ? " has destroyed its communicator" : " died"),
                        told.missing);
    fail_by(told.missing, tuttiTimeout, "%s did not call the same function in time", name.c_str());
}

void Membership::shut() {
    if (gone_) return;
    gone_ = true;
    const auto self = shared_from_this();
    joining_.stop();
    pairs_.close_rendezvous();
    neighbours_.close();
    descriptors_.forget_who_asked();
    joining_.leave_host();
    service_->release(this);
}

}  // namespace tutti::bootstrap
