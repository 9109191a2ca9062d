// The table of algorithms. An algorithm is a pure function from a request to the program of one rank: no input or
// output, no environment, O(its own steps). To add one: a file with its function, a row in algorithms.cpp; verifier,
// executors, transports, benchmarks and pictures then know it.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "schedule/program.hpp"

namespace tutti {

/// What an algorithm promises in closed form; the verifier compares it with what the programs do.
struct ClosedForm {
    int rounds;              // messages on the longest chain of dependent messages
    long long busiest_link;  // chunks sent over the busiest ordered pair of ranks
    long long busiest_rank;  // chunks sent by the rank that sends most
    int near_rounds = 0;     // of these, where it knows hosts: those inside
    long long near_chunks = 0;
};

struct Algorithm {
    std::string_view name;
    std::string_view summary;  // one line for `tutti-plan list`
    std::function<bool(Collective)> supports;
    std::function<Program(const Request&)> make;  // only for supported collectives, 1 <= ranks, 0 <= rank < ranks
    std::function<ClosedForm(Collective, int ranks)> closed_form;
    int fifo_depth;  // what the program needs at most, for any number of ranks
    bool pull_safe;  // a send of a local slice may pass the slice's address instead of a copy
    bool push_safe;  // a plain receive into a slice may be stored there by the sender, as soon
                     // as the receiver has started the tile
    /// For which collectives every sum is one step's, of all ranks in their order: its bits depend on nothing else.
    std::function<bool(Collective)> in_rank_order = [](Collective) { return false; };
    /// For which collectives rows may differ in length: the verifier's uneven_safe.
    std::function<bool(Collective)> uneven_safe = [](Collective) { return false; };
    std::string_view family = {};  // of a composition: the row of the table that stands for it; its own: this is it
    bool usual = true;             // of a composition: worth a try where ranks are on several hosts
    /// Of a composition: its form where so many hosts have so many ranks each.
    std::function<ClosedForm(Collective, int hosts, int ranks)> form_on_hosts = nullptr;
};

std::span<const Algorithm> algorithms();

/// Every "inside+across" of two rows: not in the table, which would be long, but as good as its rows.
std::span<const Algorithm> compositions();

/// Of both; nullptr if there is none of that name.
const Algorithm* find_algorithm(std::string_view name);

Program ring(const Request& request);
Program flat(const Request& request);
Program direct(const Request& request);
Program pair(const Request& request);
Program binomial(const Request& request);
Program tree(const Request& request);
Program double_tree(const Request& request);
Program halving_doubling(const Request& request);
Program doubling(const Request& request);
Program bruck(const Request& request);
Program pat(const Request& request);
Program dissemination(const Request& request);
Program server(const Request& request);
Program server2(const Request& request);
Program hierarchy(const Request& request);

}  // namespace tutti
