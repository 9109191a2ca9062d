// A membership's way from start to joined: where the ranks meet, the parent in the tree, the time limit, and attempts
// that are repeated. A part of its membership, on the service thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "bootstrap/connection.hpp"
#include "bootstrap/directory.hpp"
#include "bootstrap/identity.hpp"

namespace tutti::bootstrap {

class Membership;

class Joining {
  public:
    Joining(Membership& membership, std::chrono::milliseconds timeout);

    /// Opens what others connect to, the rendezvous too if that is this rank's to do.
    void open();
    /// Calls; gives up when the time is over.
    void start();
    /// It is over, or never will be.
    void stop();
    /// After that the rendezvous, if it is in this process, may close.
    void leave_host();

    // What the membership hears meanwhile.
    void met(const Member& parent);
    void welcomed(const Connection& connection);
    /// A connection ended before the other side took this member in.
    void not_let_in(const Connection& connection, const Loss& loss);
    /// There is still the rendezvous of an earlier job.
    void turned_away(Connection& directory, const std::string& why);
    void call_parent_again(const Connection& connection);
    void directory_lost(Connection& connection, const Loss& loss);
    /// All records are there.
    void finish();

    /// Once joined, never changes any more.
    const JoinTimes& times() const { return times_; }

  private:
    /// Opens the rendezvous if that is this rank's to do, and no other has it; finds it if it is in this process.
    void enter_directory();
    void open_directory();
    void open_listeners();
    void call_directory();
    void call_parent();
    void retry(void (Joining::*what)(), bool local);
    void leave_directory();
    void time_up();
    void name_missing();
    bool goes_on() const;

    Membership& m_;
    const std::chrono::milliseconds timeout_;
    std::shared_ptr<Directory> host_;  // the rendezvous, if it is in this process
    std::optional<Member> parent_;
    std::optional<Service::Timer> deadline_;
    std::chrono::microseconds pause_;
    std::size_t attempts_ = 0;
    std::string trouble_;                    // why the last attempt failed
    std::optional<Deadline> refused_since_;  // every answer since then was that of somebody with another secret
    bool asked_ = false;                     // who is missing
    JoinTimes times_{};
};

}  // namespace tutti::bootstrap
