#include "bootstrap/joining.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "base/result.hpp"
#include "bootstrap/interfaces.hpp"
#include "bootstrap/membership.hpp"

namespace tutti::bootstrap {
namespace {

// How long answers with another secret are tolerated: they may come from a previous rendezvous that is about to end.
constexpr std::chrono::seconds refusal_limit{2};
// The pauses between calls are short at first, because ranks mostly start together, and grow. They are the longer, the
// more ranks there are: those of one host share its cores, and one host answers all.
constexpr std::chrono::microseconds first_pause{200}, longest_pause_local{5000}, longest_pause_remote{50000};
constexpr std::chrono::microseconds pause_of_a_rank{10};

/// The first pause before a call of the directory.
std::chrono::microseconds first_pause_among(int ranks) {
    return std::clamp(pause_of_a_rank * ranks, first_pause, longest_pause_remote);
}
/// The longest pause between calls over the network.
std::chrono::microseconds longest_pause_among(int ranks) {
    return std::max(longest_pause_remote, 2 * pause_of_a_rank * ranks);
}
// If every record were passed on at once, each rank of a large job would wake up once per rank. So records are held for
// a moment and travel together, and the number of wake-ups does not grow with the job. The last record flushes all at
// once, so joining does not end later for it.
constexpr int held_from_ranks = 64;
constexpr std::chrono::microseconds hold_of_a_rank{2}, longest_hold{50'000};
// How long the directory's answer to an Ask may take.
constexpr std::chrono::seconds answer_limit{2};

bool is_exhaustion(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

}  // namespace

Joining::Joining(Membership& membership, std::chrono::milliseconds timeout, const Address& here)
    : m_(membership), timeout_(timeout), here_(here), pause_(first_pause_among(membership.ranks())) {}

void Joining::open() {
    times_.called = Clock::now();
    enter_directory();
    open_listeners();
}

void Joining::enter_directory() {
    if (m_.rank() == 0 && m_.rendezvous_.has(Rendezvous::rank0_opens))
        Directory::open_by_rank0(*m_.service_, m_.rendezvous_);
    host_ = Directory::find(*m_.service_, m_.rendezvous_);
    if (host_) host_->add_session();
}

void Joining::start() {
    deadline_ = m_.service_->after(timeout_, [this] { m_.attempt([this] { time_up(); }); });  // until stop()
    if (!m_.fault()) call_directory();
}

void Joining::stop() {
    if (deadline_) m_.service_->cancel(*deadline_);
    deadline_.reset();
}

void Joining::leave_host() {
    if (host_) host_->remove_session();
    host_.reset();
}

bool Joining::goes_on() const {
    return !m_.gone_ && m_.news_.is(News::State::joining);
}

void Joining::open_listeners() {
    Neighbours& neighbours = m_.neighbours_;
    Member& mine = m_.roster_.mine();
    mine.local = neighbours.listen_locally(m_.secret_, m_.rank());
    if (!m_.rendezvous_.has(Rendezvous::one_host)) {
        // On the host of the rendezvous, listen at its address: to list interfaces takes a lock of the whole kernel.
        const bool at_rendezvous = m_.rendezvous_.tcp && m_.rendezvous_.host == mine.host;
        Address here = at_rendezvous ? m_.rendezvous_.tcp : here_ ? here_ : rendezvous_interface();
        here.port = 0;
        if (here) mine.remote = neighbours.listen_remotely(here, m_.secret_, m_.rank());
    }
    neighbours.on_starved([this] {
        if (m_.news_.is(News::State::joining))
            m_.hear({tuttiSystemError, m_.rank(),
                     m_.name_of(m_.rank()) + " has run out of file descriptors; see `ulimit -n`"});
    });
}

// Calls the directory at its Unix socket if it is on this host, and over TCP if it is not. If its host is not known, it
// tries them by turns: if there is no such Unix socket, the call is refused at once.
void Joining::call_directory() {
    const auto& up = m_.neighbours_.parent();
    if (!goes_on() || m_.neighbours_.directory() || (up && up->welcome)) return;
    if (m_.rank() == 0 && !host_) enter_directory();  // an earlier job's rendezvous may have had the address until now
    const bool maybe_here = !m_.rendezvous_.has(Rendezvous::tcp_only) &&
                            (m_.rendezvous_.host == 0 || m_.rendezvous_.host == m_.roster_.mine().host);
    const bool tcp_turn = !maybe_here || (m_.rendezvous_.host == 0 && m_.rendezvous_.tcp && attempts_ % 2 == 1);
    const Address address = tcp_turn ? m_.rendezvous_.tcp : m_.rendezvous_.local();
    ++attempts_;
    if (tcp_turn && (!address || (address.is_loopback() && m_.rendezvous_.host != 0 &&
                                  m_.rendezvous_.host != m_.roster_.mine().host)))
        return m_.hear(
            {tuttiInvalidUsage, m_.rank(),
             text("rank %d is not on the host of the process that made the unique id, but ranks can only meet %s; set "
                  "TUTTI_SOCKET_IFNAME there to an interface that all hosts reach",
                  m_.rank(),
                  address ? ("at that host's own " + address.text()).c_str() : "on that host, which has no network")});
    // If the Unix socket is only tried in case, the trouble that TCP has tells more.
    const bool in_case = address.is_local() && m_.rendezvous_.host == 0 && m_.rendezvous_.tcp &&
                         !m_.rendezvous_.has(Rendezvous::one_host);
    if (trouble_.empty()) trouble_ = (in_case ? m_.rendezvous_.tcp : address).text() + ": no answer";
    if (m_.neighbours_.dial(address, directory_tag, Role::directory, -1, m_.rendezvous_.secret)) return;
    const int why = errno;
    if (!in_case) trouble_ = address.text() + ": " + std::strerror(why);
    if (is_exhaustion(why))
        return m_.hear({tuttiSystemError, m_.rank(),
                        text("rank %d could not open a socket: %s%s", m_.rank(), std::strerror(why),
                             why == EMFILE ? " (see `ulimit -n`)" : "")});
    if (in_case) return call_directory();
    retry(&Joining::call_directory, address.is_local());
}

void Joining::retry(void (Joining::*what)(), bool local) {
    if (!goes_on()) return;
    // A random pause, so that ranks that have started together do not come back together.
    std::uint8_t chance;
    random_bytes(&chance, sizeof chance);
    m_.after(pause_ * (256 + chance) / 512, [this, what] { (this->*what)(); });
    const auto longest = local ? longest_pause_local : longest_pause_among(m_.ranks());
    pause_ = std::min(longest, pause_ * 5 / 4);
}

void Joining::directory_lost(Connection& connection, const Loss& loss) {
    if (m_.news_.is(News::State::failed)) m_.shut_soon();
    if (!m_.news_.is(News::State::joining)) return;
    if (connection.welcome && connection.may_heal(loss))
        return retry(&Joining::call_directory, false);  // the directory waits for this rank, and may have news for it
    // Once this rank knows its parent, the job may be complete without this rank knowing it yet.
    const bool has_ended = connection.welcome || (times_.let_in != Deadline{} && loss.error == ECONNREFUSED);
    if (has_ended && !parent_)
        return m_.hear(
            {tuttiRemoteError, -1,
             "the process where the ranks meet ended before all had joined (" + connection.address().text() + ")"});
    if (connection.welcome) return;
    trouble_ = connection.address().text() + ": " + loss.text;
    if (loss.wrong_secret) {
        if (!refused_since_) refused_since_ = Clock::now();
        if (Clock::now() - *refused_since_ > refusal_limit)
            return m_.hear({tuttiInvalidUsage, m_.rank(),
                            text("rank %d was not let in: the job at %s has another secret. All ranks need the same "
                                 "unique id or the same "
                                 "TUTTI_SECRET",
                                 m_.rank(), connection.address().text().c_str())});
    } else {
        refused_since_.reset();
    }
    retry(&Joining::call_directory, connection.address().is_local());
}

void Joining::met(const Member& parent) {
    parent_ = parent;
    pause_ = first_pause;  // a parent is only called by its few children
    if (!m_.neighbours_.parent()) call_parent();
}

void Joining::welcomed(const Connection& connection) {
    refused_since_.reset();
    (connection.role == Role::parent ? times_.attached : times_.let_in) = Clock::now();
    if (connection.role == Role::parent) leave_directory();
}

void Joining::not_let_in(const Connection& connection, const Loss& loss) {
    trouble_ = connection.address().text() + ": " + loss.text;
}

void Joining::turned_away(Connection& directory, const std::string& why) {
    const bool local = directory.address().is_local();
    trouble_ = directory.address().text() + ": " + why;
    directory.close();
    m_.neighbours_.drop(directory);
    retry(&Joining::call_directory, local);
}

void Joining::call_parent_again(const Connection& connection) {
    retry(&Joining::call_parent, connection.address().is_local());
}

// Closes the connection to the directory. Rank 0 calls it only when all have joined: until then the directory tells it
// of failures.
void Joining::leave_directory() {
    const std::shared_ptr<Connection> directory = m_.neighbours_.directory();
    if (!directory) return;
    directory->send(Settled{});
    directory->close();
    m_.neighbours_.drop(*directory);
}

void Joining::call_parent() {
    if (!goes_on() || !parent_ || m_.neighbours_.parent()) return;
    const Member& p = *parent_;
    const Address& address = m_.address_of(p);
    if (!address)
        return m_.hear(
            {tuttiInvalidUsage, m_.rank(),
             text("%s and %s are on different hosts, but %s", m_.roster_.mine().text().c_str(), p.text().c_str(),
                  m_.rendezvous_.has(Rendezvous::one_host) ? "the job was started for one host"
                                                           : "the latter has no network interface")});
    if (m_.neighbours_.dial(address, static_cast<std::uint64_t>(p.rank), Role::parent, p.rank, m_.secret_)) return;
    const int why = errno;
    trouble_ = address.text() + ": " + std::strerror(why);
    if (is_exhaustion(why))
        return m_.hear(
            {tuttiSystemError, m_.rank(), text("rank %d could not open a socket: %s", m_.rank(), std::strerror(why))});
    // The parent can't have joined without this rank, so it has given up, and so has the directory, which would have
    // said so.
    if (why == ECONNREFUSED && !m_.neighbours_.directory())
        return m_.hear({tuttiRemoteError, -1,
                        "the place where the ranks meet was closed before all had joined, and " + p.text() +
                            " takes no connections any more"});
    retry(&Joining::call_parent, address.is_local());
}

void Joining::heard(const Record& record, Rank from) {
    if (!m_.news_.is(News::State::joining) || !m_.roster_.add(record)) return;
    m_.is_heard_of_again(record.member);
    m_.look_at_process(record.member.rank);
    if (m_.fault()) return;
    held_.push_back({record.member.rank, from});
    if (m_.roster_.complete()) {
        pass_on_held();
        finish();
    } else if (m_.ranks() <= held_from_ranks) {
        pass_on_held();
    } else if (held_.size() == 1) {
        m_.after(std::min(hold_of_a_rank * m_.ranks(), longest_hold), [this] { pass_on_held(); });
    }
}

/// A neighbour that has connected since the records came got them from Membership::send_table() as well.
void Joining::pass_on_held() {
    for (const auto& [rank, from] : std::exchange(held_, {})) m_.neighbours_.pass_on(m_.record(rank), from);
}

void Joining::finish() {
    if (deadline_) m_.service_->cancel(*deadline_);
    deadline_.reset();
    leave_directory();
    // All children are connected now. Over the network only ranks of other hosts connect later: those that seek a new
    // parent (seek_parent()), and those that agree on who is left.
    bool come_by_tcp = m_.rendezvous_.has(Rendezvous::tcp_only) && m_.ranks() > 1;
    for (Rank r = 0; r < m_.ranks() && !come_by_tcp; ++r) come_by_tcp = m_.roster_.host(r) != m_.roster_.mine().host;
    if (!come_by_tcp) m_.neighbours_.stop_listening_remotely();
    times_.complete = Clock::now();
    if (m_.rank() == 0) times_.attached = times_.let_in;
    const auto ms = [this](Deadline until) {
        return std::chrono::duration<double, std::milli>(until - times_.called).count();
    };
    log(Level::info, "rank %d of %d met the others in %.1f ms: rank 0's rendezvous after %.1f, its parent after %.1f",
        m_.rank(), m_.ranks(), ms(times_.complete), ms(times_.let_in), ms(times_.attached));
    m_.news_.become(News::State::joined);
}

void Joining::time_up() {
    deadline_.reset();
    if (!m_.news_.is(News::State::joining) || asked_) return;
    asked_ = true;
    const Ask ask{static_cast<std::uint32_t>(timeout_.count())};
    if (const auto& parent = m_.neighbours_.parent(); parent && parent->welcome)
        parent->send(ask);
    else if (const auto& directory = m_.neighbours_.directory(); directory && directory->welcome)
        directory->send(ask);
    else
        return name_missing();
    deadline_ = m_.service_->after(answer_limit, [this] { m_.attempt([this] { name_missing(); }); });
}

// Names the ranks that this rank has not heard of, because the directory could not be asked or did not answer.
void Joining::name_missing() {
    deadline_.reset();
    if (!m_.news_.is(News::State::joining)) return;
    const double seconds = static_cast<double>(timeout_.count()) / 1000;
    const auto& parent = m_.neighbours_.parent();
    if (parent_ && !(parent && parent->welcome))
        return m_.hear({tuttiTimeout, parent_->rank,
                        text("rank %d could not connect to %s within %g s (%s)", m_.rank(), parent_->text().c_str(),
                             seconds, trouble_.c_str())});
    if (parent_ || m_.rank() == 0) {
        const std::vector<Rank> missing = m_.roster_.missing();
        return m_.hear({tuttiTimeout, missing.front(),
                        text("rank %d did not hear of ranks %s within %g s (%s)", m_.rank(),
                             list_ranks(missing).c_str(), seconds, trouble_.c_str())});
    }
    m_.hear(
        {tuttiTimeout, -1,
         text("rank %d could not reach the place where the ranks meet within %g s (%s)%s", m_.rank(), seconds,
              trouble_.c_str(),
              m_.rendezvous_.has(Rendezvous::rank0_opens) ? "; has rank 0 started?"
                                                          : "; does the process that made the unique id still live?")});
}

}  // namespace tutti::bootstrap
