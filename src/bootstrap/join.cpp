// Membership, from start to joined.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "base/result.hpp"
#include "bootstrap/interfaces.hpp"
#include "bootstrap/membership.hpp"

namespace tutti::bootstrap {
namespace {

// Somebody with another secret may be the process' own previous rendezvous, which is about to end. Not for as long as
// this.
constexpr std::chrono::seconds refusal_limit{2};
// How long the answer to "who is missing?" may take.
constexpr std::chrono::seconds answer_limit{2};

bool is_exhaustion(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

}  // namespace

void Membership::start() {
    try {
        if (rank_ == 0 && rendezvous_.has(Rendezvous::rank0_opens)) open_directory();
        host_ = Directory::find(*service_, rendezvous_);
        if (host_) host_->add_session();
        open_listeners();
        shutting_ = Service::prepared([weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->shut();
        });
        service_->keep(shared_from_this());
        enlist();
        deadline_ = service_->after(timeout_, [this] { attempt([this] { time_up(); }); });  // until shut()
        if (!fault()) call_directory();
    } catch (...) {
        shut();
        throw;
    }
}

void Membership::open_directory() {
    try {
        Directory::open(*service_, rendezvous_);
    } catch (const AddressTaken& e) {
        // On a Unix socket of this job's name, that is another rank 0, and its directory will say so.
        if (!e.address.is_local())
            fail(tuttiSystemError,
                 "rank 0 can't open the place where the ranks meet: %s, which MASTER_ADDR and MASTER_PORT name, is "
                 "taken "
                 "by another program",
                 e.address.text().c_str());
    } catch (const Error& e) {
        fail(e.code(), "rank 0 can't open the place where the ranks meet%s: %s",
             rendezvous_.tcp ? " (MASTER_ADDR, MASTER_PORT)" : "", e.what());
    }
}

void Membership::open_listeners() {
    std::array<std::byte, 16> name;
    random_bytes(name.data(), name.size());
    local_ = Listener::open(*service_, *this, Address::local(name), secret_, static_cast<std::uint64_t>(rank_));
    mine_.local = local_->address();
    if (!rendezvous_.has(Rendezvous::one_host)) {
        // On the host of the rendezvous its address serves as well; listing interfaces takes a lock of the whole
        // kernel.
        const bool at_rendezvous = rendezvous_.tcp && rendezvous_.host == mine_.host;
        Address here = at_rendezvous ? rendezvous_.tcp : rendezvous_interface();
        here.port = 0;
        if (here) {
            remote_ = Listener::open(*service_, *this, here, secret_, static_cast<std::uint64_t>(rank_));
            mine_.remote = remote_->address();
        }
    }
    for (const auto& listener : {local_, remote_})
        if (listener)
            listener->starved = [this] {
                if (state_ == State::joining)
                    hear(
                        {tuttiSystemError, rank_, name_of(rank_) + " has run out of file descriptors; see `ulimit -n`"},
                        nullptr);
            };
    table_[static_cast<std::size_t>(rank_)]->member = mine_;
}

// Unix sockets where they can work, TCP where not. Where it isn't known, by turns: an absent Unix socket refuses at
// once.
void Membership::call_directory() {
    if (gone_ || state_ != State::joining) return;
    const bool maybe_here =
        !rendezvous_.has(Rendezvous::tcp_only) && (rendezvous_.host == 0 || rendezvous_.host == mine_.host);
    const bool tcp_turn = !maybe_here || (rendezvous_.host == 0 && rendezvous_.tcp && attempts_ % 2 == 1);
    const Address address = tcp_turn ? rendezvous_.tcp : rendezvous_.local();
    ++attempts_;
    if (tcp_turn && (!address || (address.is_loopback() && rendezvous_.host != 0 && rendezvous_.host != mine_.host)))
        return hear(
            {tuttiInvalidUsage, rank_,
             text("rank %d is not on the host of the process that made the unique id, but ranks can only meet %s; set "
                  "TUTTI_SOCKET_IFNAME there to an interface that all hosts reach",
                  rank_,
                  address ? ("at that host's own " + address.text()).c_str() : "on that host, which has no network")},
            nullptr);
    if (trouble_.empty()) trouble_ = address.text() + ": no answer";
    directory_ = dial(address, directory_tag, Role::directory, -1, rendezvous_.secret);
    if (directory_) return;
    const int why = errno;
    // Of a socket that was only tried in case, what TCP has met with tells more.
    const bool in_case =
        address.is_local() && rendezvous_.host == 0 && rendezvous_.tcp && !rendezvous_.has(Rendezvous::one_host);
    if (!in_case) trouble_ = address.text() + ": " + std::strerror(why);
    if (is_exhaustion(why))
        return hear({tuttiSystemError, rank_,
                     text("rank %d could not open a socket: %s%s", rank_, std::strerror(why),
                          why == EMFILE ? " (see `ulimit -n`)" : "")},
                    nullptr);
    if (in_case) return call_directory();
    retry(&Membership::call_directory, address.is_local());
}

void Membership::retry(void (Membership::*what)(), bool local) {
    if (gone_ || state_ != State::joining) return;
    // Ranks that have started together do not come back together.
    std::uint8_t chance;
    random_bytes(&chance, sizeof chance);
    retry_ = service_->after(pause_ * (256 + chance) / 512, [this, what] {
        retry_.reset();
        attempt([&] { (this->*what)(); });
    });
    pause_ = std::min(local ? longest_pause_local : longest_pause_remote, pause_ * 5 / 4);
}

void Membership::directory_lost(Connection& connection, const Loss& loss) {
    if (state_ == State::failed) shut_soon();
    if (state_ != State::joining) return;
    // Once we are on our way to our parent, the job may be complete without us knowing it yet.
    if (connection.welcome && !parent_member_)
        return hear(
            {tuttiRemoteError, -1,
             "the process where the ranks meet ended before all had joined (" + connection.address().text() + ")"},
            nullptr);
    if (connection.welcome) return;
    trouble_ = connection.address().text() + ": " + loss.text;
    if (loss.wrong_secret) {
        if (!refused_since_) refused_since_ = Clock::now();
        if (Clock::now() - *refused_since_ > refusal_limit)
            return hear({tuttiInvalidUsage, rank_,
                         text("rank %d was not let in: the job at %s has another secret. All ranks need the same "
                              "unique id or the same "
                              "TUTTI_SECRET",
                              rank_, connection.address().text().c_str())},
                        nullptr);
    } else {
        refused_since_.reset();
    }
    retry(&Membership::call_directory, connection.address().is_local());
}

// Rank 0 stays until all have joined, since it is the one that the directory tells of failures then.
void Membership::leave_directory() {
    if (!directory_) return;
    const auto d = directory_;
    d->send(Settled{});
    d->close();
    drop(*d);
}

void Membership::call_parent() {
    if (gone_ || state_ != State::joining || !parent_member_) return;
    const Member& p = *parent_member_;
    const bool near = is_near(p) && !rendezvous_.has(Rendezvous::tcp_only);
    const Address& address = near ? p.local : p.remote;
    if (!address)
        return hear({tuttiInvalidUsage, rank_,
                     text("%s and %s are on different hosts, but %s", mine_.text().c_str(), p.text().c_str(),
                          rendezvous_.has(Rendezvous::one_host) ? "the job was started for one host"
                                                                : "the latter has no network interface")},
                    nullptr);
    parent_ = dial(address, static_cast<std::uint64_t>(p.rank), Role::parent, p.rank, secret_);
    if (parent_) return;
    const int why = errno;
    trouble_ = address.text() + ": " + std::strerror(why);
    if (is_exhaustion(why))
        return hear({tuttiSystemError, rank_, text("rank %d could not open a socket: %s", rank_, std::strerror(why))},
                    nullptr);
    // It can't have joined without this rank, so it has given up; the directory, which would have said so, has as well.
    if (why == ECONNREFUSED && !directory_)
        return hear({tuttiRemoteError, -1,
                     "the place where the ranks meet was closed before all had joined, and " + p.text() +
                         " takes no connections any more"},
                    nullptr);
    retry(&Membership::call_parent, near);
}

void Membership::send_table(Connection& connection) {
    for (const auto& line : table_)
        if (line) connection.send(*line);
}

void Membership::on_record(Connection& connection, const Record& record) {
    auto& line = table_[static_cast<std::size_t>(record.member.rank)];
    if (line || state_ != State::joining) return;
    line = record;
    ++known_;
    look_at_process(record.member.rank);
    if (fault()) return;
    for (const auto& c : connections_)
        if (c.get() != &connection && is_tree(*c)) c->send(record);
    if (known_ == ranks_) joined();
}

void Membership::joined() {
    if (deadline_) service_->cancel(*deadline_);
    deadline_.reset();
    leave_directory();
    // Over the network come only children, all of which are there now, and orphans later: see seek_parent(). Those have
    // higher numbers.
    const auto comes_by_tcp = [&](const auto& line) {
        return line->member.rank > rank_ && (rendezvous_.has(Rendezvous::tcp_only) || !is_near(line->member));
    };
    if (remote_ && std::ranges::none_of(table_, comes_by_tcp)) {
        remote_->close();
        remote_.reset();
    }
    std::lock_guard lock(mutex_);
    state_ = State::joined;
    changed_.notify_all();
}

void Membership::time_up() {
    deadline_.reset();
    if (state_ != State::joining || asked_) return;
    asked_ = true;
    const Ask ask{static_cast<std::uint32_t>(timeout_.count())};
    if (parent_ && parent_->welcome)
        parent_->send(ask);
    else if (directory_ && directory_->welcome)
        directory_->send(ask);
    else
        return name_missing();
    deadline_ = service_->after(answer_limit, [this] { attempt([this] { name_missing(); }); });
}

// Nobody who knows more could be asked.
void Membership::name_missing() {
    deadline_.reset();
    if (state_ != State::joining) return;
    const double seconds = static_cast<double>(timeout_.count()) / 1000;
    if (parent_member_ || rank_ == 0) {
        std::vector<Rank> missing;
        for (Rank r = 0; r < ranks_; ++r)
            if (!table_[static_cast<std::size_t>(r)]) missing.push_back(r);
        return hear({tuttiTimeout, missing.front(),
                     text("rank %d did not hear of ranks %s within %g s (%s)", rank_, list_ranks(missing).c_str(),
                          seconds, trouble_.c_str())},
                    nullptr);
    }
    hear({tuttiTimeout, -1,
          text("rank %d could not reach the place where the ranks meet within %g s (%s)%s", rank_, seconds,
               trouble_.c_str(),
               rendezvous_.has(Rendezvous::rank0_opens) ? "; has rank 0 started?"
                                                        : "; does the process that made the unique id still live?")},
         nullptr);
}

void Membership::give_up(const Fault& fault) {
    if (state_ == State::joining) hear(fault, nullptr);
}

bool Membership::wait_joined(Deadline deadline) {
    std::unique_lock lock(mutex_);
    const bool over = changed_.wait_until(lock, deadline, [&] { return state_ != State::joining; });
    if (state_ == State::failed) throw Error(fault_->code, fault_->text);
    return over;
}

}  // namespace tutti::bootstrap
