// A membership's way from start to joined: it calls the directory, then its parent in the tree, repeats failed
// attempts, keeps the time limit, and passes on the records that come.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "bootstrap/connection.hpp"
#include "bootstrap/directory.hpp"
#include "bootstrap/rendezvous.hpp"

namespace tutti::bootstrap {

class Membership;

/// A part of its membership; for the service thread alone, except times().
class Joining {
  public:
    /// here: see Session::join().
    Joining(Membership& membership, std::chrono::milliseconds timeout, const Address& here);

    /// Opens the listeners, and the rendezvous if this rank has to.
    void open();
    /// Calls the directory, and starts the time limit.
    void start();
    /// Ends the time limit.
    void stop();
    /// Allows the rendezvous to close if it is in this process.
    void leave_host();

    // ---- called by the membership
    /// The directory has named the parent.
    void met(const Member& parent);
    void welcomed(const Connection& connection);
    /// Keeps a record that has come from that neighbour, and passes it on to the others.
    void heard(const Record& record, Rank from);
    /// A connection ended before the peer had let this member in.
    void not_let_in(const Connection& connection, const Loss& loss);
    /// The rendezvous is still that of an earlier job: tries again later.
    void turned_away(Connection& directory, const std::string& why);
    void call_parent_again(const Connection& connection);
    void directory_lost(Connection& connection, const Loss& loss);
    /// All records are there: this member has joined.
    void finish();

    /// Any thread may read it once joined: it never changes then.
    const JoinTimes& times() const { return times_; }

  private:
    /// Opens the rendezvous if this rank has to, and finds it if it is in this process.
    void enter_directory();
    void open_listeners();
    void call_directory();
    void call_parent();
    void retry(void (Joining::*what)(), bool local);
    void leave_directory();
    void time_up();
    void name_missing();
    void pass_on_held();
    bool goes_on() const;

    Membership& m_;
    const std::chrono::milliseconds timeout_;
    const Address here_;
    std::shared_ptr<Directory> host_;  // the rendezvous; nullptr if it is in another process
    std::optional<Member> parent_;     // as the directory has named it
    std::optional<Service::Timer> deadline_;
    std::chrono::microseconds pause_;        // before the next attempt
    std::size_t attempts_ = 0;               // to call the directory
    std::string trouble_;                    // why the last attempt failed
    std::optional<Deadline> refused_since_;  // since then all answers came from a process with another secret
    bool asked_ = false;                     // has sent an Ask
    struct Held {
        Rank rank, from;
    };
    std::vector<Held> held_;  // records that are yet to be passed on, and who sent them
    JoinTimes times_{};
};

}  // namespace tutti::bootstrap
