// dp_perf: what the data-parallel layer costs and hides. Run it as ranks: tutti-run -n 2 dp_perf
//
//   ready      nanoseconds of a tuttiDpGradReady that completes no bucket
//   overlap    how long Synchronize waits after a backward pass that takes as long as the reductions of naive: naive
//              and bucketed, in turns. The pass sleeps, as a host does whose GPU computes, or spins (--spin)
//   staleness  steps per second for several bounds, when every rank is late at random
//   arrival    (--arrival, and nothing else then) steps per second of all ranks but the last: alone; beside it, when
//   its
//              passes take --slow-factor times as long, with gradients that are applied on arrival and no bound; and
//              the same with tuttiDpBucketed, where all wait for it
//   checkpoint (--checkpoint FOLDER, and nothing else then) how fast ZeRO-2's parameters and states of Adam are saved
//              and loaded, beside the same bytes written and read by plain calls, a file for each rank
//   memory     (--memory, and nothing else then) how much of the host's memory each ZeRO stage takes, as the kernel
//              counts it, beside the formula and what tuttiDpGetMemory says
#include <fcntl.h>
#include <tutti/dp.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
using Us = std::chrono::duration<double, std::micro>;

struct Options {
    std::size_t layers = 64, layer_kib = 1024;
    std::vector<std::size_t> bucket_kib = {0, 25 * 1024, 8 * 1024};  // 0: the default
    int iterations = 9, late_ms = 5, steps = 100;
    bool spin = false, memory = false, arrival = false;
    double pass_ms = 20, slow_factor = 3;
    std::string trace, checkpoint;
    std::size_t mib = 1024;
};

void must(tuttiResult_t result) {
    if (result != tuttiSuccess) throw std::runtime_error(tuttiGetLastError(nullptr));
}

/// Parameters of one size each, in the layer's memory.
class Layer {
  public:
    Layer(tuttiComm_t comm, std::size_t parameters, std::size_t count, const tuttiDpConfig_t& config,
          bool units = false)
        : parameters_(parameters) {
        std::vector<std::string> names;
        for (std::size_t p = 0; p < parameters; ++p) names.push_back("p" + std::to_string(p));
        std::vector<tuttiDpParameter_t> all;
        for (const std::string& name : names)
            all.push_back({name.c_str(),
                           nullptr,
                           nullptr,
                           count,
                           tuttiFloat32,
                           tuttiDpSameType,
                           0,
                           units ? static_cast<int>(all.size()) : 0,
                           0,
                           {},
                           tuttiDpTrained});
        must(tuttiDpCreate(&dp_, all.data(), all.size(), &config, comm));
    }
    ~Layer() { tuttiDpDestroy(dp_); }
    Layer(const Layer&) = delete;

    /// A backward pass of this length; microseconds that Synchronize waited.
    double iterate(double pass_us, bool spin) {
        must(tuttiDpBegin(dp_));
        const Clock::time_point start = Clock::now();
        for (std::size_t p = parameters_; p-- > 0;) {
            const double due = pass_us * static_cast<double>(parameters_ - p) / static_cast<double>(parameters_);
            if (!spin) std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(Us(due)));
            while (Us(Clock::now() - start).count() < due) {
            }
            must(tuttiDpGradReady(dp_, p));
        }
        must(tuttiDpSynchronize(dp_));
        return statistics().exposedUs;
    }
    tuttiDpStatistics_t statistics() const {
        tuttiDpStatistics_t s;
        must(tuttiDpGetStatistics(dp_, &s));
        return s;
    }
    tuttiDp_t dp() const { return dp_; }

  private:
    std::size_t parameters_;
    tuttiDp_t dp_ = nullptr;
};

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

/// The same on all ranks: the slowest one's.
double slowest(tuttiComm_t comm, double value) {
    must(tuttiAllReduce(&value, &value, 1, tuttiFloat64, tuttiMax, comm, nullptr));
    return value;
}

void ready(tuttiComm_t comm, int rank) {
    constexpr std::size_t parameters = 10001;
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    Layer layer(comm, parameters, 1, config);
    double best = 1e30;
    for (int round = 0; round < 20; ++round) {
        must(tuttiDpBegin(layer.dp()));
        const Clock::time_point start = Clock::now();
        for (std::size_t p = parameters - 1; p > 0; --p) must(tuttiDpGradReady(layer.dp(), p));
        best = std::min(best, 1000 * Us(Clock::now() - start).count() / (parameters - 1));
        must(tuttiDpGradReady(layer.dp(), 0));
        must(tuttiDpSynchronize(layer.dp()));
    }
    if (rank == 0) std::printf("ready: %.1f ns each (target: less than 200)\n", best);
}

void overlap(tuttiComm_t comm, const Options& o, int rank) {
    const std::size_t count = o.layer_kib * 1024 / sizeof(float);
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.zeroGrad = 0;
    config.mode = tuttiDpNaive;
    Layer naive(comm, o.layers, count, config);
    std::vector<double> alone;
    for (int i = 0; i < o.iterations; ++i) alone.push_back(naive.iterate(0, true));
    const double pass = slowest(comm, median(alone));
    if (rank == 0)
        std::printf("overlap: %zu gradients of %zu KiB; naive reduces them in %.0f us; a pass that %s as long\n",
                    o.layers, o.layer_kib, pass, o.spin ? "spins" : "sleeps");
    for (const std::size_t kib : o.bucket_kib) {
        config.mode = tuttiDpBucketed;
        config.bucketBytes = kib * 1024;
        config.trace = !o.trace.empty();
        Layer bucketed(comm, o.layers, count, config);
        std::vector<double> with, without;
        for (int i = -2; i < o.iterations; ++i) {
            const double a = slowest(comm, naive.iterate(pass, o.spin));
            const double b = slowest(comm, bucketed.iterate(pass, o.spin));
            if (i < 0) continue;
            without.push_back(a);
            with.push_back(b);
        }
        if (rank == 0 && !o.trace.empty()) must(tuttiDpWriteTrace(bucketed.dp(), o.trace.c_str()));
        if (rank == 0)
            std::printf("  buckets of %s: naive exposes %8.0f us, bucketed %8.0f us: %.3f (target: at most 0.10)\n",
                        kib == 0 ? "the default size" : (std::to_string(kib) + " KiB").c_str(), median(without),
                        median(with), median(with) / median(without));
    }
}

void staleness(tuttiComm_t comm, const Options& o, int rank) {
    double synchronous = 0;
    for (const int s : {0, 1, 2, 4, 8}) {
        tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
        config.mode = tuttiDpShardedServer;
        config.optimizer.kind = tuttiDpSgd;
        config.staleness = s;
        Layer layer(comm, 4, 1000, config);
        std::uint32_t state = static_cast<std::uint32_t>(rank) + 1;
        must(tuttiBarrier(comm, nullptr));
        const Clock::time_point start = Clock::now();
        for (int step = 0; step < o.steps; ++step) {
            state = state * 1664525u + 1013904223u;
            layer.iterate(state >> 30 == 0 ? 1000.0 * o.late_ms : 300.0, false);  // late one time in four
            must(tuttiDpStep(layer.dp()));
        }
        must(tuttiDpWait(layer.dp()));
        const double seconds = slowest(comm, Us(Clock::now() - start).count() / 1e6);
        const double rate = o.steps / seconds;
        if (s == 0) synchronous = rate;
        if (rank == 0)
            std::printf("staleness %d: %7.1f steps/s, %.2f of synchronous; observed at most %d\n", s, rate,
                        rate / synchronous, layer.statistics().largestStaleness);
    }
}

/// Steps per second of the slowest of `timed`, in steps that each take a pass of so many milliseconds; 0 on a rank that
/// is not one of them, which makes `steps` steps beside.
double steps_per_second(tuttiComm_t all, tuttiComm_t timed, const tuttiDpConfig_t& config, double pass_ms, int steps,
                        tuttiDpStatistics_t* statistics = nullptr) {
    Layer layer(all, 16, 16 * 1024, config);
    for (int step = -2; step < 0; ++step) {  // connections are made
        layer.iterate(0, false);
        must(tuttiDpStep(layer.dp()));
    }
    must(tuttiBarrier(all, nullptr));
    const Clock::time_point start = Clock::now();
    for (int step = 0; step < steps; ++step) {
        layer.iterate(1000 * pass_ms, false);
        must(tuttiDpStep(layer.dp()));
    }
    const double seconds = Us(Clock::now() - start).count() / 1e6;
    if (statistics != nullptr) *statistics = layer.statistics();
    return timed != nullptr ? steps / slowest(timed, seconds) : 0;
}

void arrival(tuttiComm_t comm, const Options& o, int rank, int ranks) {
    if (ranks < 2) throw std::runtime_error("--arrival needs at least 2 ranks: the last one is slow");
    const bool slow = rank == ranks - 1;
    tuttiComm_t fast = nullptr;
    must(tuttiCommSplit(comm, slow ? TUTTI_SPLIT_NOCOLOR : 0, rank, &fast, nullptr));
    tuttiDpConfig_t on_arrival = TUTTI_DP_CONFIG_INITIALIZER;
    on_arrival.mode = tuttiDpShardedServer;
    on_arrival.servers = ranks - 1;  // the same with and without the slow rank
    on_arrival.optimizer.kind = tuttiDpSgd;
    on_arrival.onArrival = 1;
    tuttiDpConfig_t bucketed = TUTTI_DP_CONFIG_INITIALIZER;
    bucketed.optimizer.kind = tuttiDpSgd;
    std::vector<double> alone, beside, together;
    tuttiDpStatistics_t seen{};
    for (int round = 0; round < o.iterations; ++round) {
        if (!slow) alone.push_back(steps_per_second(fast, fast, on_arrival, o.pass_ms, o.steps));
        must(tuttiBarrier(comm, nullptr));
        const double pass = slow ? o.slow_factor * o.pass_ms : o.pass_ms;
        const int steps = slow ? static_cast<int>(o.steps / o.slow_factor) : o.steps;
        beside.push_back(steps_per_second(comm, fast, on_arrival, pass, steps, &seen));
        must(tuttiBarrier(comm, nullptr));
        together.push_back(steps_per_second(comm, fast, bucketed, pass, o.steps / 4));
    }
    if (rank == 0) {
        std::printf("arrival: %d ranks, passes of %.0f ms, on the last one %.1f times as long; steps/s of the others\n",
                    ranks, o.pass_ms, o.slow_factor);
        std::printf("  on arrival: alone %.2f, beside it %.2f: %.3f (target: at least 0.95); at most %d steps ahead\n",
                    median(alone), median(beside), median(beside) / median(alone), seen.largestStaleness);
        std::printf("  bucketed, beside it: %.2f\n", median(together));
    }
    if (fast != nullptr) must(tuttiCommDestroy(fast));
}

struct File {
    File(const std::string& path, int flags) : fd(::open(path.c_str(), flags, 0644)) {
        if (fd < 0) throw std::runtime_error(path + " can't be opened");
    }
    ~File() { ::close(fd); }
    File(const File&) = delete;
    const int fd;
};

/// So that what is read next comes from the disk.
void drop_from_cache(const std::string& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const File file(entry.path().string(), O_RDONLY);
        ::posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED);
    }
}

/// All of data, in pieces of 1 MiB.
template <class Call>
void in_pieces(std::vector<char>& data, Call call) {
    constexpr std::size_t piece = std::size_t{1} << 20;
    for (std::size_t at = 0; at < data.size();) {
        const ssize_t n = call(data.data() + at, std::min(piece, data.size() - at), static_cast<off_t>(at));
        if (n <= 0) throw std::runtime_error("a file can't be read or written");
        at += static_cast<std::size_t>(n);
    }
}

void checkpoint(tuttiComm_t comm, const Options& o, int rank, int ranks) {
    constexpr std::size_t parameters = 48;
    const std::size_t count = o.mib * 1024 * 1024 / (3 * sizeof(float)) / parameters;  // a value and two moments
    const double mb = 3.0 * sizeof(float) * static_cast<double>(count * parameters) / 1e6;
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.mode = tuttiDpZero2;
    config.optimizer.kind = tuttiDpAdam;
    Layer layer(comm, parameters, count, config);
    layer.iterate(0, true);
    must(tuttiDpStep(layer.dp()));
    std::vector<char> plain(static_cast<std::size_t>(mb * 1e6) / static_cast<std::size_t>(ranks), 'x');
    const std::string folder = o.checkpoint + "/checkpoint", plain_folder = o.checkpoint + "/plain";
    const std::string mine = plain_folder + "/" + std::to_string(rank);
    std::filesystem::create_directories(plain_folder);
    const auto timed = [&](auto body) {
        must(tuttiBarrier(comm, nullptr));
        const Clock::time_point start = Clock::now();
        body();
        return slowest(comm, Us(Clock::now() - start).count() / 1e6);
    };
    const auto write = [&] {
        ::unlink(mine.c_str());
        const File file(mine, O_WRONLY | O_CREAT);
        in_pieces(plain, [&](char* at, std::size_t n, off_t to) { return ::pwrite(file.fd, at, n, to); });
        if (::fsync(file.fd) != 0) throw std::runtime_error("fsync has failed");
    };
    const auto read = [&] {
        const File file(mine, O_RDONLY);
        in_pieces(plain, [&](char* at, std::size_t n, off_t from) { return ::pread(file.fd, at, n, from); });
    };
    const auto load = [&] { must(tuttiDpLoad(layer.dp(), folder.c_str())); };
    struct Rates {
        std::vector<double> plain, layers;
    } saves, cold, cached;
    std::vector<double> blocked;
    for (int i = 0; i < 6; ++i) {
        const auto in_turns = [&](Rates& rates, bool from_disk, const auto& plains, const auto& layers) {
            for (const bool plain_first : {i % 2 == 0, i % 2 != 0}) {
                for (const std::string& some : {folder, plain_folder})
                    if (from_disk) drop_from_cache(some);
                const double seconds = plain_first ? timed(plains) : timed(layers);
                (plain_first ? rates.plain : rates.layers).push_back(mb / seconds);
            }
        };
        in_turns(saves, false, write, [&] { must(tuttiDpSave(layer.dp(), folder.c_str())); });
        in_turns(cold, true, read, load);
        in_turns(cached, false, read, load);
        blocked.push_back(1000 * timed([&] { must(tuttiDpSaveAsync(layer.dp(), folder.c_str())); }));
        must(tuttiDpSaveWait(layer.dp()));
    }
    if (rank == 0) {
        std::printf("checkpoint of %.0f MB; medians of %zu, MB/s (target: at least 0.8)\n", mb, blocked.size());
        const auto print = [](const char* what, const Rates& of) {
            const double here = median(of.layers), there = median(of.plain);
            std::printf("  %-24s %6.0f, plain %6.0f: %.2f\n", what, here, there, here / there);
        };
        print("save, with fsync", saves);
        print("load from the disk", cold);
        print("load from the cache", cached);
        std::printf("  a save beside training blocks for %.0f ms\n", median(blocked));
    }
    must(tuttiBarrier(comm, nullptr));
    if (rank == 0)
        for (const std::string& some : {folder, plain_folder}) std::filesystem::remove_all(some);
}

/// Bytes of this process's memory, of what it shares with others its part.
double resident() {
    std::ifstream rollup("/proc/self/smaps_rollup");
    for (std::string line; std::getline(rollup, line);)
        if (line.starts_with("Pss:")) return 1024 * std::stod(line.substr(4));
    throw std::runtime_error("/proc/self/smaps_rollup does not say how much memory is resident");
}

double sum(tuttiComm_t comm, double value) {
    must(tuttiAllReduce(&value, &value, 1, tuttiFloat64, tuttiSum, comm, nullptr));
    return value;
}

/// An iteration whose parameters are units. The most that was resident, while each gradient was there, as a mean over
/// ranks.
double most_resident(tuttiComm_t comm, tuttiDp_t dp, std::size_t parameters, std::size_t count, bool gathers,
                     int ranks) {
    double most = 0;
    must(tuttiDpBegin(dp));
    for (std::size_t p = parameters; p-- > 0;) {
        if (gathers) must(tuttiDpGather(dp, static_cast<int>(p)));
        void* gradient = nullptr;
        must(tuttiDpGradient(dp, p, &gradient));
        std::fill_n(static_cast<float*>(gradient), count, 1.0f);
        most = std::max(most, sum(comm, resident()) / ranks);
        must(tuttiDpGradReady(dp, p));
        if (gathers) must(tuttiDpRelease(dp, static_cast<int>(p)));
    }
    must(tuttiDpSynchronize(dp));
    must(tuttiDpStep(dp));
    return std::max(most, sum(comm, resident()) / ranks);
}

void memory(tuttiComm_t comm, const Options& o, int rank, int ranks) {
    constexpr std::size_t parameters = 64;
    const std::size_t count = o.mib * 1024 * 1024 / (4 * sizeof(float)) / parameters;  // value, gradient, two moments
    const double p = sizeof(float) * static_cast<double>(count * parameters), unit = sizeof(float) * count, mb = 1e6;
    const double n = ranks;
    const struct {
        const char* name;
        tuttiDpMode_t mode;
        double formula;
    } stages[] = {{"bucketed", tuttiDpBucketed, 4 * p},
                  {"ZeRO-1", tuttiDpZero1, 2 * p + 2 * p / n},
                  {"ZeRO-2", tuttiDpZero2, p + 3 * p / n},
                  {"ZeRO-3", tuttiDpZero3, 4 * p / n}};
    if (rank == 0)
        std::printf(
            "memory of a rank of %d, in MB: %zu parameters in fp32, each a unit of %.1f MB, with Adam\n"
            "%10s %10s %10s %10s %10s %24s\n",
            ranks, count * parameters, unit / mb, "", "formula", "counted", "transient", "resident",
            "over formula + 2 units");
    for (const auto& stage : stages) {
        const double before = sum(comm, resident()) / ranks;
        tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
        config.mode = stage.mode;
        config.optimizer.kind = tuttiDpAdam;
        config.bucketBytes = count * sizeof(float);
        Layer layer(comm, parameters, count, config, true);
        double most = 0;
        for (int i = 0; i < 2; ++i)
            most =
                std::max(most, most_resident(comm, layer.dp(), parameters, count, stage.mode == tuttiDpZero3, ranks));
        tuttiDpMemory_t counted;
        must(tuttiDpGetMemory(layer.dp(), &counted));
        const double kept = static_cast<double>(counted.parameters + counted.gradients + counted.states);
        if (rank == 0)
            std::printf("%10s %10.1f %10.1f %10.1f %10.1f %24.3f\n", stage.name, stage.formula / mb, kept / mb,
                        static_cast<double>(counted.transient) / mb, (most - before) / mb,
                        (most - before) / (stage.formula + 2 * unit));
    }
}

}  // namespace

int main(int count, char** words) {
    Options o;
    CLI::App app("What the data-parallel layer costs and hides: tutti-run -n 2 dp_perf");
    app.add_option("--layers", o.layers)->capture_default_str();
    app.add_option("--layer-kib", o.layer_kib)->capture_default_str();
    app.add_option("--bucket-kib", o.bucket_kib, "0: the default size")->capture_default_str();
    app.add_option("--iterations", o.iterations)->check(CLI::Range(1, 1000))->capture_default_str();
    app.add_option("--late-ms", o.late_ms, "staleness: how late")->capture_default_str();
    app.add_option("--steps", o.steps, "staleness, arrival: how many")->capture_default_str();
    app.add_option("--trace", o.trace, "write rank 0's time line of the last bucketed run, for ui.perfetto.dev");
    app.add_option("--checkpoint", o.checkpoint, "a folder on the disk whose rate is measured; nothing else is then");
    app.add_flag("--arrival", o.arrival, "steps per second beside a slow rank; nothing else is then measured");
    app.add_option("--pass-ms", o.pass_ms, "arrival: how long a pass takes")->capture_default_str();
    app.add_option("--slow-factor", o.slow_factor, "arrival: by how much the last rank's takes longer")
        ->check(CLI::Range(1.0, 100.0))
        ->capture_default_str();
    app.add_flag("--memory", o.memory, "what each ZeRO stage takes; nothing else is then measured");
    app.add_option("--mib", o.mib, "checkpoint, memory: how large")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    app.add_flag("--spin", o.spin, "overlap: the pass takes a core");
    CLI11_PARSE(app, count, words);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    try {
        tuttiComm_t comm = nullptr;
        int rank = 0, ranks = 1;
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.blocking = 1;  // whatever NCCL_COMM_BLOCKING says
        must(tuttiCommInitEnv(&comm, &config));
        must(tuttiCommUserRank(comm, &rank));
        must(tuttiCommCount(comm, &ranks));
        if (!o.checkpoint.empty()) {
            checkpoint(comm, o, rank, ranks);
        } else if (o.arrival) {
            arrival(comm, o, rank, ranks);
        } else if (o.memory) {
            memory(comm, o, rank, ranks);
        } else {
            ready(comm, rank);
            overlap(comm, o, rank);
            staleness(comm, o, rank);
        }
        must(tuttiCommDestroy(comm));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "dp_perf: %s\n", error.what());
        return 1;
    }
}
