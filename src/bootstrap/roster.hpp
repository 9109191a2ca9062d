// The records of all ranks of a job, as far as this member has received them. Only the service thread uses a roster
// until it is complete; then it never changes, and any thread may read it.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "base/similar_rows.hpp"
#include "bootstrap/frame.hpp"

namespace tutti::bootstrap {

class Roster {
  public:
    /// info: this rank's endpoint info. processes: process_id() by rank, 0 where it is not known yet.
    Roster(Rank self, int ranks, View info, std::span<const std::uint64_t> processes);

    Rank self() const { return self_; }
    int ranks() const { return ranks_; }  // asked in every call of a collective
    Member& mine() { return mine_.member; }
    const Member& mine() const { return mine_.member; }

    /// Sets this rank's round trip to the rendezvous. Only the first call counts, since others may have been told.
    void add_round_trip(std::chrono::microseconds measured);
    /// The longest round trip of all ranks. Valid once complete.
    std::chrono::microseconds round_trip() const;

    /// Adds a record. False if that rank's record is there already.
    bool add(const Record& record);
    bool has(Rank rank) const { return rank == self_ || lines_.has(static_cast<std::size_t>(rank)); }
    bool complete() const { return known_ == ranks(); }
    std::vector<Rank> missing() const;
    /// The record of a rank, which must be there, or what it says of who the rank is. Both make a copy.
    Record record(Rank rank) const;
    Member member(Rank rank) const;
    /// Its Member::host alone, for loops over all ranks.
    std::uint64_t host(Rank rank) const;

    /// For error texts: "rank 2 (pid 4711 on host x)", or "rank 2" without its record, or "the rendezvous" for -1.
    std::string name(Rank rank) const;
    /// process_id() of the rank's process; 0 if it is not known.
    std::uint64_t process(Rank rank) const { return processes_[static_cast<std::size_t>(rank)]; }
    /// Whether that rank is on this host, so that Unix sockets reach it.
    bool is_near(const Member& member) const { return member.host == mine().host; }

  private:
    /// A record, each part at a fixed place, so that records differ in few bytes. Not in it: the rank, its process, and
    /// rank 0's share of the secret.
    struct Line {
        std::uint64_t host;  // the first member, see host()
        std::uint32_t pid, uid, round_trip_us, info_size;
        Address local, remote;
        std::array<char, host_limit> host_name;  // then zeros
        std::array<std::byte, endpoint_info_limit> info;
    };
    Member member_of(const Line& line, Rank rank) const;

    const Rank self_;
    const int ranks_;
    Record mine_;
    SimilarRows<Line> lines_;               // by rank, of all others
    std::vector<std::uint64_t> processes_;  // by rank
    std::optional<Secret> share_;           // rank 0's, if this is another rank
    int known_ = 1;                         // records that are there
    std::uint32_t longest_us_ = 0;          // of their round trips, this rank's not counted
    bool has_round_trip_ = false;           // this rank's record
};

}  // namespace tutti::bootstrap
