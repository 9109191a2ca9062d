#include "comm/choice.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "transport/fifo.hpp"

namespace tutti {
namespace {

constexpr std::size_t flat_limit = 4 * 1024;           // bytes; above, two phases move less
constexpr std::size_t one_to_all_limit = 1024 * 1024;  // broadcast and reduce: above, a chain shares the work
constexpr int all_pairs_limit = 32;                    // ranks; above, n * (n - 1) connections cost too much memory
constexpr std::size_t bruck_limit = 16 * 1024;         // all-to-all: below, messages count and not bytes
constexpr int packing_limit = 4096;                    // ranks; above, a chunk for each of them may not fit a slot
constexpr std::size_t reference_bytes = 16 * 1024;     // below, an acknowledgement costs more than a copy
constexpr std::size_t streaming_bytes = 8 * 1024 * 1024;

/// Bytes of a message and lanes. What is under way between all pairs, ranks^2 * slot_depth * tile * lanes, must stay in
/// the caches: with 8 ranks, tiles of 128 KiB on 4 lanes took twice as long as these.
struct Flight {
    std::size_t tile;
    int lanes;
};
constexpr Flight flight_of(int ranks) {
    return ranks <= 4 ? Flight{64 * 1024, 2} : Flight{32 * 1024, 1};
}

static_assert(flight_of(2).tile <= slot_bytes && flight_of(2).lanes <= collective_lanes);
static_assert(flight_of(8).tile >= reference_bytes);

}  // namespace

const Algorithm& choose_algorithm(Collective collective, std::size_t bytes, int ranks, std::string_view only) {
    if (!only.empty()) {
        const Algorithm* wanted = find_algorithm(only);
        if (wanted != nullptr && wanted->supports(collective)) return *wanted;
    }
    const char* name = "ring";
    switch (collective) {
        case Collective::all_reduce:
            name = bytes <= flat_limit ? "flat" : ranks <= all_pairs_limit ? "direct" : "ring";
            break;
        case Collective::reduce_scatter:
        case Collective::all_gather:
            name = ranks <= all_pairs_limit ? "direct" : "ring";
            break;
        case Collective::broadcast:
        case Collective::reduce:
            name = bytes <= one_to_all_limit ? "flat" : "ring";
            break;
        case Collective::all_to_all:
            name = bytes <= bruck_limit && ranks > 2 && ranks <= packing_limit ? "bruck" : "direct";
            break;
        case Collective::gather:
        case Collective::scatter:
            name = ranks <= all_pairs_limit || bytes > bruck_limit * 16 || ranks > packing_limit ? "flat" : "binomial";
            break;
        case Collective::barrier:
            name = "dissemination";
            break;
        case Collective::send:
        case Collective::recv:
            name = "pair";
            break;
    }
    const Algorithm* chosen = find_algorithm(name);
    TUTTI_ASSERT(chosen != nullptr && chosen->supports(collective));
    return *chosen;
}

Cut cut(std::size_t count, std::size_t element, int columns, int message_chunks, int ranks) {
    const Flight flight = flight_of(ranks);
    Cut c{};
    const std::size_t line = 64 / element;  // elements in a cache line: blocks of different ranks share none
    const auto parts = static_cast<std::size_t>(columns);
    const std::size_t room = slot_bytes / static_cast<std::size_t>(message_chunks) / 64 * line;  // see next_part
    if (room == 0)
        fail(tuttiInvalidUsage, "the algorithm packs %d chunks into a message, but only %zu fit: choose another one",
             message_chunks, slot_bytes / 64);
    if (count == 0) return {.block = 0, .tile = 0, .tiles = 1, .lanes = 1, .by_reference = false, .streaming = false};
    c.block = parts == 1 ? count : ((count + parts - 1) / parts + line - 1) / line * line;
    c.tile = std::min({c.block, flight.tile / element, room});
    c.tiles = static_cast<std::uint32_t>((c.block + c.tile - 1) / c.tile);
    c.lanes = static_cast<int>(std::min<std::uint32_t>(c.tiles, static_cast<std::uint32_t>(flight.lanes)));
    c.by_reference = c.tile * element >= reference_bytes;
    c.streaming = count * element >= streaming_bytes;
    return c;
}

}  // namespace tutti
