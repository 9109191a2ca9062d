#include "bootstrap/membership.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/peer_error.hpp"
#include "base/result.hpp"

namespace tutti::bootstrap {

namespace {

// If every record were passed on at once, each rank of a large job would wake up once per rank. So records are held for
// a moment and travel together, and the number of wake-ups does not grow with the job. The last record flushes all at
// once, so joining does not end later for it.
constexpr int held_from_ranks = 64;
constexpr std::chrono::microseconds hold_of_a_rank{2}, longest_hold{50'000};

}  // namespace

Membership::Membership(std::shared_ptr<Service> service, const Rendezvous& rendezvous, Rank rank, int ranks, View info,
                       std::chrono::milliseconds timeout, std::span<const std::uint64_t> processes)
    : service_(std::move(service)),
      rendezvous_(rendezvous),
      secret_(rendezvous.secret.derive("tutti members")),
      roster_(rank, ranks, info, processes),
      news_(monitor_, ranks),
      exchanges_(monitor_, news_, ranks),
      neighbours_(*service_, *this),
      joining_(*this, timeout),
      descriptors_(monitor_, news_),
      consensus_(monitor_, news_, *this, rank, ranks) {}

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
            if (news_.is(State::joining) || mending_.contains(connection.peer)) send_table(connection);
            send_news(connection);
            tell_again(connection);
            return;
        case Role::pair:
            connection.recognise();
            calling_.erase(connection.peer);
            connection.send(Attach{ranks(), rank(), false});
            send_news(connection);
            if (connection.address().is_local()) descriptors_.send_requests(connection);
            return;
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
        if (connection.role == Role::parent) {
            mended(connection.peer);
            if (std::exchange(untold_, false)) finish_if_idle();
        }
        consensus_.say_again(connection);
        if (connection.role == Role::directory && roster_.complete() && news_.is(State::joining)) joining_.finish();
    } else if (const auto* parent = std::get_if<Parent>(&message); parent && connection.role == Role::directory) {
        joining_.met(parent->member);
    } else if (auto* record = std::get_if<Record>(&message); record && is_tree(connection)) {
        on_record(connection, *record);
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
        on_give(connection, *give, std::move(descriptor));
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
    if (!attach.tree) return try_parent(attach.rank);
    tell_again(connection);
    mended(attach.rank);
}

void Membership::send_table(Connection& connection) {
    for (Rank r = 0; r < ranks(); ++r)
        if (roster_.has(r)) connection.send(record(r));
}

void Membership::on_record(Connection& connection, const Record& record) {
    if (!news_.is(State::joining) || !roster_.add(record)) return;
    is_heard_of_again(record.member);
    look_at_process(record.member.rank);
    if (fault()) return;
    held_.push_back({record.member.rank, connection.peer});
    if (roster_.complete()) {
        pass_on_held();
        joining_.finish();
    } else if (ranks() <= held_from_ranks) {
        pass_on_held();
    } else if (held_.size() == 1) {
        service_->after(std::min(hold_of_a_rank * ranks(), longest_hold), [weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->attempt([&] { self->pass_on_held(); });
        });
    }
}

/// A neighbour that has connected since the records came got them from send_table() as well.
void Membership::pass_on_held() {
    for (const auto& [rank, from] : std::exchange(held_, {})) neighbours_.pass_on(record(rank), from);
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
        if (role != Role::child && mending_.contains(peer)) return missed_to_mend(peer, loss);
        if (role == Role::parent && news_.is(State::joined))
            seek_parent(peer, true);
        else if (role == Role::parent)
            joining_.call_parent_again(connection);
        else if (role == Role::pair)
            pair_lost(peer, loss);
        if (role != Role::pair) call(peer);  // the agreement may have waited for this connection
        return finish_if_idle();
    }
    const bool passes_on =
        role == Role::parent && may_heal(connection, loss);  // a parent that has left still passes on news
    if (has_left(peer) && !passes_on) {
        descriptors_.fail({tuttiRemoteError, peer, name_of(peer) + " has left"}, peer);
        consensus_.lost(peer);
        if (role == Role::parent) seek_parent(peer, false);
        return finish_if_idle();
    }
    if (outlives(connection, loss)) return;
    log(Level::info, "rank %d lost its connection to rank %d: %s", rank(), peer, loss.text);
    // A process that ends closes its connections, also over a network. Other errors are the network's.
    const std::string what = loss.ended ? name_of(peer) + " died" : unreachable(peer, loss.text);
    const bool silent = loss.silent && !connection.address().is_local();
    hear({tuttiRemoteError, peer, what, rank(), loss.ended || silent, silent});
    consensus_.broken(peer);
    call(peer);  // unless it counts as dead: an agreement with it goes on
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
    close_rendezvous();
    neighbours_.close();
    descriptors_.forget_who_asked();
    joining_.leave_host();
    service_->release(this);
}

}  // namespace tutti::bootstrap
