// A job that a seed makes: ranks, the calls that they make, and what befalls them. All of it, results included, is
// known beforehand, so whatever comes out otherwise is a defect.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/collective.hpp"
#include "tutti/tutti.h"

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
    std::string text() const;
};

/// most_calls: fewer make a failure easier to read.
Job make_job(std::uint64_t seed, int most_calls);

/// Runs it in a world of its own. Empty, or what was wrong. notes: what happened.
struct Outcome {
    std::string wrong, notes;
    std::uint64_t trace, switches, time;
};
Outcome run_job(const Job& job);

}  // namespace sim
