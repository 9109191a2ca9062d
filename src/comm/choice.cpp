#include "comm/choice.hpp"

#include <algorithm>
#include <climits>
#include <map>

#include "base/result.hpp"
#include "gpu/arena.hpp"
#include "kernels/host/executor.hpp"
#include "transport/fifo.hpp"

namespace tutti {
namespace {

/// Bytes of a message and channels where they can't depend on the size: what is under way between all pairs must stay
/// in the caches, and of many ranks, each of which keeps slots for all others, not take too much memory.
constexpr Chunking uneven_chunking(int ranks) {
    return ranks <= 4 ? Chunking{64 * 1024, 2} : ranks <= few_ranks ? Chunking{32 * 1024, 1} : Chunking{16 * 1024, 1};
}
static_assert(uneven_chunking(2).tile <= slot_bytes && uneven_chunking(2).channels <= collective_channels);

// Over networks a message lies in slots at both ends, and in the kernel in between. Where more than tile times channels
// is under way, it falls out of the cores' own caches: with twice as much, all-reduce over TCP took 1.7 times as long.
// As much in fewer channels took 1.2 times as long: what the kernel does for one goes on while another is reduced.
constexpr std::size_t network_tile = 64 * 1024;
constexpr int network_channels = 4;
static_assert(network_tile <= slot_bytes_for(few_ranks + 1) && network_channels <= collective_channels);

constexpr std::size_t streaming_bytes = 8 * 1024 * 1024;

// GPUs. Guesses, until one measures them: lines cost twice the bytes and save a flag's round trip.
constexpr std::size_t gpu_line_limit = 16 * 1024;  // bytes of a block that go in lines
constexpr std::size_t gpu_line_share = 4 * 1024;   // bytes worth a channel more
constexpr std::size_t gpu_share = 16 * 1024;
constexpr std::size_t gpu_reference_tile = 4 * 1024 * 1024;
static_assert(gpu_line_limit <= gpu::line_bytes);
constexpr int host_channels = 4;  // through host memory: each has 1 MiB of pinned slots, for every peer that is named
static_assert(host_channels <= collective_channels);
constexpr Line over_pcie{1.5, 1 / 20e3};  // what it adds that a kernel reads host memory
static_assert(gpu::slot_bytes <= slot_bytes_for(few_ranks + 1));

}  // namespace

Platform host_platform(int ranks, int cores, std::size_t cache_bytes, std::size_t core_cache_bytes,
                       const Transport& slowest) {
    Platform p;
    p.ranks = ranks;
    p.rates.cores = std::max(1, cores);
    p.rates.references = slowest.sees() == Sees::everything;
    p.rates.to_all = slowest.carries_to_all() && ranks <= most_to_all;
    p.sees_regions = slowest.sees() == Sees::regions;
    p.line = slowest.cost();
    p.transport = slowest.name();
    p.cache_bytes = cache_bytes;
    p.near_bytes = core_cache_bytes * static_cast<std::size_t>(p.rates.cores);
    p.most_channels = collective_channels;
    p.most_tile = slot_bytes_for(ranks);
    if (slowest.needs_engine()) {
        p.channels = p.most_channels = network_channels;
        p.most_tile = network_tile;
    }
    return p;
}

Platform spread(Platform p, std::span<const std::uint64_t> hosts, Line near) {
    std::vector<std::uint64_t> known;
    std::vector<int> size;
    bool scattered = false;  // ranks of a host do not follow each other
    for (const std::uint64_t host : hosts) {
        const auto at = std::ranges::find(known, host);
        const auto number = static_cast<std::size_t>(at - known.begin());
        if (at == known.end()) known.push_back(host), size.push_back(0);
        scattered |= number + 1 < known.size();
        ++size[number];
        p.host_of.push_back(static_cast<int>(number));
    }
    if (known.size() < 2) {
        p.host_of.clear();
        return p;
    }
    p.near = near;
    if (!scattered && std::ranges::max(size) > 1) p.nodes = std::move(size);
    return p;
}

Platform gpu_platform(int ranks, const GpuBudget& budget) {
    Platform p;
    p.ranks = ranks;
    p.rates = {.step = 0.5, .message = 0.3, .load = 1 / 40e3, .store = 1 / 40e3, .memory = 0};
    p.rates.channels_share_core = false;
    p.rates.references = budget.by_reference || budget.lends;
    p.line = {1.0, 0};
    p.transport = "gpu";
    p.channels = budget.channels;
    p.most_channels = budget.channels;
    p.most_tile = gpu::slot_bytes;
    return p;
}

GpuBudget budget_of(const gpu::Places& places) {
    GpuBudget budget{.share = INT_MAX, .by_reference = !places.through_host(), .through_host = places.through_host()};
    std::map<gpu::Uuid, int> sharing;
    std::map<std::uint64_t, gpu::Uuid> of_process;
    std::map<std::pair<std::uint64_t, gpu::Uuid>, int> in_process;
    for (Rank r = 0; r < places.ranks(); ++r)
        if (places.on_gpu(r)) ++sharing[places.gpu(r).uuid];
    bool alone = true;  // of its process on its GPU, each rank
    // Blocks wait for blocks of other ranks, so all that share a device must run at the same time.
    for (Rank r = 0; r < places.ranks(); ++r) {
        const std::uint64_t process = places.info(r).process;
        budget.by_reference = budget.by_reference && process == places.info(0).process;
        if (!places.on_gpu(r)) continue;
        const gpu::EndpointInfo& info = places.gpu(r);
        alone = ++in_process[{process, info.uuid}] == 1 && alone;
        budget.across = budget.across || of_process.try_emplace(process, info.uuid).first->second != info.uuid;
        const int share = info.blocks / sharing[info.uuid];
        if (share < 2)  // a send and a receive at the same time
            fail(tuttiInvalidUsage,
                 "%d ranks share the GPU of rank %d, which runs %d blocks at the same time: that is too few for all, "
                 "each needs two",
                 sharing[info.uuid], r, info.blocks);
        budget.share = std::min(budget.share, share);
    }
    budget.channels = std::min(gpu::collective_channels, budget.share);
    budget.pair_channels = std::min(gpu::pair_channels, budget.share / 2);
    // Letting go of what was lent may wait for all kernels of the process on that GPU, and one of another rank may wait
    // for the caller's.
    budget.lends = !budget.through_host && !budget.by_reference && alone;
    if (budget.through_host) {
        budget.channels = std::min(budget.channels, host_channels);
        budget.pair_channels = 1;
    }
    return budget;
}

Platform through_host(Platform p, const GpuBudget& budget) {
    p.rates.references = p.rates.to_all = p.sees_regions = false;
    p.transport = "gpu through " + p.transport;
    for (Line* line : {&p.line, &p.near})
        *line = {line->alpha_us + over_pcie.alpha_us, line->us_per_byte + over_pcie.us_per_byte, line->handling_us};
    p.most_channels = std::min(p.most_channels, budget.channels);
    p.channels = std::min(p.channels, p.most_channels);
    p.most_tile = std::min(p.most_tile, gpu::slot_bytes);
    return p;
}

Chunking pair_chunking(std::size_t bytes, bool by_network, const Platform& p) {
    // Of a message that fits into the slots of one channel all is under way at once. So more channels never have slots
    // for more than the message that they were taken for.
    constexpr std::size_t channel_bytes = slot_depth * network_tile;
    const int spare = channels_per_link - (p.channels > 0 ? p.channels : p.most_channels);
    const int most = by_network ? std::clamp(spare, 1, network_channels) : 1;
    const std::size_t filled = (bytes + channel_bytes - 1) / channel_bytes;
    return {network_tile, static_cast<int>(std::clamp<std::size_t>(filled, 1, static_cast<std::size_t>(most)))};
}

Cut cut_through_host(std::size_t count, std::size_t element, int columns, int message_chunks, Chunking chunking,
                     const GpuBudget& budget) {
    chunking.channels = std::min(chunking.channels, budget.channels);
    Cut c = cut(count, element, columns, message_chunks, chunking, gpu::slot_bytes);
    c.in_lines = c.tile * element * static_cast<std::size_t>(message_chunks) <= gpu_line_limit && c.tiles == 1;
    return c;
}

Cut cut(std::size_t count, std::size_t element, int columns, int message_chunks, Chunking chunking, std::size_t slot) {
    Cut c{};
    const std::size_t line = 64 / element;  // elements in a cache line: blocks of different ranks share none
    const auto parts = static_cast<std::size_t>(columns);
    const std::size_t room = slot / static_cast<std::size_t>(message_chunks) / 64 * line;  // see next_part
    if (room == 0)
        fail(tuttiInvalidUsage, "the algorithm packs %d chunks into a message, but only %zu fit: choose another one",
             message_chunks, slot / 64);
    if (count == 0)
        return {.block = 0, .tile = 0, .tiles = 1, .channels = 1, .by_reference = false, .streaming = false};
    c.block = parts == 1 ? count : ((count + parts - 1) / parts + line - 1) / line * line;
    c.tile = std::min({c.block, chunking.tile / element, room});
    c.tiles = static_cast<std::uint32_t>((c.block + c.tile - 1) / c.tile);
    c.channels = static_cast<int>(std::min<std::uint32_t>(c.tiles, static_cast<std::uint32_t>(chunking.channels)));
    c.by_reference = c.tile * element >= reference_bytes;
    c.streaming = count * element >= streaming_bytes;
    return c;
}

Cut cut_uneven(std::size_t longest, std::size_t element, int message_chunks, int ranks) {
    constexpr std::size_t any_length = slot_bytes * collective_channels;  // so long that every channel has a tile
    Cut c = cut(any_length, element, 1, message_chunks, uneven_chunking(ranks), slot_bytes_for(ranks));
    c.block = longest;
    c.tiles = static_cast<std::uint32_t>(std::max<std::size_t>((longest + c.tile - 1) / c.tile, 1));
    c.streaming = longest * element >= streaming_bytes;
    return c;
}

Cut cut_for_gpus(std::size_t count, std::size_t element, int columns, int message_chunks, bool sends_slices,
                 const GpuBudget& budget) {
    const auto round_up = [](std::size_t n, std::size_t to) { return (n + to - 1) / to * to; };
    const auto parts = static_cast<std::size_t>(columns), packed = static_cast<std::size_t>(message_chunks);
    const std::size_t line = 128 / element, block = (count + parts - 1) / parts;
    if (packed > gpu::slot_bytes / 128 || packed > gpu::line_bytes / 128)
        fail(tuttiInvalidUsage,
             "the algorithm packs %d chunks into a message, which has no room for so many on a GPU: "
             "choose another one",
             message_chunks);
    if (count == 0)
        return {.block = 0, .tile = 0, .tiles = 1, .channels = 1, .by_reference = false, .streaming = false};
    Cut c{};
    c.block = parts == 1 ? count : round_up(block, line);
    const std::size_t bytes = c.block * element;
    c.in_lines = bytes * packed <= gpu_line_limit;
    const std::size_t share = c.in_lines ? gpu_line_share : gpu_share,
                      most_channels = c.in_lines ? gpu::line_channels : 1024;
    const std::size_t channels = std::clamp<std::size_t>(
        (bytes + share - 1) / share, 1, std::min(most_channels, static_cast<std::size_t>(budget.channels)));
    // Messages of several parts go in lines or slots.
    const bool referable = (budget.by_reference || budget.lends) && packed == 1;
    const std::size_t largest = c.in_lines                                         ? gpu::line_bytes
                                : referable && sends_slices && budget.by_reference ? gpu_reference_tile
                                                                                   : gpu::slot_bytes;
    const std::size_t room = largest / packed / 128 * line;
    c.tile = std::min({c.block, round_up((c.block + channels - 1) / channels, line), room});
    c.tiles = static_cast<std::uint32_t>((c.block + c.tile - 1) / c.tile);
    c.channels = static_cast<int>(std::min<std::size_t>(c.tiles, channels));
    c.by_reference = !c.in_lines && referable;
    return c;
}

}  // namespace tutti
