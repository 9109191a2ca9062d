// What ranks tell the controller, and each other where the library can't: in memory that all processes of a world
// share.
#pragma once

#include <cstdint>

#include "job.hpp"
#include "world.hpp"

namespace sim {

constexpr std::uint64_t s = 1000 * ms;
constexpr std::uint64_t start = 1 * s;  // the world's time at its beginning

inline constexpr int most_events = 40, most_calls_of_a_job = 32, most_rendezvous = 64;
inline constexpr int timeout_ms = 60'000;       // longer than ranks are busy and stopped
inline constexpr int init_timeout_ms = 20'000;  // longer than ranks are stopped

/// An error that a rank was given, or the end of its recovery from some.
struct Told {
    std::uint64_t at, told_at;  // told_at: when it knew what is below
    std::uint64_t since;        // error: when a call of that rank had last succeeded
    enum What {
        error,
        revoked,    // by the rank's own doing
        recovered,  // it has another communicator for one that has failed
        renewed     // or for one that had not
    } what;
    unsigned members;  // recovered, renewed: a bit for each rank of the world
    int call;          // number of the one that failed
    int code;          // tuttiResult_t
    int named_there;   // the failed rank that the communicator of the call names; -1: none, -2: not known
    unsigned there;    // error: a bit for each rank of that communicator, if it is a part; 0: it is not
    int named[most_ranks], named_count;  // tuttiCommGetFailedRanks
    char said[500];                      // the error's text
};

/// Of a rank, for the controller.
struct Report {
    enum Way { absent, present, joined, rendezvous, left, done } way;  // left: by a way of its own, before the end
    std::uint64_t present_at, succeeded_at;                            // succeeded_at: with a call, the last time
    std::uint64_t meets_since;                                         // when it last began to join others by an id
    bool has_joined;
    std::uint64_t busy_from[most_calls_of_a_job], busy_until[most_calls_of_a_job];  // it can't hear of anything
    int busy;
    Told events[most_events];
    int event_count;
    int seen;         // rendezvous: for which one it has come
    char wrong[600];  // what can't be
};

/// What others may be told of: who began it, and when.
struct Cause {
    enum What { killed, aborted, revoked, left, excluded, differed, could_not_join } what;
    int rank;
    std::uint64_t at;
};

/// A place where ranks meet by an id.
struct Rendezvous {
    bool open;
    int opener;      // the rank in whose process it is
    int rendezvous;  // grown: where its members have met
    int members[most_ranks], count;
    unsigned claimed;  // grown: a bit for each member of those that newcomers join
    char id[128];
};

struct Board {
    Report reports[most_ranks];
    Cause causes[64];
    int cause_count;
    bool all_struck;                         // no blow is to come
    Rendezvous rendezvous[most_rendezvous];  // the first is where the job begins; then one for each time that ranks
                                             // have lost each other
    Rendezvous grown[most_calls_of_a_job];   // by number of the call
    int furthest;                            // the first call that nobody has begun

    void add_cause(Cause::What what, int rank);
    /// When, or `never`.
    std::uint64_t gone_at(int rank) const;
    bool is_cause(int rank) const;
};
extern Board* board;
extern const Job* job;

}  // namespace sim
