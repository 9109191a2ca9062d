// What ranks report to the controller, and to each other where the library can't, in memory that all processes of a
// world share. As the world, it is accessed only by the thread that has the baton.
#pragma once

#include <cstdint>

#include "job.hpp"
#include "world.hpp"

namespace sim {

constexpr std::uint64_t s = 1000 * ms;
constexpr std::uint64_t start = 1 * s;  // the world's time at its beginning

inline constexpr int most_events = 40, most_calls_of_a_job = 32, most_rendezvous = 64;
inline constexpr int timeout_ms = 60'000;       // longer than ranks are ever busy and stopped
inline constexpr int init_timeout_ms = 20'000;  // longer than ranks are ever stopped

/// An error that a rank got from the library, or the end of its recovery.
struct Told {
    std::uint64_t at, told_at;  // told_at: when the rank had filled in the rest
    std::uint64_t since;        // error: when a call of this rank last succeeded
    enum What {
        error,
        revoked,    // by the rank's own call
        recovered,  // the rank has replaced a communicator that had failed
        renewed     // the rank has replaced one that had not failed
    } what;
    unsigned members;  // recovered, renewed: a bit for each rank of the world
    int call;          // number of the failed call
    int code;          // tuttiResult_t
    int named_there;   // the failed rank that the call's communicator names; -1 if none, -2 if unknown
    unsigned there;    // error: a bit for each rank of that communicator if it is a part of all, else 0
    int named[most_ranks], named_count;  // tuttiCommGetFailedRanks
    char said[500];                      // the error's text
};

/// One rank's report to the controller.
struct Report {
    enum Way { absent, present, joined, rendezvous, left, done } way;  // left: on purpose, before the end
    std::uint64_t present_at, succeeded_at;                            // succeeded_at: when a call last did
    std::uint64_t meets_since;                                         // when the rank last began to join by an id
    bool has_joined;
    std::uint64_t busy_from[most_calls_of_a_job], busy_until[most_calls_of_a_job];  // when it can't receive news
    int busy;
    Told events[most_events];
    int event_count;
    int seen;         // rendezvous: the number of the one where it has arrived
    char wrong[600];  // a defect that the rank has found; empty if none
};

/// A cause of errors on other ranks: the rank that caused it, and when.
struct Cause {
    enum What { killed, aborted, revoked, left, excluded, differed, could_not_join } what;
    int rank;
    std::uint64_t at;
};

/// A place where ranks meet by a unique id.
struct Rendezvous {
    bool open;
    int opener;      // the rank whose process made the id
    int rendezvous;  // grown: where its members have met
    int members[most_ranks], count;
    unsigned claimed;  // grown: a bit for each member of those that newcomers join
    char id[128];
};

struct Board {
    Report reports[most_ranks];
    Cause causes[64];
    int cause_count;
    bool all_struck;                         // no blow is left
    Rendezvous rendezvous[most_rendezvous];  // the first is where the job begins; one more for each time that ranks
                                             // meet again
    Rendezvous grown[most_calls_of_a_job];   // by number of the call
    int furthest;                            // the first call that no rank has begun

    void add_cause(Cause::What what, int rank);
    /// When the rank has gone, or `never`.
    std::uint64_t gone_at(int rank) const;
    bool is_cause(int rank) const;
};
extern Board* board;
extern const Job* job;

}  // namespace sim
