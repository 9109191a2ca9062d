// The table of algorithms. An algorithm is a pure function from a request to the program of one rank: no input or
// output, no environment, O(its own steps). To add one: a file with its functions and its row, which
// algorithms.cpp lists; verifier, executors, transports, benchmarks and pictures then know it.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/compose.hpp"
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

/// What an algorithm does for one collective.
struct Way {
    Collective collective;
    Make make;  // of 2 ranks or more, 0 <= rank < ranks
    /// What the verifier proves of it, for every number of ranks that the tests try.
    struct Promises {
        bool in_rank_order =
            false;  // every sum is one step's, of all ranks in their order: its bits depend on nothing else
        bool uneven_safe = false;  // rows may differ in length
    } promises = {};
};
using Ways = std::vector<Way>;

/// The rest of what the verifier proves is for all of its ways, in place and not.
struct Algorithm {
    std::string_view name;
    std::string_view summary;  // one line for `tutti-plan list`
    Ways ways;
    std::function<ClosedForm(Collective, int ranks)> form;  // of 2 ranks or more
    int fifo_depth;                                         // what the program needs at most, for any number of ranks
    bool pull_safe;                // a send of a local slice may pass the slice's address instead of a copy
    bool push_safe;                // a plain receive into a slice may be stored there by the sender, as soon
                                   // as the receiver has started the tile
    std::string_view family = {};  // of a composition: the row of the table that stands for it; its own: this is it
    bool usual = true;             // of a composition: worth a try where ranks are on several hosts
    /// Of a composition: its form where so many hosts have so many ranks each.
    std::function<ClosedForm(Collective, int hosts, int ranks)> form_on_hosts = nullptr;

    bool supports(Collective c) const { return way(c) != nullptr; }
    bool in_rank_order(Collective c) const { return supports(c) && way(c)->promises.in_rank_order; }
    bool uneven_safe(Collective c) const { return supports(c) && way(c)->promises.uneven_safe; }
    ClosedForm closed_form(Collective c, int ranks) const { return ranks == 1 ? ClosedForm{} : form(c, ranks); }
    /// Of one rank: its input is the result. Throws if it does not support the collective.
    Program make(const Request& request) const;
    /// The same as a function, which lasts as long as this.
    Make maker() const {
        return [this](const Request& request) { return make(request); };
    }
    const Way* way(Collective c) const;  // nullptr: it does not support it
};

std::span<const Algorithm> algorithms();

/// Every "inside+across" of two rows: not in the table, which would be long, but as good as its rows.
std::span<const Algorithm> compositions();

/// Of both; nullptr if there is none of that name.
const Algorithm* find_algorithm(std::string_view name);

/// The rows of the table, one a file.
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
Algorithm server();
Algorithm server2();
Algorithm hierarchy();

/// A way from one that only copies, `spread`, which makes programs of `forward`: the same backwards in time.
template <Program (*spread)(const Request&), Collective forward>
Program backwards(Request q) {
    const Collective collective = std::exchange(q.collective, forward);
    return reversed(spread(q), collective);
}

/// An all-reduce from what spreads its result: that backwards, then forwards. Its root is rank 0.
template <Program (*spread)(const Request&)>
Program there_and_back(Request q) {
    q.root = 0;
    const Program back = spread(q);
    return joined(reversed(back, q.collective), back);
}

/// The ways of an algorithm that spreads rows to all. Asked for all_reduce, `spread` takes one column for each rank.
template <Program (*spread)(const Request&)>
Ways ways_of_gather() {
    return {{Collective::all_reduce, there_and_back<spread>},
            {Collective::reduce_scatter, backwards<spread, Collective::all_gather>, {.uneven_safe = true}},
            {Collective::all_gather, spread, {.uneven_safe = true}}};
}

}  // namespace tutti
