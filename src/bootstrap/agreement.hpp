// How the members that are left of a job agree on who that is, although any of them may die at any moment, as MPI's
// ULFM has it. Each proposes: whom it leaves out, and whether it is content. All that return are told the same value:
// the union of what was proposed and of who is gone, whether all were content, and a number that no other agreement
// has.
//
// The lowest member that is left coordinates. When it has heard all others that are left it chooses the value, has
// everybody hold it, and commits it once everybody does. So a value that anybody may have been told is held by all that
// are left, and the next coordinator chooses the one that it holds. A member that loses its coordinator proposes to the
// next one, and says what it holds: if the next one has finished with that value, it answers with the outcome.
//
// A member that lives although others have given it up (its host was silent for long) is told so when it proposes: its
// outcome leaves itself out.
//
// This is the logic alone; a Port carries it. All calls come from one thread, or under one lock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "bootstrap/frame.hpp"

namespace tutti::bootstrap {

class Agreement {
  public:
    struct Value {
        bool ok = false;
        std::uint64_t number = 0;
        std::vector<Rank> out;  // who is left out, ascending
        Bytes invitation = {};  // as Port::open_rendezvous() has said
    };

    class Port {
      public:
        virtual ~Port() = default;
        virtual void send(Rank to, const Agree& message) = 0;
        /// Sees to it that lost() is called when that rank ends, or has ended.
        virtual void reach(Rank rank) = 0;
        /// It has died or left.
        virtual bool is_gone(Rank rank) const = 0;
        /// Where those that are left can meet, in this process; none where they find each other without. Called by a
        /// coordinator when there is a reason to meet.
        virtual Bytes open_rendezvous(const std::vector<Rank>& out) { return static_cast<void>(out), Bytes(); }
    };

    Agreement(Rank self, int ranks, Port& port) : self_(self), ranks_(ranks), port_(port) {}

    /// Proposes. One at a time; the outcome is there when is_under_way() is false.
    void begin(const std::vector<Rank>& out, bool ok);
    /// Proposes nothing any more.
    void cancel() { under_way_ = false; }
    /// message: with the whole list.
    void received(Rank from, const Agree& message);
    /// is_gone(rank) has become true.
    void lost(Rank rank);
    /// Others take this member for dead, now or from now on: the outcome leaves itself out.
    void leave_out_self();

    bool is_under_way() const { return under_way_; }
    const Value& outcome() const { return outcome_; }
    /// Whom it waits for.
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
    std::uint64_t call_ = 0;  // the own call under way, or the last one
    std::set<Rank> out_;      // as it was proposed
    bool ok_ = false;
    Rank proposed_to_ = -1;
    std::optional<Value> held_;
    Value outcome_;

    // Of a coordinator, and of one that may become it.
    std::map<Rank, Proposal> proposals_;
    std::map<Rank, Value> holds_;         // came ahead of the proposal
    std::map<Rank, std::uint64_t> done_;  // the last of their calls that has ended here
    std::optional<Value> chosen_;
    std::map<Rank, std::uint64_t> asked_;     // to hold it, in which of their calls
    std::map<Rank, std::uint64_t> accepted_;  // likewise; 0: they were told of it before
};

}  // namespace tutti::bootstrap
