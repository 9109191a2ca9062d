#include "comm/choice.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "gpu/arena.hpp"
#include "kernels/host/executor.hpp"
#include "transport/fifo.hpp"

namespace tutti {
namespace {

constexpr std::size_t flat_limit = 4 * 1024;           // bytes; above, two phases move less
constexpr std::size_t one_to_all_limit = 1024 * 1024;  // broadcast and reduce: above, a chain shares the work
constexpr int all_pairs_limit = 32;                    // ranks; above, n * (n - 1) connections cost too much memory
constexpr std::size_t bruck_limit = 16 * 1024;         // all-to-all: below, messages count and not bytes
constexpr int packing_limit = 4096;                    // ranks; above, a chunk for each of them may not fit a slot
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

// GPUs. Guesses, until one measures them: lines cost twice the bytes and save a flag's round trip.
constexpr std::size_t gpu_line_limit = 16 * 1024;  // bytes of a block that go in lines
constexpr std::size_t gpu_line_share = 4 * 1024;   // bytes worth a lane more
constexpr std::size_t gpu_share = 16 * 1024;
constexpr std::size_t gpu_reference_tile = 4 * 1024 * 1024;
static_assert(gpu_line_limit <= gpu::line_bytes);

static_assert(flight_of(2).tile <= slot_bytes && flight_of(2).lanes <= collective_lanes);
static_assert(flight_of(8).tile >= reference_bytes);

}  // namespace

const Algorithm& choose_algorithm(Collective collective, std::size_t bytes, int ranks, std::string_view only,
                                  bool reproducible, bool uneven) {
    if (!only.empty()) {
        const Algorithm* wanted = find_algorithm(only);
        const bool in_order =
            !reproducible || !reduces(collective) || (wanted != nullptr && wanted->in_rank_order(collective));
        if (wanted != nullptr && wanted->supports(collective) && in_order &&
            (!uneven || wanted->uneven_safe(collective)))
            return *wanted;
    }
    const char* name = "ring";
    if (reproducible && reduces(collective)) {
        const bool in_one_step =
            collective == Collective::reduce || (collective == Collective::all_reduce && bytes <= flat_limit);
        const Algorithm* in_order = find_algorithm(in_one_step ? "flat" : "direct");
        TUTTI_ASSERT(in_order != nullptr && in_order->in_rank_order(collective));
        return *in_order;
    }
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
            name = !uneven && bytes <= bruck_limit && ranks > 2 && ranks <= packing_limit ? "bruck" : "direct";
            break;
        case Collective::gather:
        case Collective::scatter:
            name = ranks <= all_pairs_limit || bytes > bruck_limit * 16 || ranks > packing_limit ? "flat" : "binomial";
            if (uneven) name = "flat";
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
    TUTTI_ASSERT(!uneven || chosen->uneven_safe(collective));
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

Cut cut_uneven(std::size_t longest, std::size_t element, int message_chunks, int ranks) {
    constexpr std::size_t any_length = slot_bytes * collective_lanes;  // so long that every lane has a tile
    Cut c = cut(any_length, element, 1, message_chunks, ranks);
    c.block = longest;
    c.tiles = static_cast<std::uint32_t>(std::max<std::size_t>((longest + c.tile - 1) / c.tile, 1));
    c.streaming = longest * element >= streaming_bytes;
    return c;
}

Cut cut_for_gpus(std::size_t count, std::size_t element, int columns, int message_chunks, const GpuBudget& budget) {
    const auto round_up = [](std::size_t n, std::size_t to) { return (n + to - 1) / to * to; };
    const auto parts = static_cast<std::size_t>(columns), packed = static_cast<std::size_t>(message_chunks);
    const std::size_t line = 128 / element, block = (count + parts - 1) / parts;
    if (packed > gpu::slot_bytes / 128 || packed > gpu::line_bytes / 128)
        fail(tuttiInvalidUsage,
             "the algorithm packs %d chunks into a message, which has no room for so many on a GPU: "
             "choose another one",
             message_chunks);
    if (count == 0) return {.block = 0, .tile = 0, .tiles = 1, .lanes = 1, .by_reference = false, .streaming = false};
    Cut c{};
    c.block = parts == 1 ? count : round_up(block, line);
    const std::size_t bytes = c.block * element;
    c.in_lines = bytes * packed <= gpu_line_limit;
    const std::size_t share = c.in_lines ? gpu_line_share : gpu_share, most_lanes = c.in_lines ? gpu::line_lanes : 1024;
    const std::size_t lanes = std::clamp<std::size_t>((bytes + share - 1) / share, 1,
                                                      std::min(most_lanes, static_cast<std::size_t>(budget.lanes)));
    // Messages of several parts go in lines or slots.
    const bool referable = budget.by_reference && packed == 1;
    const std::size_t largest = c.in_lines ? gpu::line_bytes : referable ? gpu_reference_tile : gpu::slot_bytes;
    const std::size_t room = largest / packed / 128 * line;
    c.tile = std::min({c.block, round_up((c.block + lanes - 1) / lanes, line), room});
    c.tiles = static_cast<std::uint32_t>((c.block + c.tile - 1) / c.tile);
    c.lanes = static_cast<int>(std::min<std::size_t>(c.tiles, lanes));
    c.by_reference = !c.in_lines && referable;
    return c;
}

}  // namespace tutti
