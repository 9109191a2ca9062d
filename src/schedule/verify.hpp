// The verifier takes the programs of all ranks and proves that together they implement the collective, or names the
// first step that is wrong. It checks and reports:
//
//   1. Every output chunk holds the contributions that the collective defines, each exactly once, in place too. A
//      barrier has no data: all ranks begin it before any rank ends it.
//   2. Nothing is read before it is written. Every send has a receive of the same length, and every receive a send.
//   3. The programs finish; the least FIFO depth with which they do is reported.
//   4. Whether messages may be passed by reference (hazards.hpp).
//   5. Whether rows may differ in length (uneven.hpp).
//   6. Rounds, and chunks per link and per rank, for comparison with an algorithm's closed form.
//   7. Exactly the steps that finish a reduction are marked `completes`.
//   8. The order of additions of each output chunk, by which reproducibility is compared.
//
// Programs may be malformed in any way, for instance if they come from a file: verify() reports that as an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/expressions.hpp"
#include "schedule/program.hpp"

namespace tutti {

struct Report {
    bool ok = false;
    std::string error;  // names rank, step, operand and what was expected; if not empty, the rest is not valid

    int fifo_depth = 0;          // least number of slots per connection; 0 if there are no messages
    int rounds = 0;              // messages on the longest chain of dependent ones
    int steps = 0;               // of the rank that has the most
    long long busiest_link = 0;  // chunks sent over the busiest ordered pair of ranks
    long long busiest_rank = 0;  // chunks sent by the rank that sends most

    bool pull_safe = false;   // see hazards.hpp
    bool push_safe = false;   // if both are true, one run may use both
    std::string pull_hazard;  // the first reason if not safe
    std::string push_hazard;
    bool uneven_safe = false;  // rows may differ in length
    std::string uneven_hazard;

    Expressions expressions;
    std::vector<std::vector<std::uint32_t>> order;  // [program][output chunk]: an expression, or none
};

/// Verifies the programs of all ranks, in rank order; or any number of sends and receives, each with its counterpart.
/// Pure: any thread.
Report verify(std::span<const Program> programs);

/// Compares the orders in which ranks add the chunks of an all-reduce; with equal orders all ranks get the same bits.
/// verify() does not demand that. Returns the first difference; empty if there is none or if it is no all-reduce.
std::string different_order(std::span<const Program> programs, const Report& report);

}  // namespace tutti
