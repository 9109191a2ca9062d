// A job that a seed determines: ranks, their calls, and the faults that happen to them. The expected result is known
// beforehand, so every deviation is a defect.
//
// Each rank has a fixed number in the world, whatever its number in a communicator is.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "weather.hpp"

namespace sim {

inline constexpr int most_ranks = 8;  // newcomers included

/// One of the actions that all ranks perform in order.
struct Call {
    enum What {
        step,    // a step of tests/steps, of one kind
        pause,   // `who` is busy with something else for `time`
        abort,   // `who` aborts; if `time` > 0, another thread of it does so after that time
        revoke,  // `who` revokes, in the same way
        leave,   // `who` destroys its communicator
        differ,  // `who` calls something else than the others
        shrink,  // all but `who` make a communicator without it
        grow     // newcomers join
    } what;
    std::string kind;    // step
    int who;             // a rank of the world; nothing happens if it is gone
    std::uint64_t time;  // pause; abort, revoke
    int how;             // differ: in what; leave: 1 to finalize first; grow: how many join
    std::uint64_t salt;  // step: the seed of its data
    std::string text() const;
};

/// A kill or a stop of a rank.
struct Blow {
    enum What { kill, stop } what;
    int rank;
    std::uint64_t at, how_long;  // after the start; duration of a stop
    unsigned sends;              // strikes at the rank's nth send after `at`, if it comes to that; 0: at `at`
};

struct Job {
    std::uint64_t seed;
    int ranks, newcomers;
    std::string transport, environment;  // environment: TUTTI_...=... separated by spaces
    bool rejoins;                        // after an error the survivors meet again by a new id; else they shrink
    bool keeps;                          // failed communicators are destroyed only at the end
    std::vector<Call> calls;
    std::vector<Blow> blows;  // by time
    Weather weather;
    std::string focus;  // the subject of the job (focus.cpp); empty if none
    int late = -1;      // a rank that is late by `late_by` at the first rendezvous; -1 if none
    std::uint64_t late_by;
    bool wakes;  // sleepers are woken by wake-ups only, not by time-outs (World::stretch)
    std::uint32_t first_message;
    unsigned socket_buffer;  // World::socket_buffer
    bool places = false;     // leaks are reported with the place of allocation
    std::string text() const;
};

/// Reductions of a job, to make a failure easier to read.
struct Less {
    int ranks = 0;                       // 0: as many as the seed says
    std::set<std::size_t> without = {};  // calls that are left out, by number
    bool blow = true, weather = true;
    std::string text() const;  // as arguments of the program
};
Job make_job(std::uint64_t seed, const Less& less = {});

/// wrong: the defect; empty if none. notes: what happened.
struct Outcome {
    std::string wrong, notes, picture;
    std::uint64_t trace, switches, time;
};
/// Runs a job in a world of its own. draw: make the picture even if nothing was wrong.
Outcome run_job(const Job& job, bool draw = false);

}  // namespace sim
