// dp_step: how long a training step takes whose forward and backward pass are a sleep, as on a host whose GPU computes.
// Run it as ranks: tutti-run -n 4 dp_step --mode ring
//
//   ring      the gradient is all-reduced in a ring (tuttiDpNaive)
//   central   it goes to one rank, which also works, and the sum comes back (tutti/ps.h, a server that only sums)
//   sharded   the same, and all ranks serve a part each
//   zero1, zero2, zero3, and zero1-overlap, zero2-overlap (config.overlapParamGather): 16 layers, each a unit; a third
//             of the pass goes forward, and the rest back
//
// Rank 0 prints the median over all steps of the slowest rank's time.
#include <tutti/dp.h>
#include <tutti/ps.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Options {
    std::string mode = "ring";
    double mib = 2, pass_ms = 200, last = 0;
    int steps = 7, prefetch = 1;
    bool separate = false;
};

void must(tuttiResult_t result) {
    if (result != tuttiSuccess) throw std::runtime_error(tuttiGetLastError(nullptr));
}

/// Calls `step`, which computes nothing, after a pass; milliseconds of each step on the slowest rank.
std::vector<double> times(tuttiComm_t comm, const Options& o, const std::function<void()>& before,
                          const std::function<void()>& step) {
    using Ms = std::chrono::duration<double, std::milli>;
    std::vector<double> all;
    for (int i = 0; i <= o.steps; ++i) {
        must(tuttiBarrier(comm, nullptr));
        const auto start = std::chrono::steady_clock::now();
        before();
        std::this_thread::sleep_for(Ms(o.pass_ms));
        step();
        double ms = Ms(std::chrono::steady_clock::now() - start).count();
        must(tuttiAllReduce(&ms, &ms, 1, tuttiFloat64, tuttiMax, comm, nullptr));
        if (i > 0) all.push_back(ms);  // the first one makes connections
    }
    return all;
}

std::vector<double> ring(tuttiComm_t comm, std::size_t count, const Options& o) {
    tuttiDpParameter_t parameter{};
    parameter.name = "w";
    parameter.count = count;
    parameter.type = tuttiFloat32;
    parameter.gradType = tuttiDpSameType;
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.mode = tuttiDpNaive;
    tuttiDp_t dp = nullptr;
    must(tuttiDpCreate(&dp, &parameter, 1, &config, comm));
    const auto all = times(
        comm, o, [&] { must(tuttiDpBegin(dp)); },
        [&] {
            must(tuttiDpGradReady(dp, 0));
            must(tuttiDpSynchronize(dp));
        });
    must(tuttiDpDestroy(dp));
    return all;
}

std::vector<double> layers(tuttiComm_t comm, std::size_t count, const Options& o) {
    constexpr std::size_t units = 16;
    std::vector<std::string> names;
    for (std::size_t u = 0; u < units; ++u) names.push_back("w" + std::to_string(u));
    std::vector<tuttiDpParameter_t> parameters(units);
    for (std::size_t u = 0; u < units; ++u) {
        parameters[u].name = names[u].c_str();
        const double part = o.last == 0 ? 1.0 / units : u + 1 == units ? o.last : (1 - o.last) / (units - 1);
        parameters[u].count = std::max<std::size_t>(static_cast<std::size_t>(part * static_cast<double>(count)), 1);
        parameters[u].type = tuttiFloat32;
        parameters[u].gradType = tuttiDpSameType;
        parameters[u].unit = static_cast<int>(u);
    }
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.mode = o.mode[4] == '1' ? tuttiDpZero1 : o.mode[4] == '2' ? tuttiDpZero2 : tuttiDpZero3;
    config.optimizer.kind = tuttiDpAdamW;
    config.overlapParamGather = o.mode.ends_with("overlap");
    config.separateGathers = o.separate;
    config.prefetch = o.prefetch;
    config.bucketBytes = config.firstBucketBytes = parameters[0].count * sizeof(float);
    tuttiDp_t dp = nullptr;
    must(tuttiDpCreate(&dp, parameters.data(), units, &config, comm));
    // Of a unit: forward, or back, which takes twice as long.
    const auto compute = [&](std::size_t unit, int parts) {
        must(tuttiDpGather(dp, static_cast<int>(unit)));
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(o.pass_ms * parts / (3 * units)));
        must(tuttiDpRelease(dp, static_cast<int>(unit)));
    };
    Options apart = o;
    apart.pass_ms = 0;
    const auto all = times(
        comm, apart,
        [&] {
            must(tuttiDpBegin(dp));
            for (std::size_t u = 0; u < units; ++u) compute(u, 1);
        },
        [&] {
            for (std::size_t u = units; u-- > 0;) {
                compute(u, 2);
                must(tuttiDpGradReady(dp, u));
            }
            must(tuttiDpSynchronize(dp));
            must(tuttiDpStep(dp));
        });
    must(tuttiDpWait(dp));
    must(tuttiDpDestroy(dp));
    return all;
}

std::vector<double> served(tuttiComm_t comm, std::size_t count, const Options& o, int servers) {
    const tuttiPsKey_t key = {"w", count, tuttiFloat32, nullptr};
    tuttiPsConfig_t config = TUTTI_PS_CONFIG_INITIALIZER;
    config.servers = servers;
    const auto parts = static_cast<std::size_t>(servers);
    config.partBytes = (count + parts - 1) / parts * sizeof(float);  // a part for each server
    tuttiPs_t ps = nullptr;
    must(tuttiPsCreate(&ps, &key, 1, &config, comm));
    std::vector<float> gradient(count, 1.0F), sum(count);
    const auto all = times(
        comm, o, [] {}, [&] { must(tuttiPsPushPull(ps, 0, gradient.data(), sum.data(), nullptr)); });
    must(tuttiPsDestroy(ps));
    return all;
}

}  // namespace

int main(int count, char** words) {
    Options o;
    CLI::App app("How long a training step takes: tutti-run -n 4 dp_step");
    app.add_option("--mode", o.mode)
        ->check(
            CLI::IsMember({"ring", "central", "sharded", "zero1", "zero2", "zero3", "zero1-overlap", "zero2-overlap"}))
        ->capture_default_str();
    app.add_option("--mib", o.mib, "of gradients")->check(CLI::Range(0.001, 1e6))->capture_default_str();
    app.add_option("--pass-ms", o.pass_ms, "how long a rank computes")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    app.add_option("--steps", o.steps)->check(CLI::Range(1, 100000))->capture_default_str();
    app.add_option("--prefetch", o.prefetch, "zero3: units that are fetched ahead")
        ->check(CLI::Range(0, 16))
        ->capture_default_str();
    app.add_option("--last", o.last, "zero*: the part of all bytes that the last layer has; 0: as much as the others")
        ->check(CLI::Range(0.0, 0.9))
        ->capture_default_str();
    app.add_flag("--separate-gathers", o.separate, "zero3, and overlap: gathers have communicators of their own");
    CLI11_PARSE(app, count, words);
    try {
        tuttiComm_t comm = nullptr;
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.blocking = 1;  // whatever NCCL_COMM_BLOCKING says
        if (o.mode == "ring") config.algorithm = "all_reduce:ring";
        int rank = 0, ranks = 1;
        must(tuttiCommInitEnv(&comm, &config));
        must(tuttiCommUserRank(comm, &rank));
        must(tuttiCommCount(comm, &ranks));
        const auto elements = static_cast<std::size_t>(o.mib * (1 << 18));
        auto all = o.mode == "ring"             ? ring(comm, elements, o)
                   : o.mode.starts_with("zero") ? layers(comm, elements, o)
                                                : served(comm, elements, o, o.mode == "central" ? 1 : ranks);
        std::sort(all.begin(), all.end());
        if (rank == 0)
            std::printf("%s: %d ranks, %g MiB, a pass of %g ms: a step of %.1f ms\n", o.mode.c_str(), ranks, o.mib,
                        o.pass_ms, all[all.size() / 2]);
        must(tuttiCommDestroy(comm));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "dp_step: %s\n", error.what());
        return 1;
    }
}
