// The records of all ranks of a job, as far as this member has received them. Only the service thread uses a roster
// until it is complete; then it never changes, and any thread may read it.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/frame.hpp"

namespace tutti::bootstrap {

class Roster {
  public:
    /// info: this rank's endpoint info. processes: process_id() by rank, 0 where it is not known yet.
    Roster(Rank self, int ranks, View info, std::span<const std::uint64_t> processes);

    Rank self() const { return self_; }
    int ranks() const { return ranks_; }  // asked in every call of a collective
    Member& mine() { return table_[static_cast<std::size_t>(self_)]->member; }
    const Member& mine() const { return table_[static_cast<std::size_t>(self_)]->member; }

    /// Sets this rank's round trip to the rendezvous. Only the first call counts, since others may have been told.
    void add_round_trip(std::chrono::microseconds measured);
    /// The longest round trip of all ranks. Valid once complete.
    std::chrono::microseconds round_trip() const;

    /// Adds a record. False if that rank's record is there already.
    bool add(const Record& record);
    bool complete() const { return known_ == ranks(); }
    std::vector<Rank> missing() const;
    const std::vector<std::optional<Record>>& lines() const { return table_; }
    /// The record of a rank, which must be there.
    const Record& record(Rank rank) const { return *table_[static_cast<std::size_t>(rank)]; }

    /// For error texts: "rank 2 (pid 4711 on host x)", or "rank 2" without its record, or "the rendezvous" for -1.
    std::string name(Rank rank) const;
    /// process_id() of the rank's process; 0 if it is not known.
    std::uint64_t process(Rank rank) const;
    /// Whether that rank is on this host, so that Unix sockets reach it.
    bool is_near(const Member& member) const { return member.host == mine().host; }

  private:
    const Rank self_;
    const int ranks_;
    const std::vector<std::uint64_t> processes_;  // as the constructor got them, by rank
    std::vector<std::optional<Record>> table_;    // by rank
    int known_ = 1;                               // records in table_
    bool has_round_trip_ = false;                 // this rank's record
};

}  // namespace tutti::bootstrap
