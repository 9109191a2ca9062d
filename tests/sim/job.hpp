// A job that a seed makes: ranks, the calls that they make, and what befalls them. What must come of it is known
// beforehand, so whatever comes out otherwise is a defect.
//
// Ranks have numbers by which this test knows them for good, whatever they are called in a communicator: "the world's".
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "weather.hpp"

namespace sim {

inline constexpr int most_ranks = 8;  // newcomers included

/// What all ranks do, one after the other.
struct Call {
    enum What {
        step,    // of tests/steps, of one kind
        pause,   // `who` does something else for `time`
        abort,   // `who` aborts; `time` > 0: another thread does, so long after, whatever the rank is doing
        revoke,  // likewise
        leave,   // `who` destroys its communicator
        differ,  // `who` calls something else than the others
        shrink,  // all but `who` make a communicator without it
        grow     // newcomers join
    } what;
    std::string kind;    // step
    int who;             // a rank of the world; one that is not there any more: nothing happens
    std::uint64_t time;  // pause; abort, revoke
    int how;             // differ: in what; leave: 1: it finalizes first; grow: how many join
    std::uint64_t salt;  // step: what its numbers follow from
    std::string text() const;
};

struct Blow {
    enum What { kill, stop } what;
    int rank;
    std::uint64_t at, how_long;  // after the start; stop: for how long
    unsigned sends;              // it strikes when the rank has sent so often since `at`, if it does; 0: at `at`
};

struct Job {
    std::uint64_t seed;
    int ranks, newcomers;
    std::string transport, environment;  // environment: TUTTI_...=..., by spaces
    bool rejoins;                        // after an error all that are left meet again by a new id; else they shrink
    bool keeps;                          // communicators that have failed are given up at the end only
    std::vector<Call> calls;
    std::vector<Blow> blows;  // by time
    Weather weather;
    std::string focus;  // what it is after (focus.cpp); empty: anything
    int late = -1;      // a rank that comes later to where all meet first, by `late_by`; -1: none
    std::uint64_t late_by;
    bool wakes;  // who sleeps is woken by a ring only (World::stretch)
    std::uint32_t first_message;
    unsigned socket_buffer;  // World::socket_buffer
    bool places = false;     // blocks of memory that are left are told with the place where they were taken
    std::string text() const;
};

/// What a job is to do without, so that a failure is easier to read.
struct Less {
    int ranks = 0;                       // so many; 0: as many as the seed says
    std::set<std::size_t> without = {};  // calls, by number
    bool blow = true, weather = true;
    std::string text() const;  // as arguments of the program
};
Job make_job(std::uint64_t seed, const Less& less = {});

/// Runs it in a world of its own. Empty, or what was wrong. notes: what happened.
struct Outcome {
    std::string wrong, notes, picture;
    std::uint64_t trace, switches, time;
};
/// draw: also if nothing was wrong.
Outcome run_job(const Job& job, bool draw = false);

}  // namespace sim
