// Who the ranks of a job are, as far as this member has heard: one record of each. Of the service thread until it is
// complete; then it never changes, and any thread may read it.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/frame.hpp"

namespace tutti::bootstrap {

class Roster {
  public:
    /// info: this rank's. processes: those that were known beforehand, by rank; 0: not.
    Roster(Rank self, int ranks, View info, std::span<const std::uint64_t> processes);

    Rank self() const { return self_; }
    int ranks() const { return ranks_; }  // asked in every call of a collective
    Member& mine() { return table_[static_cast<std::size_t>(self_)]->member; }
    const Member& mine() const { return table_[static_cast<std::size_t>(self_)]->member; }

    /// Of this rank, to where the ranks meet: the first one counts, for others may have been told of it.
    void add_round_trip(std::chrono::microseconds measured);
    /// The longest one of all ranks, once complete.
    std::chrono::microseconds round_trip() const;

    /// False if that rank was known.
    bool add(const Record& record);
    bool complete() const { return known_ == ranks(); }
    std::vector<Rank> missing() const;
    const std::vector<std::optional<Record>>& lines() const { return table_; }
    /// Of a rank that is known.
    const Record& record(Rank rank) const { return *table_[static_cast<std::size_t>(rank)]; }

    /// For error texts, of any rank: "rank 2 (pid 4711 on host x)" if it is known.
    std::string name(Rank rank) const;
    /// 0 if it is not known.
    std::uint64_t process(Rank rank) const;
    /// Whether Unix sockets reach that rank.
    bool is_near(const Member& member) const { return member.host == mine().host; }

  private:
    const Rank self_;
    const int ranks_;
    const std::vector<std::uint64_t> processes_;
    std::vector<std::optional<Record>> table_;
    int known_ = 1;
    bool has_round_trip_ = false;  // this rank's line
};

}  // namespace tutti::bootstrap
