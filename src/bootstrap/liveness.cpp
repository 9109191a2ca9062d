// Membership: deaths, faults and departures.
#include <algorithm>

#include "base/caught.hpp"
#include "base/result.hpp"
#include "bootstrap/membership.hpp"

namespace tutti::bootstrap {

namespace {

// The memberships of this process, and the processes (process_id()) that any of them knows to be dead. For the service
// thread alone; a forked child does not use the parent's.
std::vector<std::weak_ptr<Membership>>& memberships() {
    static auto& all = *new std::vector<std::weak_ptr<Membership>>;
    return all;
}
std::set<std::uint64_t>& dead_processes() {
    static auto& all = *new std::set<std::uint64_t>;
    return all;
}
/// Processes on hosts that have fallen silent, until they are heard of again.
std::set<std::uint64_t>& silent_processes() {
    static auto& all = *new std::set<std::uint64_t>;
    return all;
}

}  // namespace

void Membership::enlist() {
    std::erase_if(memberships(), [](const auto& weak) { return weak.expired(); });
    memberships().push_back(weak_from_this());
    for (Rank r = 0; r < ranks(); ++r) look_at_process(r);
}

/// Notes the rank's death if its process is known to be dead, which may be before its record has come.
void Membership::look_at_process(Rank rank) {
    const std::uint64_t process = roster_.process(rank);
    const bool dead = dead_processes().contains(process), silent = !dead && silent_processes().contains(process);
    if (process == 0 || !(dead || silent) || has_left(rank)) return;
    const char* const what = silent                     ? " is on a host that acknowledges nothing any more"
                             : news_.is(State::joining) ? " died before all ranks had joined"
                                                        : " died";
    hear({tuttiRemoteError, rank, name_of(rank) + what, this->rank(), true, silent});
}

/// Forgets that a process is dead. A process of another host may have been given up while the network was down, and a
/// real death will be noticed by the ranks that are connected to it.
void Membership::is_heard_of_again(const Member& member) {
    if (is_near(member)) return;
    dead_processes().erase(member.process);
    silent_processes().erase(member.process);
}

/// Tells all sessions of this process of a death at the same moment, so that no user who has heard of it in one session
/// is ahead of the news in another. silent: the process' host is silent.
void Membership::process_ended(const Service& service, std::uint64_t process, bool silent) {
    if (process == 0 || process == process_id()) return;
    const std::vector<std::weak_ptr<Membership>> all = memberships();
    if (!(silent ? silent_processes() : dead_processes()).insert(process).second) return;
    for (const auto& weak : all) {
        const auto m = weak.lock();
        if (!m || m->service_.get() != &service || m->gone_) continue;
        for (Rank r = 0; r < m->ranks(); ++r)
            if (m->roster_.process(r) == process) m->attempt([&] { m->look_at_process(r); });
    }
}

// The first fault wins; all deaths are kept. Both are passed on before anything else happens, so on every connection
// the news comes before the end of a rank that ends because of it, and that rank is not taken for the cause.
void Membership::hear(const Fault& fault, const Connection* from) {
    try {
        spread(fault, from);
    } catch (...) {  // peers that were not told see their connections end
        log_caught("news of a fault");
        news_.note_without_memory(rank());
        descriptors_.fail({tuttiSystemError, rank(), no_memory}, -1);
        shut_soon();
        shielded("a listener", [&] { news_.tell_listener(fault); });
    }
}

void Membership::spread(const Fault& fault, const Connection* from) {
    // Two ranks that can't reach each other report each other. The report that comes first is believed.
    if (fault.silent && std::ranges::count(news_.dead(), fault.teller) > 0) return;
    if (blames_here(fault)) consensus_.disown();
    const std::vector<Rank> dead = who_died(fault);
    std::vector<Rank> fresh;
    for (const Rank r : dead)
        if (news_.note_death(r)) fresh.push_back(r);
    const auto [first, was_joining] = news_.note(fault);
    if (!first && fresh.empty()) return;
    for (const auto& c : neighbours_.all())
        if (c.get() != from) c->send(fault), c->flush();
    for (const Rank r : dead) process_ended(*service_, roster_.process(r), fault.silent);
    if (fault.silent && !fresh.empty()) silent_hosts_.insert(member(fresh.front()).host);
    for (const Rank r : fresh) consensus_.lost(r);
    if (!first) return;
    descriptors_.fail(fault, -1);
    if (was_joining) {
        mark_left({rank()}, nullptr);  // so that its end is not taken for a death
        neighbours_.flush();
        news_.become(State::failed);
        // If the connection to the rendezvous is still being made, this rank stays until it can tell the rendezvous:
        // the registered ranks would wait for it otherwise.
        if (!neighbours_.directory() || neighbours_.directory()->is_open()) shut_soon();
    } else {
        news_.wake();
        news_.tell_listener(fault);
        finish_if_idle();
    }
}

/// Whether the fault says that this rank is dead, or its host silent.
bool Membership::blames_here(const Fault& fault) const {
    if (!fault.died || fault.origin < 0) return false;
    const bool by_others = fault.teller != rank();
    return fault.origin == rank() ||
           (fault.silent && by_others && roster_.has(fault.origin) && is_near(member(fault.origin)));
}

/// The ranks that a fault declares dead: its origin first, then, if the host is silent, all other ranks there.
std::vector<Rank> Membership::who_died(const Fault& fault) const {
    std::vector<Rank> all;
    if (!fault.died || fault.origin < 0 || blames_here(fault)) return all;
    all.push_back(fault.origin);
    if (!fault.silent || !roster_.has(fault.origin)) return all;
    const std::uint64_t host = roster_.host(fault.origin);
    for (Rank r = 0; r < ranks(); ++r)
        if (r != fault.origin && r != rank() && roster_.has(r) && roster_.host(r) == host) all.push_back(r);
    return all;
}

void Membership::give_up(const Fault& fault) {
    if (news_.is(State::joining)) hear(fault);
}

void Membership::raise(const Fault& fault) {
    news_.drop_listener();  // the rank that raises a fault is not told of it
    Fault mine = copy_of(fault);
    mine.teller = rank();
    mine.died = mine.silent = false;
    hear(mine);
}

void Membership::leave() {
    if (!news_.leave()) return;
    descriptors_.withdraw_all();
    try {
        consensus_.cancel();
        descriptors_.forget_who_asked();
        descriptors_.fail({tuttiInvalidUsage, rank(), "this rank has left"}, -1);
        mark_left({rank()}, nullptr);
        neighbours_.flush();
        finish_if_idle();
    } catch (...) {  // peers that were not told see their connections end
        log_caught("the departure of a rank");
        shut_soon();
    }
}

void Membership::rest() {
    news_.drop_listener();
    descriptors_.withdraw_all();
}

void Membership::on_left(Connection& connection, const Left& left) {
    mark_left(left.ranks, &connection);
    finish_if_idle();
}

// Sends this rank's own departure to all peers that it is connected to, and passes that of others on along the tree.
void Membership::mark_left(const std::vector<Rank>& ranks, const Connection* from) {
    const std::vector<Rank> fresh = news_.mark_left(ranks);
    if (fresh.empty()) return;
    for (const Rank r : fresh) descriptors_.fail({tuttiRemoteError, r, name_of(r) + " has left"}, r);
    for (const auto& c : neighbours_.all())
        if (c.get() != from && (from == nullptr || is_tree(*c))) send_left(*c, fresh);
    for (const Rank r : fresh)
        if (r != rank()) consensus_.lost(r);
}

void Membership::send_left(Connection& connection, const std::vector<Rank>& ranks) {
    for (std::size_t i = 0; i < ranks.size(); i += left_limit) {
        const auto begin = ranks.begin() + static_cast<std::ptrdiff_t>(i);
        connection.send(Left{{begin, begin + static_cast<std::ptrdiff_t>(std::min(left_limit, ranks.size() - i))}});
    }
}

// Ends a member that has left, unless it still has to pass on news for others.
void Membership::finish_if_idle() {
    // A peer that has yet to make its connection again has not heard that this rank has left.
    if (!gone_ && mending_.all_told() && news_.is_idle(neighbours_.all().empty())) shut_soon();
}

std::optional<Fault> Membership::fault_behind(Rank peer, Deadline deadline) {
    return service_->is_this_thread() ? fault() : news_.fault_behind(peer, deadline);
}

}  // namespace tutti::bootstrap
