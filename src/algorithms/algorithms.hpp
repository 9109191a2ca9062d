// The table of algorithms. An algorithm is a pure function from a request to the program of one rank: no I/O, no
// environment, O(its own steps). To add one, write a file with its functions and its row, and list the row in
// algorithms.cpp. Verifier, executors, transports, benchmarks and pictures then know it.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/compose.hpp"
#include "schedule/program.hpp"

namespace tutti {

/// The costs that an algorithm promises in closed form. prove() compares them with the programs.
struct ClosedForm {
    int rounds;              // messages on the longest chain of dependent messages
    long long busiest_link;  // chunks sent over the busiest ordered pair of ranks
    long long busiest_rank;  // chunks sent by the rank that sends most
    // Of compositions: the part inside hosts.
    int near_rounds = 0;        // of `rounds`
    long long near_chunks = 0;  // of `busiest_rank`
};

/// An algorithm's implementation of one collective.
struct Way {
    Collective collective;
    Make make;  // for 2 ranks or more, 0 <= rank < ranks
    /// Properties that prove() checks; the tests do so for many numbers of ranks.
    struct Promises {
        bool in_rank_order = false;  // one step adds all inputs in rank order: bits depend on nothing else
        bool uneven_safe = false;    // rows may differ in length
    } promises = {};
};
using Ways = std::vector<Way>;

/// A row of the table, or a composition of two rows. fifo_depth, pull_safe and push_safe hold for all of its ways, in
/// place and out of place; prove() checks them.
struct Algorithm {
    std::string_view name;
    std::string_view summary;  // one line for `tutti-plan list`
    Ways ways;
    std::function<ClosedForm(Collective, int ranks)> form;  // for 2 ranks or more
    int fifo_depth;                                         // slots per connection that suffice for any ranks
    bool pull_safe = true;                                  // see schedule/hazards.hpp
    bool push_safe = true;                                  // see schedule/hazards.hpp
    std::string_view family = {};  // the row that stands for all compositions, itself included; otherwise empty
    bool usual = true;             // of a composition: the tuner tries it unasked if ranks are on several hosts
    /// Of a composition: its form on `hosts` hosts of `ranks` ranks each.
    std::function<ClosedForm(Collective, int hosts, int ranks)> form_on_hosts = nullptr;

    bool supports(Collective c) const { return way(c) != nullptr; }
    bool in_rank_order(Collective c) const { return supports(c) && way(c)->promises.in_rank_order; }
    bool uneven_safe(Collective c) const { return supports(c) && way(c)->promises.uneven_safe; }
    ClosedForm closed_form(Collective c, int ranks) const { return ranks == 1 ? ClosedForm{} : form(c, ranks); }
    /// Makes one rank's program, also for 1 rank. Throws tuttiInternalError if it does not support the collective.
    Program make(const Request& request) const;
    /// make() as a function, valid as long as this object.
    Make maker() const {
        return [this](const Request& request) { return make(request); };
    }
    const Way* way(Collective c) const;  // nullptr if it is not supported
};

/// The table. It lives until the process ends, as do compositions(). Any thread.
std::span<const Algorithm> algorithms();

/// All "inside+across" of two rows. They can be used like rows, but are not listed in the table because they are many.
std::span<const Algorithm> compositions();

/// Searches both by name; nullptr if there is none.
const Algorithm* find_algorithm(std::string_view name);

/// The rows of the table, made by the files of this folder.
Algorithm ring();
Algorithm direct();
Algorithm flat();
Algorithm pair();
Algorithm binomial();
Algorithm tree();
Algorithm double_tree();
Algorithm halving_doubling();
Algorithm doubling();
Algorithm bruck();
Algorithm pat();
Algorithm dissemination();
Algorithm chain();
Algorithm server();
Algorithm server2();
Algorithm hierarchy();

/// Makes a reduction from `spread`, which makes programs of `forward` that only copy, by reversing it in time.
template <Program (*spread)(const Request&), Collective forward>
Program backwards(Request q) {
    const Collective collective = std::exchange(q.collective, forward);
    return reversed(spread(q), collective);
}

/// Makes an all-reduce from `spread`, which makes programs that only copy: reversed, then forwards. The root is rank 0.
template <Program (*spread)(const Request&)>
Program there_and_back(Request q) {
    q.root = 0;
    const Program back = spread(q);
    return joined(reversed(back, q.collective), back);
}

/// The ways of an algorithm that spreads rows to all. `spread` makes all_gather; for all_reduce it makes the same with
/// columns in place of rows.
template <Program (*spread)(const Request&)>
Ways ways_of_gather() {
    return {{Collective::all_reduce, there_and_back<spread>},
            {Collective::reduce_scatter, backwards<spread, Collective::all_gather>, {.uneven_safe = true}},
            {Collective::all_gather, spread, {.uneven_safe = true}}};
}

}  // namespace tutti
