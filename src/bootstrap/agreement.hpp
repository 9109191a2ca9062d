// How the remaining members of a job agree on who remains, although any of them may die at any moment (as MPI's
// MPI_Comm_agree and MPI_Comm_shrink of ULFM do). Each member proposes a list of ranks to leave out, and a flag, ok.
// All members that return get the same value: the union of the proposed lists and of the ranks that are gone, the
// conjunction of the flags, and a number that no other agreement has.
//
// The lowest remaining member is the coordinator. It waits for the proposals of all other remaining members, chooses
// the value, sends it to all (prepare), and commits it once all have accepted, which means that they hold it. So a
// value that any member may have returned is held by all remaining ones, and if the coordinator dies the next one
// chooses the value that it holds. A member whose coordinator has died sends the next one its proposal and the value it
// holds; if the next one has already finished with that value, it answers with a commit.
//
// A live member that the others have given up, because its host was silent for too long, is answered with exclude: its
// outcome leaves out itself.
//
// This is the protocol alone; a Port carries the messages.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "bootstrap/frame.hpp"

namespace tutti::bootstrap {

/// Owned by a Consensus, or an in-process job. All calls come from one thread, or under one lock.
class Agreement {
  public:
    struct Value {
        bool ok = false;
        std::uint64_t number = 0;
        std::vector<Rank> out;  // the ranks that are left out, ascending
        Bytes invitation = {};  // what Port::open_rendezvous() returned to the coordinator
    };

    class Port {
      public:
        virtual ~Port() = default;
        virtual void send(Rank to, const Agree& message) = 0;
        /// Makes sure that lost() will be called when that rank ends, or if it has ended.
        virtual void reach(Rank rank) = 0;
        /// Whether that rank has died or left.
        virtual bool is_gone(Rank rank) const = 0;
        /// Opens a rendezvous in this process for the members that are left, and returns its invitation; empty if they
        /// can meet without one. Called by a coordinator when there is a reason to meet.
        virtual Bytes open_rendezvous(const std::vector<Rank>& out) { return static_cast<void>(out), Bytes(); }
    };

    Agreement(Rank self, int ranks, Port& port) : self_(self), ranks_(ranks), port_(port) {}

    /// Proposes. One proposal at a time; outcome() is valid once is_under_way() is false.
    void begin(const std::vector<Rank>& out, bool ok);
    /// Gives up the proposal.
    void cancel() { under_way_ = false; }
    /// Takes a message, whose list is complete (see Agree::more).
    void received(Rank from, const Agree& message);
    /// To be called when Port::is_gone(rank) has become true.
    void lost(Rank rank);
    /// To be called when the others take this member for dead. This agreement and all later ones leave out itself.
    void leave_out_self();

    bool is_under_way() const { return under_way_; }
    const Value& outcome() const { return outcome_; }
    /// The ranks that it waits for: the coordinator, or for a coordinator those that have not answered.
    std::vector<Rank> awaited() const;

  private:
    struct Proposal {
        std::uint64_t call = 0;
        bool ok = false;
        std::vector<Rank> out;
        std::optional<Value> held;
    };

    Rank coordinator() const;
    void step();
    void propose_to(Rank coordinator);
    bool choose();
    void spread();
    void finish(const Value& value);
    bool counts(Rank rank) const;

    const Rank self_;
    const int ranks_;
    Port& port_;

    bool under_way_ = false, is_out_ = false;
    std::uint64_t call_ = 0;  // counts begin()
    std::set<Rank> out_;      // this member's proposal, with ok_
    bool ok_ = false;
    Rank proposed_to_ = -1;      // the coordinator that has this member's proposal; -1 if none has
    std::optional<Value> held_;  // the value that this member has accepted
    Value outcome_;

    // Of a coordinator, or a member that may become it; by member.
    std::map<Rank, Proposal> proposals_;
    std::map<Rank, Value> holds_;         // the value that it holds, whose proposal has not come yet
    std::map<Rank, std::uint64_t> done_;  // the last of its calls that has ended here
    std::optional<Value> chosen_;
    std::map<Rank, std::uint64_t> asked_;     // in which of its calls it was sent a prepare
    std::map<Rank, std::uint64_t> accepted_;  // in which of its calls it accepted; 0 if it had the outcome before
};

}  // namespace tutti::bootstrap
