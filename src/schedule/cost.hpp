// The cost model of schedules: alpha-beta-gamma (R. Hockney: The communication challenge for MPP. Parallel Computing
// 20, 1994; with the overheads of LogGP, A. Alexandrov et al., 1995) applied to the programs themselves. A step takes
// its core a fixed time, a time for each message and a time for each byte loaded and stored. Its messages arrive one
// link latency later. Played in an order in which the steps can run, this gives the longest chain of one tile and the
// cores' work. Further tiles follow each other as fast as the chain, the busiest rank, the cores and the memory allow.
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

/// The speed of the ranks' machine. Times are in microseconds, those of one core.
struct Rates {
    double step = 0.01;                        // a step, beside the times below
    double message = 0.05;                     // sending a message, or receiving one
    double flag = 0;                           // on GPUs in addition, where it does not go in lines
    double lines = 0;                          // on GPUs in addition, a byte of it where it goes in lines
    double load = 1 / 90e3, store = 1 / 90e3;  // a byte of a source, of a sink, in the caches
    double memory = 1 / 40e3;                  // in addition, a byte that is not in the caches
    double between_cores = 1 / 15e3;  // in addition, a byte of a message from another core, if cores are shared: so the
                                      // model orders `direct` and `chain` as two cores of an Intel Xeon do
    double switching = 0.9;           // switching to another rank, if ranks outnumber cores
    double cold = 0.6;                // in addition, the first step after a switch
    int cores = 1 << 30;              // shared by all ranks
    int threads = 1;                  // of a rank, for its channels; on a GPU one for each
    double sharing = 0;               // starting the other threads of a rank on a call
    bool insists = false;             // decide about threads as if each had a core of its own
    int streams = 1 << 30;            // cores that saturate the memory
    bool references = false;          // peers can map all buffers, so large messages need no copy
    bool to_all = false;              // a message to all ranks is written once, if it is not by reference

    friend bool operator==(const Rates&, const Rates&) = default;
};

struct Peers {
    std::size_t pairs = 0;  // ordered pairs of ranks with messages
    int most = 0;           // most ranks to which one rank sends
};
Peers peers_of(std::span<const Program> programs);

/// The input of a price that does not depend on sizes: all ranks' programs, which send meets which receive, and an
/// order in which the steps can run. Without `order`, which is expensive to find, a price assumes that no rank waits.
struct Rehearsal {
    std::vector<Program> programs;
    Peers peers;
    Matching matching;
    std::vector<StepRef> order;
    bool pull_safe = false, push_safe = false;
    double lost = 0;         // if ranks outnumber cores: lost_by_sharing() of oversubscription.hpp, in microseconds
    std::size_t played = 0;  // steps and switches simulated so far, a measure of the planning time

    /// Takes programs that verify() has proven or would prove, and rehearses them.
    static Rehearsal of(std::vector<Program> programs);
    /// Computes `matching` and `order`. Asserts that the programs match and finish.
    void rehearse();
};

/// What stays in the caches.
struct Cached {
    bool buffers = true;   // the buffers of all ranks
    bool messages = true;  // all messages that may be under way
};

/// The price of a call. Times are in microseconds.
struct Price {
    double time = 0;      // of all tiles
    double chain = 0;     // one tile from its first step to its last, if each rank had a core
    double busiest = 0;   // one tile's work of the rank that has the most
    double work = 0;      // one tile's work of all ranks
    double core = 0;      // of those on the core with the most work; 0 if it is unknown which ranks share cores
    double far = 0;       // the part of `work` that is due to bytes outside the caches
    double lost = 0;      // one tile's waiting and switching of a core, if ranks outnumber cores
    int threads = 1;      // of each rank, which share the work
    long long waits = 0;  // one tile's steps, of all ranks, that have to wait for a message
};

/// Prices one tile of a call. add_tiles() sets `time` and `threads`, which depend on the number of tiles and channels.
/// tiling: with lengths in bytes, not elements. line: the cost of messages from one rank to another. Without
/// rehearsal.order the result is a lower bound (up to rounding) of the price with it. core_of: by rank, if ranks share
/// cores and it is known which: messages between cores cost rates.between_cores more. The writer pays that, for each
/// core once.
Price price_of_tile(const Rehearsal& rehearsal, const Tiling& tiling, const Rates& rates,
                    const std::function<Line(Rank, Rank)>& line, Cached cached = {}, std::span<const int> core_of = {});

/// Sets price.time from the chain and work of one tile. Sets price.threads to min(rates.threads, channels) if that
/// takes less time than one thread, else to 1.
void add_tiles(Price& price, std::uint32_t tiles, int channels, int ranks, const Rates& rates);

}  // namespace tutti
