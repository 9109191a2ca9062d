#include "bootstrap/membership.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

namespace tutti::bootstrap {

Membership::Membership(std::shared_ptr<Service> service, const Rendezvous& rendezvous, Rank rank, int ranks, View info,
                       std::chrono::milliseconds timeout, std::span<const std::uint64_t> processes)
    : service_(std::move(service)),
      rendezvous_(rendezvous),
      secret_(rendezvous.secret.derive("tutti members")),
      rank_(rank),
      ranks_(ranks),
      timeout_(timeout),
      processes_(processes.begin(), processes.end()),
      agreement_(rank, ranks, *this) {
    char host[host_limit + 1] = "?";
    gethostname(host, host_limit);
    mine_.rank = rank;
    mine_.pid = static_cast<std::uint32_t>(getpid());
    mine_.uid = geteuid();
    mine_.host = host_id();
    mine_.process = process_id();
    mine_.host_name = host;
    table_.resize(static_cast<std::size_t>(ranks));
    has_left_.resize(static_cast<std::size_t>(ranks));
    table_[static_cast<std::size_t>(rank)] = Record{mine_, Bytes(info.begin(), info.end()), {}};
    if (rank == 0) table_.front()->share = Secret::random();
    known_ = 1;
}

std::string Membership::name_of(Rank rank) const {
    if (rank < 0 || rank >= ranks_) return "the rendezvous";  // the only one that has no number
    const auto& line = table_[static_cast<std::size_t>(rank)];
    return line ? line->member.text() : text("rank %d", rank);
}

std::shared_ptr<Connection> Membership::dial(const Address& address, std::uint64_t tag, Role role, Rank peer,
                                             const Secret& secret) {
    connections_.reserve(connections_.size() + 1);  // who has been called is there
    std::shared_ptr<Connection> c = Connection::dial(*service_, *this, address, secret, tag);
    if (!c) return nullptr;
    c->role = role;
    c->peer = peer;
    connections_.push_back(c);
    return c;
}

namespace {

/// What a member says of itself that can't go on, also where there is no memory to say much.
std::string say(auto&& what) {
    try {
        return what();
    } catch (const std::bad_alloc&) {
        return "out of memory";
    }
}

}  // namespace

/// This member can't go on, which is no fault of whom it was about.
void Membership::failed(Connection&, const Error& error) {
    const std::string what = say([&] { return name_of(rank_) + ": " + error.what(); });
    give_up_agreeing(what);
    {
        const std::lock_guard lock(mutex_);
        cut_off_ = true;
    }
    hear({tuttiSystemError, rank_, what}, nullptr);
}

/// What the service does for this member without anybody who waits for it.
void Membership::attempt(Errand work) {
    try {
        work();
    } catch (...) {
        const std::string what = say([&] { return name_of(rank_) + ": " + caught().what(); });
        give_up_agreeing(what);
        hear({tuttiSystemError, rank_, what}, nullptr);
    }
}

void Membership::shut_soon() {
    if (shutting_) service_->post(std::move(shutting_));
}

void Membership::drop(Connection& connection) {
    if (directory_.get() == &connection) directory_.reset();
    if (parent_.get() == &connection) parent_.reset();
    std::erase_if(connections_, [&](const auto& c) { return c.get() == &connection; });
}

void Membership::opened(Connection& connection) {
    switch (connection.role) {
        case Role::unknown:
            connections_.push_back(connection.shared_from_this());
            return;  // it has to say who it is
        case Role::directory:
            connection.recognise();
            connection.send(Register{ranks_, mine_});
            send_news(connection);
            if (state_ == State::failed) shut_soon();  // since it called: see spread()
            return;
        case Role::parent:
            connection.recognise();
            connection.send(Attach{ranks_, rank_, true});
            if (state_ == State::joining) send_table(connection);
            send_news(connection);
            return;
        case Role::pair:
            connection.recognise();
            connection.send(Attach{ranks_, rank_, false});
            send_news(connection);
            send_requests(connection);
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
        return drop(connection);
    }
    if (!connection.welcome && !may_come_early(message))
        return hear({tuttiRemoteError, connection.peer,
                     text("%s told %s something before it had let it in", name_of(connection.peer).c_str(),
                          name_of(rank_).c_str())},
                    nullptr);
    if (!is_plausible(message))
        return hear({tuttiRemoteError, connection.peer,
                     text("%s told %s of a rank that can't be meant", name_of(connection.peer).c_str(),
                          name_of(rank_).c_str())},
                    nullptr);
    if (std::holds_alternative<Welcome>(message)) {
        connection.welcome = true;
        refused_since_.reset();
        if (connection.role == Role::parent) leave_directory();
        send_unsent(connection);
        if (connection.role == Role::directory && known_ == ranks_ && state_ == State::joining) joined();
    } else if (const auto* parent = std::get_if<Parent>(&message); parent && connection.role == Role::directory) {
        parent_member_ = parent->member;
        pause_ = first_pause;
        if (!parent_) call_parent();
    } else if (auto* record = std::get_if<Record>(&message); record && is_tree(connection)) {
        on_record(connection, *record);
    } else if (const auto* ask = std::get_if<Ask>(&message); ask && is_tree(connection)) {
        const auto& up = parent_ && parent_->welcome ? parent_ : directory_;
        if (up) up->send(*ask);
    } else if (auto* failure = std::get_if<Failure>(&message)) {
        if (failure->text.empty()) failure->text = name_of(connection.peer) + " told of a failure, and no reason";
        hear({failure->code, failure->origin, failure->text, failure->teller, failure->died}, &connection);
    } else if (const auto* left = std::get_if<Left>(&message)) {
        on_left(connection, *left);
    } else if (const auto* fetch = std::get_if<Fetch>(&message)) {
        on_fetch(connection, *fetch);
    } else if (const auto* give = std::get_if<Give>(&message)) {
        on_give(connection, *give, std::move(descriptor));
    } else if (const auto* note = std::get_if<Note>(&message); note && is_tree(connection)) {
        on_note(*note, &connection);
    } else if (auto* agree = std::get_if<Agree>(&message)) {
        on_agree(connection, *agree);
    }
}

/// Until it has let us in, the other side has nothing to tell but what it tells all.
bool Membership::may_come_early(const Message& message) {
    return std::holds_alternative<Welcome>(message) || std::holds_alternative<Failure>(message) ||
           std::holds_alternative<Left>(message);
}

/// What a message says of ranks is used as an index, so it is looked at before anything else.
bool Membership::is_plausible(const Message& message) const {
    const auto* parent = std::get_if<Parent>(&message);
    return fits(message, ranks_) && (parent == nullptr || parent->member.rank == parent_of(rank_));
}

void Membership::on_attach(Connection& connection, const Attach& attach) {
    if (attach.ranks != ranks_ || attach.rank == rank_ || gone_) {
        connection.close();
        return drop(connection);
    }
    connection.recognise();
    connection.peer = attach.rank;
    connection.role = attach.tree ? Role::child : Role::pair;
    connection.welcome = true;
    connection.send(Welcome{});
    // Once we have joined, so have all: whoever comes now only seeks a new parent.
    if (attach.tree && state_ == State::joining) send_table(connection);
    send_news(connection);
    send_unsent(connection);
}

// What has happened before this connection was made.
void Membership::send_news(Connection& connection) {
    std::vector<Rank> left;
    for (Rank r = 0; r < ranks_; ++r)
        if (has_left(r)) left.push_back(r);
    send_left(connection, left);
    if (const auto fault = this->fault())
        connection.send(Failure{fault->code, fault->origin, fault->text, fault->teller, fault->died});
    for (const Rank r : dead()) connection.send(Failure{tuttiRemoteError, r, name_of(r) + " died", rank_, true});
}

void Membership::closed(Connection& connection, const Loss& loss) {
    const auto self = shared_from_this();
    const auto keep = connection.shared_from_this();
    const Role role = connection.role;
    const Rank peer = connection.peer;
    drop(connection);
    if (gone_ || role == Role::unknown) return;
    if (role == Role::directory) return directory_lost(connection, loss);
    if (!connection.welcome) {
        // The other side never took us in, so its end says nothing about that rank.
        trouble_ = connection.address().text() + ": " + loss.text;
        if (role == Role::parent && state_ == State::joined)
            seek_parent(peer, true);
        else if (role == Role::parent)
            retry(&Membership::call_parent, connection.address().is_local());
        else if (role == Role::pair)
            pair_lost(peer, loss.error);
        return finish_if_idle();
    }
    if (has_left(peer)) {
        fail_fetches({tuttiRemoteError, peer, name_of(peer) + " has left"}, peer);
        lost(peer);
        if (role == Role::parent) seek_parent(peer, false);
        return finish_if_idle();
    }
    log(Level::info, "rank %d lost its connection to rank %d: %s", rank_, peer, loss.text);
    // The end of a process closes its connections, also over a network; other errors tell of the network itself.
    const std::string what = loss.ended ? " died" : std::string(" can't be reached any more: ") + loss.text;
    hear({tuttiRemoteError, peer, name_of(peer) + what, rank_, loss.ended}, nullptr);
}

void Membership::shut() {
    if (gone_) return;
    gone_ = true;
    const auto self = shared_from_this();
    for (auto* timer : {&deadline_, &retry_}) {
        if (*timer) service_->cancel(**timer);
        timer->reset();
    }
    for (const auto& c : connections_) c->close();
    connections_.clear();
    directory_.reset();
    parent_.reset();
    if (local_) local_->close();
    if (remote_) remote_->close();
    local_.reset();
    remote_.reset();
    parked_.clear();
    if (host_) host_->remove_session();
    host_.reset();
    service_->release(this);
}

}  // namespace tutti::bootstrap
