// What a schedule costs: the alpha-beta-gamma model (R. Hockney: The communication challenge for MPP. Parallel
// Computing 20, 1994; with the overheads of LogGP, A. Alexandrov et al., 1995) over the programs themselves. Each step
// takes its core some time for itself, for its messages and for the bytes it loads and stores; what it sends arrives a
// hand-over later. Played through in an order in which the steps can run, that gives the longest chain of one tile, and
// the cores' work; further tiles follow each other as fast as the busiest of these allows.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "schedule/match.hpp"
#include "schedule/program.hpp"
#include "schedule/tiling.hpp"

namespace tutti {

constexpr bool operator==(const Line& a, const Line& b) {
    return a.alpha_us == b.alpha_us && a.us_per_byte == b.us_per_byte && a.handling_us == b.handling_us;
}

/// What the ranks' machine takes. Times are a core's, in microseconds.
struct Rates {
    double step = 0.01;                        // of a step, beside what follows
    double message = 0.05;                     // to send a message, or to receive one
    double load = 1 / 90e3, store = 1 / 90e3;  // of a byte of a source, of a sink, in the caches
    double memory = 1 / 40e3;                  // on top, of a byte of a buffer that is not in the caches
    double switching = 0.9;                    // to let another rank run, where ranks outnumber cores
    double cold = 0.6;                         // more for the first step after that
    int cores = 1 << 30;                       // that the ranks share
    int threads = 1;                           // that a rank has for its channels; on a GPU one for each
    double sharing = 0;                        // to have the others join the one that calls
    bool insists = false;                      // threads share whatever would be worth it if each had a core
    int streams = 1 << 30;                     // cores that together take all that the memory gives
    bool references = false;                   // peers see each other's buffers, so large messages need no copies
    bool to_all = false;                       // what goes to all others is written once, unless it is such a message

    friend bool operator==(const Rates&, const Rates&) = default;
};

/// How many ordered pairs of ranks send, and to how many other ranks one sends at most.
struct Peers {
    std::size_t pairs = 0;
    int most = 0;
};
Peers peers_of(std::span<const Program> programs);

/// All ranks' programs, who meets whom, and an order in which the steps can run: what a price depends on, sizes aside.
/// Without that order, which takes most of the time to find, it is priced as if nobody ever waited.
struct Rehearsal {
    std::vector<Program> programs;
    Peers peers;
    Matching matching;
    std::vector<StepRef> order;
    bool pull_safe = false, push_safe = false;
    double lost = 0;         // where ranks outnumber cores: lost_by_sharing() of oversubscription.hpp
    std::size_t played = 0;  // steps and switches that were simulated for all of this: what it has cost

    /// Programs that verify() has proven, or would.
    static Rehearsal of(std::vector<Program> programs);
    /// Finds the matching and the order.
    void rehearse();
};

struct Cached {
    bool buffers = true;   // those of all ranks
    bool messages = true;  // and all that may be under way
};

/// In microseconds.
struct Price {
    double time = 0;      // of all tiles
    double chain = 0;     // of one tile from its first step to its last, had each rank a core
    double busiest = 0;   // one tile's work of the rank that has most
    double work = 0;      // one tile's work of all ranks
    double far = 0;       // of the work: what comes on top for bytes that are not in the caches
    double lost = 0;      // in which a core waits or switches, in one tile, where ranks outnumber cores
    int threads = 1;      // of each rank, which share the work
    long long waits = 0;  // how often a rank has nothing to do until a message comes, in one tile, of all ranks
};

/// tiling: of bytes. line: from one rank to another. Of a rehearsal without an order: no more than with it, rounding
/// aside.
Price price(const Rehearsal& rehearsal, const Tiling& tiling, const Rates& rates,
            const std::function<Line(Rank, Rank)>& line, Cached cached = {});

/// All of it but `time` and `threads`, which need the number of tiles and channels.
Price price_of_tile(const Rehearsal& rehearsal, const Tiling& tiling, const Rates& rates,
                    const std::function<Line(Rank, Rank)>& line, Cached cached = {});

/// How one tile's chain and work make the time of all, and whether that is less if a rank's threads share the work.
void add_tiles(Price& price, std::uint32_t tiles, int channels, int ranks, const Rates& rates);

}  // namespace tutti
