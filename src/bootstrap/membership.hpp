// One rank's place in a job. It opens listeners, registers at the directory, is told where its parent in the tree is,
// and connects to it. It passes every rank's record on to its other neighbours in the tree, and has joined once it has
// all records. After that the same connections carry news of failures and departures.
// Pair connections carry descriptors and agreements; the first fetch or agreement with a rank makes one.
//
//     start -> joining -> joined -> left -> (all have left, or a fault) -> gone
//                  \-> failed -> gone
#pragma once

#include <functional>
#include <optional>
#include <set>

#include "bootstrap/consensus.hpp"
#include "bootstrap/descriptors.hpp"
#include "bootstrap/exchanges.hpp"
#include "bootstrap/joining.hpp"
#include "bootstrap/mending.hpp"
#include "bootstrap/neighbours.hpp"
#include "bootstrap/news.hpp"
#include "bootstrap/pairs.hpp"
#include "bootstrap/roster.hpp"

namespace tutti::bootstrap {

/// Owned by its session and, until shut(), by the service. The service thread runs it, without a lock; what other
/// threads may ask or wait for is guarded by monitor_.
class Membership : public ConnectionUser, public std::enable_shared_from_this<Membership> {
  public:
    Membership(std::shared_ptr<Service> service, const Rendezvous& rendezvous, Rank rank, int ranks, View info,
               std::chrono::milliseconds timeout, std::span<const std::uint64_t> processes, const Address& here = {});

    // ---- for the service thread
    void start();
    /// Fails the join with that fault. Does nothing once joined.
    void give_up(const Fault& fault);
    void offer_changed(std::uint64_t key) {
        attempt([&] { descriptors_.offer_changed(key); });  // peers wait for the answers
    }
    void request(const std::shared_ptr<PendingFetch>& fetch) { pairs_.request(fetch); }
    void cancel(const std::shared_ptr<PendingFetch>& fetch) { descriptors_.cancel(fetch); }
    void raise(const Fault& fault);
    void leave();
    void shut();
    /// Tells all memberships of this service that a process has died, or that its host is silent.
    static void process_ended(const Service& service, std::uint64_t process, bool silent = false);
    void tell(std::uint64_t number, View bytes);
    void agree(const std::vector<Rank>& out, bool ok) { consensus_.begin(out, ok); }
    void stop_agreeing() { consensus_.cancel(); }
    std::vector<Rank> awaited() const { return consensus_.awaited(); }

    // ---- for any thread
    /// Returns false at the deadline. Throws the fault if joining failed.
    bool wait_joined(Deadline deadline) { return news_.wait_joined(deadline); }
    bool wait_done(const PendingFetch& fetch, Deadline deadline) { return descriptors_.wait(fetch, deadline); }
    void set_listener(News::Listener listener) { news_.set_listener(std::move(listener)); }
    void rest();
    void wait_listener() { news_.wait_listener(); }
    std::optional<Fault> fault() const { return news_.fault(); }
    std::optional<Fault> fault_behind(Rank peer, Deadline deadline);
    std::vector<Rank> dead() const { return news_.dead(); }
    std::vector<Bytes> wait_told(std::uint64_t number, Deadline deadline);
    std::optional<Agreed> wait_agreed(Deadline deadline) { return consensus_.wait(deadline); }
    bool has_left(Rank rank) const { return news_.has_left(rank); }
    /// Offers fd under key; withdraws the offer if fd is nullptr.
    void set_offer(std::uint64_t key, std::shared_ptr<Fd> fd) { descriptors_.offer(key, std::move(fd)); }
    std::shared_ptr<Fd> offered(std::uint64_t key) const { return descriptors_.offered(key); }
    Rank rank() const { return roster_.self(); }
    int ranks() const { return roster_.ranks(); }
    /// Valid once joined.
    const JoinTimes& join_times() const { return joining_.times(); }
    std::chrono::microseconds round_trip() const { return roster_.round_trip(); }
    Service& service() { return *service_; }
    /// The session's secret, valid once joined. Only members know it, even if the rendezvous's secret can be guessed:
    /// it also depends on rank 0's random share, which travels only over the control channel. Where ranks meet without
    /// a secret, that consists of Unix sockets.
    Secret secret() const { return secret_.derive("tutti session", record(0).share->view()); }
    /// Any thread may read records once joined: they never change then.
    Record record(Rank rank) const { return roster_.record(rank); }
    Member member(Rank rank) const { return roster_.member(rank); }
    std::uint64_t process(Rank rank) const { return roster_.process(rank); }
    /// Whether that rank is on this host, so that Unix sockets reach it.
    bool is_near(const Member& member) const { return roster_.is_near(member); }
    /// Where that rank is called for the tree; none if it is on another host and listens on no network interface.
    const Address& address_of(const Member& member) const {
        return is_near(member) && !rendezvous_.has(Rendezvous::tcp_only) ? member.local : member.remote;
    }

  private:
    friend class Joining;
    friend class Mending;
    friend class Pairs;
    using State = News::State;
    // membership.cpp: connections and what comes over them
    void opened(Connection& connection) override;
    void received(Connection& connection, Message& message, Fd descriptor) override;
    void closed(Connection& connection, const Loss& loss) override;
    void failed(Connection& connection, const Error& error) override;
    void attempt(Errand work);
    /// Have the service thread attempt() work, now or after a pause, if this member is still there.
    void post(std::function<void()> work);
    void after(std::chrono::microseconds pause, std::function<void()> work);
    std::function<void()> attempted(std::function<void()> work);
    void shut_soon();
    bool is_plausible(const Message& message) const;
    static bool may_come_early(const Message& message);
    void on_attach(Connection& connection, const Attach& attach);
    void send_table(Connection& connection);
    void tell_again(Connection& connection);
    bool is_again(const Connection& connection);
    void send_news(Connection& connection);
    void on_note(const Note& note, const Connection* from);
    std::string name_of(Rank rank) const { return roster_.name(rank); }
    /// The text of a fault that all ranks are told. It names both ends, since others may reach that rank.
    std::string unreachable(Rank peer, const char* why) const {
        return name_of(peer) + " can't be reached from " + name_of(rank()) + " any more: " + why;
    }

    // liveness.cpp: deaths, faults and departures
    void look_at_process(Rank rank);
    void is_heard_of_again(const Member& member);
    bool blames_here(const Fault& fault) const;
    std::vector<Rank> who_died(const Fault& fault) const;
    void enlist();
    void hear(const Fault& fault, const Connection* from = nullptr);
    void spread(const Fault& fault, const Connection* from);
    void on_left(Connection& connection, const Left& left);
    void mark_left(const std::vector<Rank>& ranks, const Connection* from);
    void finish_if_idle();
    void send_left(Connection& connection, const std::vector<Rank>& ranks);
    const std::shared_ptr<Service> service_;
    const Rendezvous rendezvous_;
    const Secret secret_;  // authenticates members to each other; secret() is the session's
    Monitor monitor_;      // guards the state that other threads read or wait for
    Roster roster_;
    News news_;
    Exchanges exchanges_;
    // For the service thread alone, except where their headers say otherwise.
    Neighbours neighbours_;
    Joining joining_;
    Mending mending_;
    Pairs pairs_;
    Descriptors descriptors_;
    Consensus consensus_;
    std::set<std::uint64_t> silent_hosts_;  // host ids
    bool gone_ = false;
    Service::PiecePtr shutting_;  // posts shut(); allocated at start, so that it works without memory
};

}  // namespace tutti::bootstrap
