// dp_check: the data-parallel layer on GPUs trains to the bits of the layer on CPUs, in every mode. Ranks are threads;
// those on GPUs share the devices that there are. In some cases rank 0 is on a CPU, and the others on GPUs.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <regex>

#include "cuda.hpp"
#include "dp_training.hpp"

namespace dp_check {
namespace {

/// How many weights differ.
std::size_t differences(const Weights& a, const Weights& b) {
    if (a.size() != b.size()) throw std::runtime_error("the two sides have different parameters");
    std::size_t count = 0;
    for (std::size_t p = 0; p < a.size(); ++p)
        for (std::size_t i = 0; i < a[p].size(); ++i) count += a[p][i] != b[p].at(i);
    return count;
}

void offloaded(Config& c, int) {
    c.offload = 1;
}
void offloaded_threads(Config& c, int) {
    c.offload = 1;
    c.updateThreads = 3;
}
/// Of two ranks each where there are four; otherwise each rank is one.
void groups(Config& c, int ranks) {
    c.shardRanks = ranks % 4 == 0 ? 2 : 1;
}
void hierarchical(Config& c, int ranks) {
    groups(c, ranks);
    c.hierarchical = 1;
}
void dedicated(Config& c, int) {
    c.dedicated = 1;
}
/// Parameters that are exactly one step old: the same bits from run to run.
void late(Config& c, int) {
    c.staleness = c.exactDelay = 1;
}
void without_delay(Config& c, int) {
    c.staleness = 0;
}
void overlapped(Config& c, int) {
    c.overlapParamGather = 1;
}
void overlapped_apart(Config& c, int) {
    c.overlapParamGather = c.separateGathers = 1;
}
void apart(Config& c, int) {
    c.separateGathers = 1;
}
void far_ahead(Config& c, int) {
    c.prefetch = 2;
}
void far_ahead_apart(Config& c, int) {
    c.prefetch = 3;
    c.separateGathers = 1;
}
void scaled_losses(Config& c, int) {
    c.lossScale = 1024;
    c.lossScaleWindow = 1;
}
void scaled_losses_offloaded(Config& c, int ranks) {
    scaled_losses(c, ranks);
    c.offload = 1;
}
/// Both limits of the config, which Step applies.
void limited(Config& c, int) {
    c.clipValue = 0.5;
    c.clipNorm = 1;
}
void in_fp32(Config& c, int) {
    c.fp32Gradients = 1;
}
void joins_all(Config& c, int) {
    c.join = TUTTI_DP_JOIN_ALL;
}
void joins_active(Config& c, int) {
    c.join = TUTTI_DP_JOIN_ACTIVE;
}
void sums_scaled(Config& c, int ranks) {
    scaled_losses(c, ranks);
    c.sum = 1;
}

template <tuttiDpCompression_t kind>
void compressed(Config& c, int) {
    c.compression = kind;
    c.topK = 0.1;
}

tuttiResult_t own_reduction(void*, const tuttiDpBucket_t* b, tuttiComm_t comm) {
    return tuttiAllReduce(b->data, b->data, b->count, b->type, tuttiAvg, comm, b->stream);
}
void hooked(Config& c, int) {
    c.hook = own_reduction;
}

tuttiResult_t own_update(void*, const tuttiDpPiece_t* piece) {
    for (std::size_t i = 0; i < piece->count; ++i) {
        piece->state0[i] = 0.5f * piece->state0[i] + piece->gradients[i];
        piece->weights[i] -= static_cast<float>(piece->learningRate) * piece->state0[i];
    }
    return tuttiSuccess;
}
void own_updates(Config& c, int) {
    c.optimizer.update = own_update;
    c.offload = 1;
}
void own_updates_whole(Config& c, int ranks) {
    own_updates(c, ranks);
    c.wholeUpdates = 1;
}

void rebuilt(Config& c, int) {
    c.rebuild = 1;
}

constexpr auto f32 = tuttiFloat32, f64 = tuttiFloat64, f16 = tuttiFloat16, bf16 = tuttiBfloat16;

const Case cases[] = {
    {"naive, SGD", tuttiDpNaive, tuttiDpSgd, f32},
    {"bucketed, clipped momentum", tuttiDpBucketed, tuttiDpMomentum, f32},
    {"bucketed, Adam, bfloat16", tuttiDpBucketed, tuttiDpAdam, bf16},
    {"bucketed, AdamW, float16", tuttiDpBucketed, tuttiDpAdamW, f16},
    {"ZeRO-2, momentum, float64", tuttiDpZero2, tuttiDpMomentum, f64},
    {"server, AdamW", tuttiDpServer, tuttiDpAdamW, f32},
    {"sharded, AdamW", tuttiDpShardedServer, tuttiDpAdamW, f32},
    {"ZeRO-1, AdamW, bfloat16", tuttiDpZero1, tuttiDpAdamW, bf16},
    {"ZeRO-2, AdamW", tuttiDpZero2, tuttiDpAdamW, f32},
    {"ZeRO-3, AdamW", tuttiDpZero3, tuttiDpAdamW, f32},
    {"ZeRO-3 in groups, AdamW", tuttiDpZero3, tuttiDpAdamW, f32, groups},
    {"ZeRO-1 in groups, first each group", tuttiDpZero1, tuttiDpAdamW, f32, hierarchical},
    {"ZeRO-2 in groups, first each group", tuttiDpZero2, tuttiDpAdamW, bf16, hierarchical},
    {"ZeRO-3 in groups, first each group", tuttiDpZero3, tuttiDpAdam, f32, hierarchical},
    {"ZeRO-1, AdamW, bfloat16, offloaded", tuttiDpZero1, tuttiDpAdamW, bf16, offloaded},
    {"ZeRO-3, AdamW, offloaded", tuttiDpZero3, tuttiDpAdamW, f32, offloaded},

    {"a CPU serves GPUs, AdamW", tuttiDpServer, tuttiDpAdamW, f32, dedicated, cpu_first},
    {"a CPU serves and works, bfloat16", tuttiDpServer, tuttiDpAdam, bf16, nullptr, cpu_first},
    {"a CPU serves, LAMB", tuttiDpServer, tuttiDpLamb, f32, nullptr, cpu_first},
    {"bucketed, a CPU among GPUs", tuttiDpBucketed, tuttiDpMomentum, f32, nullptr, cpu_first},

    {"a CPU among them, ZeRO-1 beside", tuttiDpZero1, tuttiDpAdamW, f32, overlapped, cpu_first},
    {"a CPU among them, the same, apart", tuttiDpZero2, tuttiDpAdamW, f32, overlapped_apart, cpu_first},
    {"a CPU among them, ZeRO-3 ahead, apart", tuttiDpZero3, tuttiDpAdamW, f32, far_ahead_apart, cpu_first},
    {"a CPU among them, offloaded", tuttiDpZero3, tuttiDpLamb, bf16, offloaded, cpu_first},
    {"a CPU among them, moved", tuttiDpZero2, tuttiDpAdamW, f32, nullptr, cpu_first | moves},
    {"a CPU among them, abandoned", tuttiDpBucketed, tuttiDpAdamW, f32, nullptr, cpu_first | abandons},
    {"a CPU among them, uneven batches", tuttiDpZero1, tuttiDpAdamW, f32, joins_active, cpu_first | joins},
    {"a CPU among them, still parameters", tuttiDpZero3, tuttiDpAdamW, bf16, nullptr, cpu_first | stills},
    {"a CPU among them, scaled losses", tuttiDpZero1, tuttiDpAdamW, f16, scaled_losses, cpu_first | overflows | finds},
    {"a CPU among them, an all-gather", tuttiDpZero2, tuttiDpAdamW, f32, compressed<tuttiDpAllGather>, cpu_first},
    {"a CPU among them, in groups", tuttiDpZero2, tuttiDpAdamW, f32, hierarchical, cpu_first},
    {"a CPU among them, fp8 on the way", tuttiDpZero1, tuttiDpAdamW, f32, compressed<tuttiDpFp8>, cpu_first},
    {"a CPU among them, PowerSGD", tuttiDpZero3, tuttiDpAdamW, f32, compressed<tuttiDpPowerSgd>, cpu_first},
    {"a CPU among them, saved and loaded", tuttiDpServer, tuttiDpAdamW, f32, nullptr, cpu_first | saves},
    {"a CPU among them, saved beside", tuttiDpZero3, tuttiDpAdamW, bf16, nullptr, cpu_first | saves_beside},

    {"fp16 on the way", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpFp16>},
    {"bf16 on the way", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpBf16>},
    {"fp8 on the way, scaled", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpFp8>},
    {"the largest tenth on the way", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpTopK>},
    {"PowerSGD", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpPowerSgd>},
    {"a hook", tuttiDpBucketed, tuttiDpSgd, f32, hooked},
    {"one all-gather", tuttiDpBucketed, tuttiDpAdamW, f32, compressed<tuttiDpAllGather>},
    {"ZeRO-1, fp16 on the way", tuttiDpZero1, tuttiDpAdamW, f32, compressed<tuttiDpFp16>},
    {"ZeRO-3, bf16 on the way", tuttiDpZero3, tuttiDpAdamW, f32, compressed<tuttiDpBf16>},
    {"ZeRO-2, fp8 on the way", tuttiDpZero2, tuttiDpAdamW, f32, compressed<tuttiDpFp8>},
    {"sharded, the largest tenth", tuttiDpShardedServer, tuttiDpAdamW, f32, compressed<tuttiDpTopK>},
    {"ZeRO-3, PowerSGD", tuttiDpZero3, tuttiDpAdamW, f32, compressed<tuttiDpPowerSgd>},
    {"ZeRO-2, one all-gather", tuttiDpZero2, tuttiDpAdamW, f32, compressed<tuttiDpAllGather>},
    {"the largest tenth, reset", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpTopK>, resets},
    {"PowerSGD, reset", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpPowerSgd>, resets},

    {"asynchronous without delay", tuttiDpShardedServer, tuttiDpAdamW, f32, without_delay},
    {"asynchronous, delay-1, bfloat16", tuttiDpServer, tuttiDpAdamW, bf16, late},
    {"asynchronous, delay-1, a CPU serves", tuttiDpServer, tuttiDpAdamW, f32, late, cpu_first},

    {"bucketed, moved", tuttiDpBucketed, tuttiDpAdam, f32, nullptr, moves},
    {"ZeRO-3, moved", tuttiDpZero3, tuttiDpAdam, bf16, nullptr, moves},
    {"bucketed, abandoned", tuttiDpBucketed, tuttiDpAdam, f32, nullptr, abandons},
    {"ZeRO-3, abandoned", tuttiDpZero3, tuttiDpAdamW, bf16, nullptr, abandons},

    {"bucketed, Nesterov", tuttiDpBucketed, tuttiDpNesterov, f32},
    {"ZeRO-3, Nesterov, bfloat16", tuttiDpZero3, tuttiDpNesterov, bf16},
    {"ZeRO-1, LAMB, offloaded", tuttiDpZero1, tuttiDpLamb, f32, offloaded},
    {"ZeRO-3, LAMB, bfloat16, offloaded", tuttiDpZero3, tuttiDpLamb, bf16, offloaded},
    {"ZeRO-1, Muon, offloaded", tuttiDpZero1, tuttiDpMuon, f32, offloaded},
    {"ZeRO-2, three threads update", tuttiDpZero2, tuttiDpAdamW, bf16, offloaded_threads},
    {"ZeRO-2, the caller's update", tuttiDpZero2, tuttiDpCallback, f32, own_updates},
    {"ZeRO-1, the caller's whole updates", tuttiDpZero1, tuttiDpCallback, bf16, own_updates_whole},
    {"bucketed, groups and rates", tuttiDpBucketed, tuttiDpAdamW, f32, nullptr, other_rates},
    {"no optimizer, sums, unscaled", tuttiDpBucketed, tuttiDpNoOptimizer, f32, sums_scaled, overflows},

    {"bucketed, scaled losses, an infinity", tuttiDpBucketed, tuttiDpAdamW, f16, scaled_losses, overflows | finds},
    {"ZeRO-2, scaled losses, an infinity", tuttiDpZero2, tuttiDpAdamW, f32, scaled_losses, overflows},
    {"ZeRO-3, the same, offloaded", tuttiDpZero3, tuttiDpAdamW, bf16, scaled_losses_offloaded, overflows},
    {"bucketed, clipped by value and norm", tuttiDpBucketed, tuttiDpAdamW, f32, limited},
    {"ZeRO-3, clipped by value and norm", tuttiDpZero3, tuttiDpSgd, bf16, limited},
    {"ZeRO-1, clipped by the caller", tuttiDpZero1, tuttiDpSgd, f32, nullptr, clips},
    {"ZeRO-3, clipped by norm, float64", tuttiDpZero3, tuttiDpSgd, f64, limited},
    {"a CPU among them, clipped by norm", tuttiDpZero2, tuttiDpSgd, f32, limited, cpu_first},

    {"ZeRO-1, values beside the pass", tuttiDpZero1, tuttiDpAdamW, bf16, overlapped},
    {"ZeRO-2, values beside the pass", tuttiDpZero2, tuttiDpAdamW, f32, overlapped},
    {"server, values beside the pass", tuttiDpServer, tuttiDpAdamW, f32, overlapped},
    {"sharded, the same, apart", tuttiDpShardedServer, tuttiDpAdamW, f32, overlapped_apart},
    {"ZeRO-3, gathers apart", tuttiDpZero3, tuttiDpAdamW, bf16, apart},
    {"ZeRO-3, two units ahead", tuttiDpZero3, tuttiDpAdamW, f32, far_ahead},
    {"ZeRO-3, three units ahead, apart", tuttiDpZero3, tuttiDpAdamW, f32, far_ahead_apart},

    {"bucketed, memory of the caller", tuttiDpBucketed, tuttiDpAdamW, f32, nullptr, callers},
    {"bucketed, rebuilt", tuttiDpBucketed, tuttiDpAdamW, f32, rebuilt, forwards},
    {"the same, memory of the caller", tuttiDpBucketed, tuttiDpAdamW, bf16, rebuilt, callers | forwards | unused},
    {"ZeRO-3, unused parameters", tuttiDpZero3, tuttiDpAdamW, f32, nullptr, unused},
    {"ZeRO-3, memory of the caller", tuttiDpZero3, tuttiDpAdamW, bf16, nullptr, callers},
    {"two passes, sums in fp32", tuttiDpBucketed, tuttiDpAdamW, bf16, in_fp32, callers | twice},
    {"ZeRO-2, two passes, sums in fp32", tuttiDpZero2, tuttiDpAdamW, bf16, in_fp32, callers | twice},
    {"bucketed, frozen and a buffer", tuttiDpBucketed, tuttiDpAdamW, f32, nullptr, stills},
    {"ZeRO-3, frozen and a buffer", tuttiDpZero3, tuttiDpAdamW, bf16, nullptr, stills},
    {"bucketed, uneven batches", tuttiDpBucketed, tuttiDpAdamW, f32, joins_all, joins},
    {"ZeRO-3, uneven, mean of the active", tuttiDpZero3, tuttiDpAdamW, f32, joins_active, joins},

    {"bucketed, saved and loaded", tuttiDpBucketed, tuttiDpAdamW, f32, nullptr, saves},
    {"ZeRO-3, saved and loaded", tuttiDpZero3, tuttiDpAdamW, bf16, nullptr, saves | stills},
    {"ZeRO-2, saved beside a step", tuttiDpZero2, tuttiDpAdamW, f32, nullptr, saves_beside},
    {"ZeRO-3, saved beside, offloaded", tuttiDpZero3, tuttiDpAdamW, bf16, offloaded, saves_beside},
    {"ZeRO-1, GPUs save, CPUs load", tuttiDpZero1, tuttiDpAdamW, bf16, nullptr, saves_beside | then_cpus},
    {"ZeRO-3, CPUs save, GPUs load", tuttiDpZero3, tuttiDpAdamW, f32, nullptr, saves | from_cpus},
    {"the largest tenth, saved and loaded", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpTopK>, saves},
    {"asynchronous, saved and loaded", tuttiDpShardedServer, tuttiDpAdamW, f32, without_delay, saves},

    {"one process, many devices", {}, {}, f32, nullptr, 0, one_process},
    {"servers of sums (ps.h)", {}, {}, f32, nullptr, 0, pushed_and_pulled},
    {"a CPU among them, servers of sums", {}, {}, f32, nullptr, cpu_first, pushed_and_pulled},
    {"applied on arrival", {}, {}, f32, nullptr, 0, applied_on_arrival},
    {"a CPU among them, applied on arrival", {}, {}, f32, nullptr, cpu_first, applied_on_arrival},
};

Weights result_of(const Case& c, const std::vector<Place>& places) {
    return c.instead != nullptr ? c.instead(places) : train(c, places);
}

/// What ranks on CPUs make of it, without what must leave the bits alone.
Weights expected(const Case& c, int ranks) {
    Case plain = c;
    plain.what &= ~static_cast<unsigned>(moves | abandons | saves | saves_beside);
    return result_of(plain, std::vector<Place>(static_cast<std::size_t>(ranks)));
}

/// Says what came out.
bool check(const Case& c, std::vector<Place> places) {
    const auto begin = std::chrono::steady_clock::now();
    if ((c.what & cpu_first) != 0) places[0] = {};
    std::string found;
    bool good = false;
    try {
        const std::size_t wrong = differences(result_of(c, places), expected(c, static_cast<int>(places.size())));
        good = wrong == 0;
        found = std::to_string(wrong) + " weights differ";
    } catch (const std::exception& error) {
        found = error.what();
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    std::printf("%-37s %s (%s) %.1f s\n", c.name, good ? "OK" : "FAILED", found.c_str(), taken.count());
    std::fflush(stdout);
    return good;
}

/// Those with a name that has `words` in it somewhere.
std::vector<const Case*> chosen(const std::string& words, int ranks) {
    const std::regex wanted(words);
    std::vector<const Case*> all;
    for (const Case& c : cases)
        if (std::regex_search(c.name, wanted) && (ranks > 1 || (c.what & cpu_first) == 0)) all.push_back(&c);
    return all;
}

int run(const std::vector<const Case*>& all, int ranks, int devices) {
    std::vector<Place> places(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks && devices > 0; ++r)
        places[static_cast<std::size_t>(r)] = {r % devices, perf::cuda::make_stream(r % devices)};
    std::size_t failed = 0;
    for (const Case* c : all) failed += !check(*c, places);
    for (const Place& place : places)
        if (place.device != host) perf::cuda::destroy_stream(place.device, place.stream);
    std::printf("%zu cases, %zu failed\n", all.size(), failed);
    return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dp_check

int main(int count, char** words) {
    int ranks = 2;
    bool list = false;
    std::string device = "cuda", match;
    CLI::App app("The data-parallel layer on GPUs trains to the bits of the layer on CPUs.");
    app.add_option("--ranks", ranks)->check(CLI::Range(1, 64))->capture_default_str();
    app.add_option("--device", device, "cpu: both sides are CPUs, to try the program itself")
        ->check(CLI::IsMember({"cuda", "cpu"}))
        ->capture_default_str();
    app.add_option("--match", match, "a regular expression: only cases with a name in which it is found");
    app.add_flag("--list", list, "print the names of the cases, and do nothing else");
    CLI11_PARSE(app, count, words);
    std::vector<const dp_check::Case*> all;
    try {
        all = dp_check::chosen(match, ranks);
    } catch (const std::regex_error& error) {
        std::fprintf(stderr, "dp_check: --match %s: %s\n", match.c_str(), error.what());
        return 2;
    }
    if (all.empty()) {
        std::fprintf(stderr, "dp_check: no case has a name with %s\n", match.c_str());
        return 2;
    }
    if (list) {
        for (const dp_check::Case* c : all) std::puts(c->name);
        return 0;
    }
    std::string why;
    const int devices = device == "cuda" ? perf::cuda::devices(ranks, why) : 0;
    if (device == "cuda" && devices == 0) {
        std::fprintf(stderr, "dp_check: no GPU: %s\n", why.c_str());
        return 2;
    }
    return dp_check::run(all, ranks, devices);
}
