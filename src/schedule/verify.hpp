// The verifier: takes the programs of all ranks and proves that together they are the collective, or names the first
// step that breaks it.
//
//   1. Every output chunk holds the contributions that the collective's definition gives it, each exactly once; in
//   place too.
//   A barrier has no data: all ranks begin it before any ends it.
//   2. Nothing is read before it is written, every send meets a receive of the same length and the other way round.
//   3. The programs come to an end; the least FIFO depth with which they do is reported.
//   4. Whether messages may be passed by reference (hazards.hpp).
//   5. Whether rows may differ in length (uneven.hpp).
//   6. Rounds and chunks per link and rank, to be compared with an algorithm's closed form.
//   7. Exactly the steps that finish a reduction are marked `completes`.
//   8. The order of additions of each output chunk, which is what reproducibility is compared on.
//
// Any input gets an answer: programs from a file may be as wrong as they like.
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
    std::string error;  // names rank, step, operand and what was expected; what follows is valid if there is none

    int fifo_depth = 0;          // the least, 0 if there are no messages
    int rounds = 0;              // messages on the longest chain of dependent ones
    int steps = 0;               // of the rank that has most
    long long busiest_link = 0;  // chunks sent over the busiest ordered pair of ranks
    long long busiest_rank = 0;  // chunks sent by the rank that sends most

    bool pull_safe = false;
    bool push_safe = false;   // if both are, messages may be passed either way in one run
    std::string pull_hazard;  // the first reason why not
    std::string push_hazard;
    bool uneven_safe = false;  // rows may differ in length
    std::string uneven_hazard;

    Expressions expressions;
    std::vector<std::vector<std::uint32_t>> order;  // [program][output chunk]: an expression, or none
};

/// The programs of all ranks, in order; or any number of sends and receives, each with its counterpart.
Report verify(std::span<const Program> programs);

/// All ranks get the same bits of an all-reduce if they add in the same order, which verify() does not ask for. Empty
/// if they do, or if it is no all-reduce; else who differs in what.
std::string different_order(std::span<const Program> programs, const Report& report);

}  // namespace tutti
