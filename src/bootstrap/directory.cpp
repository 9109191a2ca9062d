#include "bootstrap/directory.hpp"

#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "base/result.hpp"
#include "bootstrap/membership.hpp"

namespace tutti::bootstrap {
namespace {

// How long a failed rendezvous still tells late-comers why, and how many of a process do so: each has sockets.
constexpr std::chrono::seconds linger_failed{10};
constexpr std::ptrdiff_t most_lingering = 8;
// How long a member has to register again after its connection was reset. It calls again at once.
constexpr std::chrono::milliseconds time_to_register_again{1000};

// The directories of this process. For the service thread alone; a forked child does not use the parent's.
std::vector<std::weak_ptr<Directory>>& directories() {
    static auto& all = *new std::vector<std::weak_ptr<Directory>>;
    return all;
}

}  // namespace

std::string list_ranks(const std::vector<Rank>& ranks) {
    std::string list;
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t end = i;
        while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
        if (!list.empty()) list += ", ";
        list += std::to_string(ranks[i]);
        if (end > i) list += (end == i + 1 ? ", " : "-") + std::to_string(ranks[end]);
        i = end + 1;
    }
    return list;
}

std::shared_ptr<Directory> Directory::open(Service& service, const Rendezvous& rendezvous) {
    std::shared_ptr<Directory> made(new Directory(service, rendezvous));
    std::erase_if(directories(), [](const auto& weak) { return weak.expired(); });
    made->unix_ = Listener::open(service, *made, made->local_, rendezvous.secret, directory_tag);
    if (rendezvous.tcp) {
        // A process may open one rendezvous after the other at the launcher's port, so those that are over free it.
        for (const auto& weak : directories())
            if (const auto d = weak.lock();
                d && &d->service_ == &service && d->state_ != State::gathering && rendezvous.tcp.port != 0)
                d->close_tcp();
        made->tcp_ = Listener::open(service, *made, rendezvous.tcp, rendezvous.secret, directory_tag);
    }
    for (const auto& listener : {made->unix_, made->tcp_})
        if (listener)
            listener->starved = [d = made.get()] {
                d->fail_all([] {
                    return Failure{tuttiSystemError, -1,
                                   "the rendezvous has run out of file descriptors; see `ulimit -n`"};
                });
            };
    made->lingering_ = Service::later([weak = std::weak_ptr<Directory>(made)] {
        if (const auto d = weak.lock()) d->close();
    });
    directories().push_back(made);
    service.keep(made);
    return made;
}

void Directory::open_by_rank0(Service& service, const Rendezvous& rendezvous) {
    const bool by_id = rendezvous.has(Rendezvous::comm_id);
    try {
        open(service, rendezvous);
    } catch (const AddressTaken& e) {
        // If the Unix socket is taken, there is another rank 0 of this job, and its directory will say so.
        if (!e.address.is_local())
            fail(tuttiSystemError,
                 "rank 0 can't open the place where the ranks meet: %s, which %s, is taken by another program",
                 e.address.text().c_str(), by_id ? "NCCL_COMM_ID names" : "MASTER_ADDR and MASTER_PORT name");
    } catch (const Error& e) {
        fail(e.code(), "rank 0 can't open the place where the ranks meet%s: %s",
             !rendezvous.tcp ? ""
             : by_id         ? " (NCCL_COMM_ID)"
                             : " (MASTER_ADDR, MASTER_PORT)",
             e.what());
    }
}

std::shared_ptr<Directory> Directory::find(Service& service, const Rendezvous& rendezvous) {
    const Address wanted = rendezvous.local();
    for (const auto& weak : directories())
        if (const auto d = weak.lock(); d && &d->service_ == &service && d->local_ == wanted) return d;
    return nullptr;
}

Directory::~Directory() {
    close();
}

void Directory::opened(Connection& connection) {
    visitors_.emplace(&connection, connection.shared_from_this());
}

void Directory::received(Connection& connection, Message& message, Fd) {
    if (const auto* m = std::get_if<Register>(&message); m && connection.peer < 0) return on_register(connection, *m);
    if (connection.peer < 0) {
        connection.close();
        visitors_.erase(&connection);
        return;
    }
    if (std::holds_alternative<Settled>(message)) return on_settled(connection);
    if (const auto* m = std::get_if<Ask>(&message)) return on_ask(*m);
    if (const auto* m = std::get_if<Failure>(&message); m && fits(message, ranks_)) return fail_all([&] { return *m; });
}

void Directory::closed(Connection& connection, const Loss& loss) {
    const auto self = shared_from_this();
    const Rank rank = connection.peer;
    visitors_.erase(&connection);
    if (loss.turned_away != nullptr)
        turned_away_ = text("; %s has called, and %s",
                            loss.caller ? loss.caller.text().c_str() : "a process of this host", loss.turned_away);
    const auto seat = seats_.find(rank);
    if (seat == seats_.end() || seat->second.connection.get() != &connection) return;
    seat->second.connection.reset();
    --settling_;
    Loss here = loss;
    here.silent = loss.silent && !connection.address().is_local();
    const bool waits = !seat->second.settled && state_ == State::gathering;
    if (!waits || !connection.may_heal(loss)) return lose(rank, here);
    service_.after(time_to_register_again, [weak = weak_from_this(), rank, here]() mutable {
        const auto directory = weak.lock();
        if (!directory || directory->state_ != State::gathering) return;
        here.text = "its connection was reset, and not made again";  // Loss::text is not valid any more
        const auto its = directory->seats_.find(rank);
        if (its != directory->seats_.end() && !its->second.connection) directory->probe(rank, here);
    });
}

/// Calls the address at which a member listens. If the call is refused, the member's process has ended.
class Directory::Probe : public ConnectionUser {
  public:
    Probe(Directory& directory, Rank rank, const Loss& loss) : directory_(directory), rank_(rank), loss_(loss) {}
    ~Probe() override {
        if (connection_) connection_->close();
    }
    bool is_of(Rank rank) const { return rank == rank_; }
    void start(const Address& address) {
        const auto tag = static_cast<std::uint64_t>(rank_);
        connection_ = Connection::dial(directory_.service_, *this, address, directory_.secret_, tag);
        if (!connection_) tell(errno == ECONNREFUSED ? &loss_ : nullptr);
    }

  private:
    void opened(Connection& connection) override {
        connection.close();
        tell(nullptr);
    }
    void received(Connection&, Message&, Fd) override {}
    void closed(Connection&, const Loss& loss) override {
        tell(loss.silent ? &loss : loss.error == ECONNREFUSED ? &loss_ : nullptr);
    }
    void failed(Connection& connection, const Error& error) override { directory_.failed(connection, error); }
    /// Reports the result: how the member's connection was lost, or nullptr if its process is there. May destroy this
    /// probe, and the directory.
    void tell(const Loss* gone) {
        const auto keep = directory_.shared_from_this();
        const Rank rank = rank_;
        if (gone == nullptr) return keep->is_there(rank);
        const Loss loss = *gone;
        if (!keep->seats_.at(rank).connection) keep->lose(rank, loss);
    }

    Directory& directory_;
    const Rank rank_;
    const Loss loss_;
    std::shared_ptr<Connection> connection_;
};

/// Finds out about a member whose connection was reset and which has not registered again. It may be fine: it had its
/// parent by then, and its Settled was lost.
void Directory::probe(Rank rank, const Loss& loss) {
    std::erase_if(probes_, [&](const auto& probe) { return probe->is_of(rank); });
    probes_.push_back(std::make_shared<Probe>(*this, rank, loss));
    const std::shared_ptr<Probe> probe = probes_.back();
    probe->start(seats_.at(rank).member.remote);
}

/// A probe has found the member alive, so it is taken to have its parent. Rank 0 has none: it registers again, unless
/// all have met.
void Directory::is_there(Rank rank) {
    const auto seat = seats_.find(rank);
    const bool comes_again = rank == 0 && state_ == State::gathering;
    if (seat != seats_.end() && !seat->second.connection && !comes_again) seat->second.settled = true;
    close_if_idle();
}

/// Handles a member that has lost its connection for good.
void Directory::lose(Rank rank, const Loss& loss) {
    const Seat& seat = seats_.at(rank);
    if (!seat.settled && state_ == State::gathering) {
        if (loss.ended || loss.silent) Membership::process_ended(service_, seat.member.process, loss.silent);
        fail_all([&] {
            const std::string what = loss.silent ? std::string(" could not be reached any more: ") + loss.text
                                                 : std::string(" died before all ranks had joined");
            return Failure{tuttiRemoteError, rank, seat.member.text() + what, -1, true, loss.silent};
        });
    }
    close_if_idle();
}

void Directory::on_register(Connection& connection, const Register& request) {
    connection.recognise();
    connection.peer = request.member.rank;
    const bool again = is_again(request.member);
    if (const Member* const former = again ? nullptr : former_of(request))
        return connection.send(Failure{tuttiRemoteError, -1,  // the former rank may not exist in the next job
                                       "an earlier job is still there, whose " + former->text() +
                                           " has ended; the next one meets when that job's rank 0 has, too"});
    connection.send(Welcome{});
    if (!again && !admit(connection, request)) return;
    Seat& seat = seats_[request.member.rank];
    seat.member = request.member;
    seat.settled = false;
    seat.connection = connection.shared_from_this();
    ++settling_;
    tell_parent(seat);
    for (int child = 1; child <= tree_width; ++child) {
        const auto waiting = seats_.find(tree_width * request.member.rank + child);
        if (waiting != seats_.end()) tell_parent(waiting->second);
    }
}

/// Whether that member registers again after a reset. Drops its old connection if this end still has it.
bool Directory::is_again(const Member& member) {
    const auto seat = seats_.find(member.rank);
    if (seat == seats_.end() || state_ == State::failed || !(seat->second.member.local == member.local)) return false;
    if (const std::shared_ptr<Connection> former = std::move(seat->second.connection)) {
        --settling_;
        visitors_.erase(former.get());
        former->close();
    }
    return true;
}

/// The member of an earlier job at this rendezvous whose process has ended, which shows that `request` belongs to the
/// next job: the member of the same rank and host, or any of that host if the number of ranks differs. nullptr if there
/// is none.
const Member* Directory::former_of(const Register& request) const {
    if (state_ != State::complete || !serves_many_) return nullptr;
    const auto makes_room = [&](const auto& seat) {
        const auto& [rank, former] = seat;
        return (request.ranks != ranks_ || rank == request.member.rank) && former.member.host == request.member.host &&
               !connect_to(former.member.local) && errno == ECONNREFUSED;
    };
    const auto found = std::ranges::find_if(seats_, makes_room);
    return found == seats_.end() ? nullptr : &found->second.member;
}

bool Directory::admit(Connection& connection, const Register& request) {
    const Member& m = request.member;
    static const auto& no_memory =
        *new const Failure{tuttiSystemError, -1, "the process where the ranks meet is out of memory"};
    if (state_ == State::failed) return connection.send(failure_.value_or(no_memory)), false;
    if (ranks_ == 0) ranks_ = request.ranks, first_ = m;
    if (request.ranks != ranks_) {
        Failure f{tuttiInvalidUsage, m.rank,
                  text("the ranks disagree on how many they are: %s says %d, %s says %d", m.text().c_str(),
                       request.ranks, first_.text().c_str(), ranks_)};
        return state_ == State::complete ? connection.send(f) : fail_all([&] { return f; }), false;
    }
    const auto taken = seats_.find(m.rank);
    if (taken == seats_.end()) return true;
    const Member& other = taken->second.member;
    Failure f{tuttiInvalidUsage, m.rank,
              text("rank %d is there twice: as pid %u on host %s and as pid %u on host %s", m.rank, other.pid,
                   other.host_name.c_str(), m.pid, m.host_name.c_str())};
    if (state_ == State::complete) {
        f.text += "; the job is complete and goes on without the second (a unique id serves one communicator)";
        return connection.send(f), false;
    }
    return fail_all([&] { return f; }), false;
}

void Directory::tell_parent(Seat& seat) {
    if (!seat.connection || seat.settled) return;
    if (seat.member.rank == 0) return;
    const auto parent = seats_.find(parent_of(seat.member.rank));
    if (parent != seats_.end()) seat.connection->send(Parent{parent->second.member});
}

void Directory::on_settled(Connection& connection) {
    const auto seat = seats_.find(connection.peer);
    if (seat == seats_.end() || seat->second.connection.get() != &connection) return;
    seat->second.settled = true;
    if (connection.peer != 0 || state_ != State::gathering) return;
    state_ = State::complete;
    close_tcp();
}

void Directory::on_ask(const Ask& ask) {
    if (state_ != State::gathering) return;
    std::vector<Rank> missing, unsettled;
    for (Rank r = 0; r < ranks_; ++r) {
        const auto seat = seats_.find(r);
        if (seat == seats_.end())
            missing.push_back(r);
        else if (!seat->second.settled && r != 0)
            unsettled.push_back(r);
    }
    const auto ranks_text = [](const std::vector<Rank>& r) {
        return (r.size() == 1 ? "rank " : "ranks ") + list_ranks(r);
    };
    const double seconds = ask.waited_ms / 1000.0;
    const std::string where =
        tcp_ ? " at " + tcp_->address().text() + ": have they started, and do their hosts reach that address?"
             : " at a Unix socket of host " + first_.host_name +
                   ": have they started there, in the same network namespace, with the same unique id, or as the same "
                   "user with the same MASTER_ADDR, MASTER_PORT and TUTTI_SECRET?";
    std::string what;
    if (!missing.empty())
        what = text("%s of %d did not arrive within %g s%s%s", ranks_text(missing).c_str(), ranks_, seconds,
                    where.c_str(), turned_away_.c_str());
    else if (!unsettled.empty())
        what = text("all %d ranks arrived, but %s could not connect to the others within %g s", ranks_,
                    ranks_text(unsettled).c_str(), seconds);
    else
        what = text("all %d ranks arrived, but did not hear of each other within %g s", ranks_, seconds);
    const std::vector<Rank>& origins = missing.empty() ? unsettled : missing;
    fail_all([&] { return Failure{tuttiTimeout, origins.empty() ? -1 : origins.front(), what}; });
}

void Directory::tell_all(const Failure& failure) {
    failure_ = failure;
    log(Level::info, "rendezvous: %s", failure.text.c_str());
    for (const auto& [key, c] : visitors_)
        if (c->peer >= 0) c->send(failure);
}

/// Keeps the failed directory open for a while, to tell late-comers.
void Directory::linger() {
    service_.at(Clock::now() + linger_failed, std::move(lingering_));
    const auto lingers = [&](const std::weak_ptr<Directory>& weak) {
        const auto d = weak.lock();
        return d && &d->service_ == &service_ && d->state_ == State::failed && d->unix_;
    };
    if (std::ranges::count_if(directories(), lingers) > most_lingering)
        std::ranges::find_if(directories(), lingers)->lock()->close();  // the oldest
}

// Closes if all have met, all members have closed their connections, and no session of this process needs it. A member
// that still has a connection would take its end for a failure.
void Directory::close_if_idle() {
    const auto zero = seats_.find(0);
    const bool met = state_ == State::complete || (zero != seats_.end() && zero->second.settled);
    if (met && sessions_ == 0 && settling_ == 0) close();
}

void Directory::close_tcp() {
    if (tcp_) tcp_->close();
    tcp_.reset();
}

void Directory::close() {
    const auto self = weak_from_this().lock();
    close_tcp();
    if (unix_) unix_->close();
    unix_.reset();
    hang_up();
    service_.release(this);
}

void Directory::hang_up() {
    for (const auto& [key, c] : visitors_) c->close();
    visitors_.clear();
    seats_.clear();
    probes_.clear();
    settling_ = 0;
}

}  // namespace tutti::bootstrap
