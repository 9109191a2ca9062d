#include "plan/platform.hpp"

#include <algorithm>
#include <bit>

#include "transport/fifo.hpp"

namespace tutti {
namespace {

// Over networks a message lies in slots at both ends, and in the kernel in between. With more than tile times channels
// under way, that no longer fits the cores' own caches: with twice as much, all-reduce over TCP took 1.7 times as long.
// As much in fewer channels took 1.2 times as long, since the kernel handles one channel while another one is reduced.
constexpr int network_channels = 4;
static_assert(network_tile <= slot_bytes_for(few_ranks + 1) && network_channels <= collective_channels);

// In microseconds: to wake sleeping threads, until they run.
constexpr double to_share = 10;
// With the rates of cost.hpp 8 cores move 220 GB/s outside of caches, about what a memory of 8 channels gives.
constexpr int cores_per_memory = 8;

constexpr std::size_t most_copied = 512 * 1024;  // measured with core caches of 512 KiB and of 2 MiB

constexpr Line over_pcie{1.5, 1 / 20e3};  // what reading host memory from a kernel adds

TileLimits host_limits(int ranks) {
    TileLimits l;
    l.slots = {slot_bytes_for(ranks), collective_channels};
    l.tile = l.slots.message;
    l.reference = reference_bytes;
    return l;
}

/// Limits for uneven calls. Tile and channels can't depend on the size here: what is under way between all pairs must
/// stay in the caches and, with many ranks, each of which keeps slots for all others, must not take too much memory.
TileLimits uneven_limits(int ranks) {
    TileLimits l = host_limits(ranks);
    l.uneven = true;
    l.tile = ranks <= 4 ? 64 * 1024 : ranks <= few_ranks ? 32 * 1024 : 16 * 1024;
    l.slots.channels = ranks <= 4 ? 2 : 1;
    return l;
}

}  // namespace

Platform host_platform(int ranks, int cores, std::size_t cache_bytes, std::size_t core_cache_bytes,
                       const std::vector<const Transport*>& used, bool far_cores) {
    const auto alpha = [](const Transport* t) { return t->cost().alpha_us; };
    const Transport& slowest = used.empty() ? local_transport() : **std::ranges::max_element(used, {}, alpha);
    const auto all = [&](auto can) { return std::ranges::all_of(used, can); };
    Platform p;
    p.ranks = ranks;
    p.rates.cores = std::max(1, cores);
    p.rates.references = all([](const Transport* t) { return t->sees() == Sees::everything; });
    p.rates.to_all = ranks <= most_to_all && all([](const Transport* t) { return t->carries_to_all(); });
    p.sees_regions = !p.rates.references && all([](const Transport* t) { return t->sees() != Sees::nothing; });
    p.line = slowest.cost();
    p.transport = slowest.name();
    p.cache_bytes = cache_bytes;
    p.near_bytes = core_cache_bytes * static_cast<std::size_t>(p.rates.cores);
    p.limits = host_limits(ranks);
    p.far_cores = far_cores;
    if (p.sees_regions)
        p.copied_bytes = p.oversubscribed() ? p.near_bytes / (2 * static_cast<std::size_t>(ranks))
                                            : std::min(core_cache_bytes, most_copied);
    p.uneven = uneven_limits(ranks);
    // Ranks that share cores wait for each other more often with shorter tiles than they gain.
    if (p.rates.to_all && exchange_place_for(ranks) > 0 && !p.oversubscribed()) p.exchanged = exchange_place_for(ranks);
    p.uneven.tile = std::min(p.uneven.tile, p.exchanged);
    if (slowest.needs_engine()) {
        p.limits.tile = network_tile;
        p.fewest_channels = p.limits.slots.channels = network_channels;
    }
    return p;
}

std::vector<int> cores_in_turn(int ranks, int cores) {
    std::vector<int> core_of;
    for (int core = 0; core < std::min(ranks, cores); ++core)
        for (int rank = core; rank < ranks; rank += cores) core_of.push_back(core);
    return core_of;
}

void Platform::place_on_cores(std::vector<int> its) {
    core_of = std::move(its);
    cores.clear();
    if (!oversubscribed() || !host_of.empty() || !std::ranges::is_sorted(core_of)) return;
    for (const int core : core_of) {
        if (static_cast<std::size_t>(core) == cores.size()) cores.push_back(0);
        ++cores.back();
    }
}

/// A message by reference moves its lines to the reader, and the writer's program fetches them back; in an exchange the
/// answer brings them. That decides up to 512 KiB, with caches of 512 KiB and of 2 MiB alike, and up to four times that
/// between far cores. Where all bytes have many readers, it decides longer.
std::size_t Platform::copied_up_to(Collective collective) const {
    if (collective == Collective::broadcast && !oversubscribed()) return 8 * copied_bytes;
    const std::size_t bytes = far_cores ? 4 * copied_bytes : copied_bytes;
    return collective == Collective::all_gather ? 2 * bytes : bytes;
}

void Platform::share_among(int threads, int memories) {
    if (threads < 2) return;
    rates.threads = threads;
    rates.sharing = to_share;
    rates.streams = std::max(ranks, memories * cores_per_memory);
    const int uneven_channels = std::min(threads, collective_channels);
    uneven.slots.channels = std::max(uneven.slots.channels, uneven_channels);
}

/// Measurements of short paths do not hold for long ones. The round trip is rounded to a power of two, so that small
/// differences do not change the choice from job to job.
void Platform::stretch(std::chrono::microseconds round_trip) {
    if (round_trip < long_path) return;
    const std::size_t slot = far_slot_bytes_for(ranks);
    line.alpha_us = static_cast<double>(std::bit_floor(static_cast<std::uint64_t>(round_trip.count()))) / 2;
    transport += far_suffix;
    limits.slots.message = limits.tile = slot;
    uneven.slots.message = uneven.tile = slot;
    between_hosts = slot;
}

/// Fits the line so that the model reproduces both measurements. For a message the model counts a step at each end (in
/// the exchange, for every tile) and for each byte two loads and two stores (schedule/cost.cpp); the rest is the
/// line's. The latency of a long path is kept: each communicator has measured it itself.
const Tuning::Path* Platform::take_path(const Tuning& tuning) {
    const Tuning::Path* const path = host_of.empty() ? nullptr : tuning.path(transport);
    if (path == nullptr) return nullptr;
    const double tile = static_cast<double>(limits.tile), own = rates.step + rates.message;
    const double beside_copies = path->us_per_byte - 2 * (rates.load + rates.store);
    const double most = std::min(path->latency_us / 4, beside_copies * tile / 2 - own);
    line.handling_us = std::clamp(most, 0.0, line.handling_us);
    const double ends = 2 * (own + line.handling_us);
    if (between_hosts == network_tile) line.alpha_us = std::max(path->latency_us - ends, 0.0);
    line.us_per_byte = std::max(beside_copies - ends / tile, 0.0);
    return path;
}

int Platform::threads_for(std::size_t bytes) const {
    const int most = std::min(rates.threads, uneven.slots.channels);
    const double alone = static_cast<double>(bytes) * (rates.load + rates.store);
    const bool has_cores = rates.insists || static_cast<long long>(ranks) * most <= rates.cores;
    return most > 1 && has_cores && alone / most + rates.sharing < alone ? most : 1;
}

Platform spread(Platform p, std::span<const std::uint64_t> hosts, Line near) {
    std::vector<std::uint64_t> known;
    std::vector<int> size;
    bool scattered = false;  // the parts of some host are not consecutive
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

Platform gpu_platform(int ranks, const gpu::Budget& budget) {
    Platform p;
    p.ranks = ranks;
    // Fitted to an H100's all-reduces of 2, 4 and 8 threads (docs/performance-gpu.md). lines: no more than that table
    // allows, so that of what takes as long the one is chosen that writes fewer bytes in lines to other GPUs.
    p.rates = {.step = 0.1, .message = 0.05, .flag = 1, .lines = 0.3 / 50e3, .load = 1 / 50e3, .store = 1 / 50e3};
    p.rates.memory = 0;
    p.rates.threads = 1 << 20;
    p.rates.references = budget.by_reference || budget.lends;
    p.pair_channels = budget.pair_channels;
    p.line = {2, 0};
    p.transport = "gpu";
    p.limits = gpu::limits_of(budget);
    return p;
}

Platform through_host(Platform p, const gpu::Budget& budget) {
    p.rates.references = p.rates.to_all = p.sees_regions = false;
    p.transport = "gpu through " + p.transport;
    for (Line* line : {&p.line, &p.near})
        *line = {line->alpha_us + over_pcie.alpha_us, line->us_per_byte + over_pcie.us_per_byte, line->handling_us};
    p.limits = gpu::through_host(p.limits, budget);
    p.fewest_channels = std::min(p.fewest_channels, p.limits.slots.channels);
    return p;
}

TileLimits pair_limits(std::size_t bytes, bool by_network, const Platform& p) {
    TileLimits l = p.limits;
    if (l.fixed()) {
        l.keep_lines_within(p.pair_channels);
        return l;
    }
    // A message that fits into the slots of one channel is under way as a whole. A channel is added only when those
    // before it are filled, so slots never take more than the message.
    const std::size_t tile = by_network ? p.between_hosts : network_tile, channel_bytes = slot_depth * tile;
    const int spare = program_channels - l.slots.channels;
    const int most = by_network ? std::clamp(spare, 1, network_channels) : 1;
    const std::size_t filled = (bytes + channel_bytes - 1) / channel_bytes;
    l.tile = tile;
    l.slots.channels = static_cast<int>(std::clamp<std::size_t>(filled, 1, static_cast<std::size_t>(most)));
    return l;
}

}  // namespace tutti
