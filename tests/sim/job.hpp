// A job that a seed makes: ranks, the calls that they make, and what befalls them. All of it, results included, is
// known beforehand, so whatever comes out otherwise is a defect.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "harness/collective.hpp"
#include "tutti/tutti.h"
#include "weather.hpp"

namespace sim {

inline constexpr int most_ranks = 6;

struct Call {
    enum What { collective, ring, split, suspend, pause } what;
    tutti::harness::Case its;  // of a collective
    std::uint64_t time;        // pause: how long `who` does something else
    int who;
    std::string text() const;
};

struct Blow {
    enum What { none, kill, stop } what;
    int rank;
    std::uint64_t at, how_long;  // after the start; stop: for how long
};

struct Job {
    std::uint64_t seed;
    int ranks;
    std::string transport;
    std::vector<Call> calls;
    Blow blow;
    Weather weather;
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
