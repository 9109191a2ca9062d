// One rank's place in a job, as the service thread keeps it. Its life: it opens its listeners, registers at the
// directory, learns where its parent in the tree is, connects, and passes on every line of the table that it hears to
// all its other neighbours in the tree; with the last line it has joined. After that the same connections carry news of
// failures and departures, and pair connections, made by the first fetch, carry descriptors.
//
//     start -> joining -> joined -> left -> (all have left, or a fault) -> gone
//                  \-> failed -> gone
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "bootstrap/agreement.hpp"
#include "bootstrap/connection.hpp"
#include "bootstrap/directory.hpp"
#include "bootstrap/identity.hpp"
#include "bootstrap/session.hpp"

namespace tutti::bootstrap {

// Whoever arrives first asks often at first, because ranks mostly start together; later, less often.
inline constexpr std::chrono::microseconds first_pause{200}, longest_pause_local{5000}, longest_pause_remote{50000};

/// A fetch that somebody waits for.
struct PendingFetch {
    Rank peer;
    std::uint64_t key;
    std::uint32_t id = 0;
    bool sent = false;
    // Guarded by the membership's mutex:
    bool done = false;
    Fd descriptor;
    Fault trouble;
};

class Membership : public ConnectionUser, private Agreement::Port, public std::enable_shared_from_this<Membership> {
  public:
    Membership(std::shared_ptr<Service> service, const Rendezvous& rendezvous, Rank rank, int ranks, View info,
               std::chrono::milliseconds timeout, std::span<const std::uint64_t> processes);

    // ---- for the service thread
    void start();
    /// Unless it has joined by now.
    void give_up(const Fault& fault);
    void offer_changed(std::uint64_t key);
    void request(const std::shared_ptr<PendingFetch>& fetch);
    void cancel(const std::shared_ptr<PendingFetch>& fetch);
    void raise(const Fault& fault);
    void leave();
    void shut();
    /// All sessions of this process hear of it.
    static void process_ended(const Service& service, std::uint64_t process);
    void tell(std::uint64_t number, View bytes);
    void agree(const std::vector<Rank>& out, bool ok);
    void stop_agreeing() { agreement_.cancel(); }
    std::vector<Rank> awaited() const { return agreement_.awaited(); }

    // ---- for any thread
    /// False: not in time. Throws what went wrong, if something did.
    bool wait_joined(Deadline deadline);
    bool wait_done(const PendingFetch& fetch, Deadline deadline);
    void set_listener(std::function<void(const Fault&)> listener);
    void rest();
    /// Until no listener runs, unless it is the listener that waits.
    void wait_listener();
    std::optional<Fault> fault() const;
    std::optional<Fault> fault_behind(Rank peer, Deadline deadline);
    std::vector<Rank> dead() const;
    std::vector<Bytes> wait_told(std::uint64_t number, Deadline deadline);
    /// nullopt: not in time, or this member has left. Throws tuttiSystemError if it can't agree any more.
    std::optional<Agreed> wait_agreed(Deadline deadline);
    bool has_left(Rank rank) const;
    void set_offer(std::uint64_t key, std::shared_ptr<Fd> fd);  // null: withdrawn
    std::shared_ptr<Fd> offered(std::uint64_t key) const;
    Rank rank() const { return rank_; }
    int ranks() const { return ranks_; }
    Service& service() { return *service_; }
    /// Once joined: what all members know, and only they, whatever may be known of the rendezvous's secret. Rank 0's
    /// share has only travelled over the control channel, which is Unix sockets where ranks meet without a secret.
    Secret secret() const { return secret_.derive("tutti session", table_.front()->share->view()); }

    /// Once joined, never changes any more.
    const Record& record(Rank rank) const { return *table_[static_cast<std::size_t>(rank)]; }
    /// Whether Unix sockets reach that rank.
    bool is_near(const Member& member) const { return member.host == mine_.host; }

  private:
    enum class State { joining, joined, failed };

    // membership.cpp: connections and what comes over them
    void opened(Connection& connection) override;
    void received(Connection& connection, Message& message, Fd descriptor) override;
    void closed(Connection& connection, const Loss& loss) override;
    std::shared_ptr<Connection> dial(const Address& address, std::uint64_t tag, Role role, Rank peer,
                                     const Secret& secret);
    void failed(Connection& connection, const Error& error) override;
    void attempt(Errand work);
    void shut_soon();
    void drop(Connection& connection);
    bool is_plausible(const Message& message) const;
    static bool may_come_early(const Message& message);
    void on_attach(Connection& connection, const Attach& attach);
    void send_news(Connection& connection);
    std::string name_of(Rank rank) const;

    // join.cpp: from start to joined
    void open_directory();
    void open_listeners();
    void call_directory();
    void directory_lost(Connection& connection, const Loss& loss);
    void retry(void (Membership::*what)(), bool local);
    void leave_directory();
    void call_parent();
    void send_table(Connection& connection);
    void on_record(Connection& connection, const Record& record);
    void joined();
    void time_up();
    void name_missing();

    // liveness.cpp: deaths, faults and departures
    bool note_death(Rank rank);
    void look_at_process(Rank rank);
    void enlist();
    std::uint64_t process_of(Rank rank) const;
    void hear(const Fault& fault, const Connection* from);
    void spread(const Fault& fault, const Connection* from);
    void on_left(Connection& connection, const Left& left);
    void mark_left(const std::vector<Rank>& ranks, const Connection* from);
    void finish_if_idle();
    void seek_parent(Rank lost, bool unreachable);
    void send_left(Connection& connection, const std::vector<Rank>& ranks);
    void tell_listener(const Fault& fault);

    // fetch.cpp: descriptors
    Connection* pair_connection(Rank peer);
    void send_requests(Connection& connection);
    void call_pair(Rank peer);
    void pair_lost(Rank peer, int error);
    void on_fetch(Connection& connection, const Fetch& fetch);
    void on_give(Connection& connection, const Give& give, Fd descriptor);
    void settle(PendingFetch& fetch, Fd descriptor, const Fault& trouble);
    void fail_fetches(const Fault& fault, Rank peer);

    void on_note(const Note& note, const Connection* from);

    // agree.cpp: who is left
    void send(Rank to, const Agree& message) override;
    void reach(Rank rank) override;
    bool is_gone(Rank rank) const override;
    void send_unsent(Connection& connection);
    void on_agree(Connection& connection, Agree& agree);
    void lost(Rank rank);
    void note_agreement();
    void give_up_agreeing(const std::string& why);

    bool is_tree(const Connection& c) const { return c.role == Role::parent || c.role == Role::child; }

    const std::shared_ptr<Service> service_;
    const Rendezvous rendezvous_;
    const Secret secret_;  // proves memberships; session keys: secret()
    const Rank rank_;
    const int ranks_;
    const std::chrono::milliseconds timeout_;

    // Only the service thread.
    Member mine_;
    std::shared_ptr<Listener> local_, remote_;
    std::shared_ptr<Directory> host_;  // the rendezvous, if it is in this process
    std::vector<std::shared_ptr<Connection>> connections_;
    std::shared_ptr<Connection> directory_, parent_;
    std::optional<Member> parent_member_;
    std::vector<std::optional<Record>> table_;
    int known_ = 0;
    std::optional<Service::Timer> deadline_, retry_;
    std::chrono::microseconds pause_ = first_pause;
    std::size_t attempts_ = 0;
    std::string trouble_;                    // why the last attempt failed
    std::optional<Deadline> refused_since_;  // every answer since then was that of somebody with another secret
    bool asked_ = false;
    std::set<Rank> unreachable_;  // for an orphan
    bool gone_ = false;
    Service::PiecePtr shutting_;                  // made beforehand
    const std::vector<std::uint64_t> processes_;  // that were known beforehand, by rank; 0: not
    Agreement agreement_;
    std::set<Rank> reached_;                     // whose end will be heard of
    std::set<Rank> refusing_;                    // that take no connections any more
    std::map<Rank, std::vector<Agree>> unsent_;  // until a connection is open
    std::map<Rank, std::vector<Rank>> partial_;  // lists of which more is to come
    std::vector<std::shared_ptr<PendingFetch>> fetches_;
    std::uint32_t next_fetch_ = 1;
    struct Parked {
        std::weak_ptr<Connection> connection;
        Fetch fetch;
    };
    std::vector<Parked> parked_;  // requests for what is not offered yet

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    State state_ = State::joining;
    bool left_ = false;
    std::vector<bool> has_left_;
    std::optional<Fault> fault_;
    std::vector<Rank> dead_;
    std::map<std::uint64_t, std::map<Rank, Bytes>> notes_;  // by exchange
    std::optional<Agreed> agreed_;
    bool agreeing_ = false;
    std::optional<std::string> cant_agree_;  // why
    bool cut_off_ = false;                   // for good: a message was lost, so others take this member for dead
    std::function<void(const Fault&)> listener_;
    std::thread::id listener_runs_;  // on this thread
    std::map<std::uint64_t, std::shared_ptr<Fd>> offers_;
};

}  // namespace tutti::bootstrap
