// Trains a small network on a real text, data parallel in every mode of tutti/dp.h:
//
//     tutti-run -n 4 train_chars --mode bucketed
//
// --mode single is one rank that works through the parts of the batch one after the other: all synchronous modes end at
// its loss, to the last bit. --device cuda trains on GPUs, which ranks may share.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "rendezvous.hpp"
#include "trainer.hpp"

namespace {

constexpr int exit_no_device = 2;  // as the *_perf programs

bool is_rank_zero() {
    for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
        if (const char* value = std::getenv(name)) return std::string_view(value) == "0";
    return true;
}

/// Whether the loss of this step is to be said: fetching it makes a GPU wait.
bool shows(const Options& o, int step) {
    return !o.quiet && (isatty(STDERR_FILENO) != 0 || step % 50 == 0 || step == o.steps);
}

void say_progress(const Options& o, int step, double loss, double ms) {
    const bool live = isatty(STDERR_FILENO) != 0;
    std::fprintf(stderr, "%sstep %d of %d: loss %.4f, %.2f ms a step%s", live ? "\r" : "", step, o.steps, loss, ms,
                 live && step != o.steps ? "   " : "\n");
}

/// What --mode says of how near the others end.
std::string bound_of(const Options& o, int workers) {
    if (o.mode == "single") return "the reference";
    if (o.fp16) return "bound 0.05: gradients are rounded to float16 on their way";
    if (o.mode == "async") return "bound 0.2: gradients are up to " + std::to_string(o.staleness) + " steps old";
    if (o.on_arrival()) return "bound 0.3: gradients are applied alone, when they come";
    const int parts = o.mode == "dataparallel" ? o.parts : workers;
    const bool gpu = o.device == "cuda";
    return "bound 0: the bits of --mode single --parts " + std::to_string(parts) + (gpu ? " --device cuda" : "") +
           "; to other parts " + (gpu ? "and to CPUs " : "") + "0.01";
}

void write_curve(const std::string& path, const std::string& mode, const std::vector<double>& losses) {
    std::ofstream file(path);
    file << "{\"mode\": \"" << mode << "\", \"losses\": [";
    for (std::size_t i = 0; i < losses.size(); ++i) file << (i > 0 ? ", " : "") << losses[i];
    file << "]}\n";
    if (!file) throw std::runtime_error("'" + path + "' can't be written");
}

void say_statistics(tuttiDp_t dp, const Options& o) {
    tuttiDpStatistics_t s;
    tuttiDpMemory_t m;
    must(tuttiDpGetStatistics(dp, &s));
    must(tuttiDpGetMemory(dp, &m));
    std::printf("rank 0: %zu buckets; memory: parameters %zu, gradients %zu, states %zu, transient %zu bytes\n",
                s.buckets, m.parameters, m.gradients, m.states, m.transient);
    if (o.fp16) {
        double scale = 1;
        long long skipped = 0;
        must(tuttiDpGetLossScale(dp, &scale, &skipped));
        std::printf("rank 0: losses are scaled by %g; %lld steps were left out\n", scale, skipped);
    }
    if (o.mode == "async") {
        std::printf("rank 0: staleness at most %d; steps by staleness:", s.largestStaleness);
        for (int i = 0; i <= o.staleness && i < TUTTI_DP_STALENESS_BINS; ++i) std::printf(" %lld", s.staleness[i]);
        std::printf("\n");
    }
}

/// Updates on arrival: how stale, over all ranks, and how long ranks took. Collective; rank 0 prints.
void say_arrivals(tuttiDp_t dp, const Options& o, tuttiComm_t comm, double seconds) {
    tuttiDpStatistics_t s;
    int rank = 0, ranks = 1;
    must(tuttiDpGetStatistics(dp, &s));
    must(tuttiCommUserRank(comm, &rank));
    must(tuttiCommCount(comm, &ranks));
    std::vector<double> all(static_cast<std::size_t>(ranks));
    must(tuttiAllGather(&seconds, all.data(), 1, tuttiFloat64, comm, nullptr));
    must(tuttiAllReduce(&s.largestStaleness, &s.largestStaleness, 1, tuttiInt32, tuttiMax, comm, nullptr));
    must(tuttiAllReduce(s.staleness, s.staleness, TUTTI_DP_STALENESS_BINS, tuttiInt64, tuttiSum, comm, nullptr));
    long long counts[] = {s.applied, s.missed};
    must(tuttiAllReduce(counts, counts, 2, tuttiInt64, tuttiSum, comm, nullptr));
    if (rank != 0) return;
    const std::string bound = o.staleness == TUTTI_DP_UNBOUNDED ? "unbounded" : std::to_string(o.staleness);
    std::printf("staleness at most %d of %s; iterations by staleness, %d or more last:", s.largestStaleness,
                bound.c_str(), TUTTI_DP_STALENESS_BINS - 1);
    for (const long long count : s.staleness) std::printf(" %lld", count);
    std::printf("\n%lld gradients applied on arrival; each did not know of %.2f others on average; seconds by rank:",
                counts[0], static_cast<double>(counts[1]) / static_cast<double>(std::max(1LL, counts[0])));
    for (const double each : all) std::printf(" %.3f", each);
    std::printf("\n");
}

/// After a step has failed: a communicator without the rank that died, in the place of comm. Throws if none did.
void shrink(tuttiComm_t& comm) {
    int dead = -1, rank = 0;
    must(tuttiCommUserRank(comm, &rank));
    for (int look = 0; look < 1000 && dead < 0; ++look) {  // the step's error may be ahead of the news
        must(tuttiCommGetFailedRank(comm, &dead));
        if (dead < 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (dead < 0 || dead == rank) throw std::runtime_error(tuttiGetLastError(nullptr));
    tuttiComm_t survivors = nullptr;
    must(tuttiCommShrink(comm, &dead, 1, &survivors, nullptr, TUTTI_SHRINK_ABORT));
    must(tuttiCommAbort(comm));
    comm = survivors;
    must(tuttiCommUserRank(comm, &rank));
    if (rank == 0) std::fprintf(stderr, "\nrank %d is gone; the others go on\n", dead);
}

/// What the layer works on: the team's communicator, or on GPUs another one of the same ranks.
class LayerComm {
  public:
    LayerComm(const Options& o, tuttiComm_t team) : comm_(team), own_(o.device == "cuda") {
        if (!own_) return;
        int rank = 0, ranks = 1, gpus = 0;
        must(tuttiCommUserRank(team, &rank));
        must(tuttiCommCount(team, &ranks));
        must(tuttiGetDeviceCount(&gpus));
        tuttiUniqueId id{};
        if (rank == 0) must(tuttiGetUniqueId(&id));
        must(tuttiBroadcast(&id, &id, sizeof id, tuttiUint8, 0, team, nullptr));
        const char* const local = std::getenv("LOCAL_RANK");
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.reproducible = 1;
        config.device = (local != nullptr ? std::atoi(local) : rank) % gpus;  // ranks may share one
        if (o.mode == "ps-cpu" && rank == 0) config.device = TUTTI_DEVICE_CPU;
        must(tuttiCommInitRankConfig(&comm_, ranks, id, rank, &config));
    }
    ~LayerComm() {
        if (own_) tuttiCommDestroy(comm_);
    }
    LayerComm(const LayerComm&) = delete;
    tuttiComm_t get() const { return comm_; }

  private:
    tuttiComm_t comm_;
    bool own_;
};

/// A rank that knows no others yet.
tuttiComm_t alone() {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.reproducible = 1;
    tuttiUniqueId id;
    tuttiComm_t comm = nullptr;
    must(tuttiGetUniqueId(&id));
    must(tuttiCommInitRankConfig(&comm, 1, id, 0, &config));
    return comm;
}

/// comm: replaced if --elastic goes on with fewer ranks, or with more. A newcomer's (--join) has the others already.
void train(const Options& o, tuttiComm_t& comm) {
    using Clock = std::chrono::steady_clock;
    const Text text = Text::read(o.text);
    const bool newcomer = !o.join.empty();
    int rank = 0, ranks = 1, step = 1;
    bool moved = newcomer, even = true;  // whether every batch could be dealt
    const tuttiComm_t first = newcomer ? alone() : nullptr;
    auto layers = newcomer ? nullptr : std::make_unique<LayerComm>(o, comm);
    Trainer trainer(o, text, newcomer ? first : layers->get());
    const auto move = [&](const char* what) {
        moved = true;
        must(tuttiCommUserRank(comm, &rank));
        must(tuttiCommCount(comm, &ranks));
        auto of_these = std::make_unique<LayerComm>(o, comm);
        step = trainer.move(of_these->get());
        layers = std::move(of_these);
        even = even && o.batch % ranks == 0;
        if (rank == 0) std::fprintf(stderr, "%s%d ranks go on after step %d\n", what, ranks, step);
    };
    const auto recover = [&] {
        for (bool again = false;; again = true) try {
                shrink(comm);
                return move("");
            } catch (const std::runtime_error&) {
                if (again) throw;  // another one has died meanwhile, or the layer can't go on
            }
    };
    must(tuttiCommUserRank(comm, &rank));
    must(tuttiCommCount(comm, &ranks));
    const int began = trainer.workers(), all_ranks = ranks;
    if (!o.load.empty()) trainer.load(o.load);
    const Clock::time_point start = Clock::now();
    if (newcomer) {
        move("");
        must(tuttiCommDestroy(first));
        ++step;
    }
    for (; step <= o.steps && (!o.uneven || trainer.has_batch(step)); ++step) {
        try {
            trainer.step(step);
            if (o.save_every > 0 && step % o.save_every == 0) trainer.save(o.save);
            if (const tuttiComm_t grown = o.rendezvous.empty() ? nullptr : admit(o.rendezvous, comm);
                grown != nullptr) {
                const tuttiComm_t before = std::exchange(comm, grown);
                move("a rank has come; ");
                must(tuttiCommDestroy(before));
                continue;
            }
        } catch (const std::runtime_error&) {
            if (!o.elastic) throw;
            recover();
            continue;
        }
        if (rank != trainer.first_worker() || !shows(o, step)) continue;
        const double loss = trainer.loss(step);
        const std::chrono::duration<double, std::milli> passed = Clock::now() - start;
        say_progress(o, step, loss, passed.count() / step);
    }
    if (o.uneven) trainer.join();
    const std::chrono::duration<double> own = Clock::now() - start;
    if (o.on_arrival()) {  // all updates of all ranks first
        must(tuttiDpWait(trainer.dp()));
        if (tuttiBarrier(comm, nullptr) != tuttiSuccess) {
            if (!o.elastic) throw std::runtime_error(tuttiGetLastError(nullptr));
            shrink(comm);
            must(tuttiCommUserRank(comm, &rank));
            must(tuttiCommCount(comm, &ranks));
        }
    }
    double final_loss = trainer.evaluate();
    const std::chrono::duration<double, std::milli> passed = Clock::now() - start;
    if (trainer.first_worker() > 0 && ranks == all_ranks)  // dedicated servers do not always have the parameters
        must(tuttiBroadcast(&final_loss, &final_loss, 1, tuttiFloat64, trainer.first_worker(), comm, nullptr));
    if (!o.save.empty()) trainer.save(o.save);
    std::vector<double> losses = trainer.losses();
    must(tuttiAllReduce(losses.data(), losses.data(), losses.size(), tuttiFloat64, tuttiSum, comm, nullptr));
    if (o.on_arrival()) say_arrivals(trainer.dp(), o, comm, own.count());
    if (rank != 0) return;
    for (double& loss : losses) loss /= trainer.workers();
    say_statistics(trainer.dp(), o);
    const std::string bound = moved && even && !o.on_arrival() && o.mode != "async"
                                  ? "bound 0.01: the same samples, added up by other numbers of ranks"
                              : moved || trainer.workers() < began ? "no bound: not all ranks have lived"
                                                                   : bound_of(o, trainer.workers());
    std::printf("mode %s, %d ranks: final loss %.9g after %d steps, %.2f ms a step (%s)\n", o.mode.c_str(), ranks,
                final_loss, o.steps, passed.count() / std::max(1, o.steps), bound.c_str());
    if (!o.curve.empty()) write_curve(o.curve, o.mode, losses);
    if (!o.trace.empty()) must(tuttiDpWriteTrace(trainer.dp(), o.trace.c_str()));
}

tuttiComm_t joined() {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.reproducible = 1;
    tuttiComm_t comm = nullptr;
    must(tuttiCommInitEnv(&comm, &config));
    return comm;
}

/// False, and an error is said: it is no number.
bool read_staleness(const std::string& words, Options& o) {
    const char* const end = words.data() + words.size();
    const auto [rest, error] = std::from_chars(words.data(), end, o.staleness);
    if (words == "unbounded" && o.on_arrival()) {
        o.staleness = TUTTI_DP_UNBOUNDED;
    } else if (error != std::errc() || rest != end || o.staleness < 0) {
        std::fprintf(stderr,
                     "train_chars: --staleness is '%s'; a number was expected, or with --mode async-arrival "
                     "'unbounded'\n",
                     words.c_str());
        return false;
    }
    return true;
}

/// "2x4": 2 groups of 4 ranks; "host": a group of each host. False, and an error is said: it is something else, or this
/// mode has no groups.
bool read_groups(const std::string& words, Options& o) {
    if (words.empty()) return true;
    const char* const end = words.data() + words.size();
    const auto [by, error] = std::from_chars(words.data(), end, o.groups);
    const bool cut = error == std::errc() && by != end && *by == 'x';
    const auto [rest, second] = std::from_chars(cut ? by + 1 : end, end, o.group_ranks);
    if (words == "host") {
        o.group_ranks = TUTTI_DP_SHARD_HOST;
    } else if (!cut || second != std::errc() || rest != end || o.groups < 1 || o.group_ranks < 1) {
        std::fprintf(stderr,
                     "train_chars: --hsdp is '%s'; GROUPSxRANKS was expected, or host: 2x4 is 2 groups of 4 ranks\n",
                     words.c_str());
        return false;
    }
    if (!o.mode.starts_with("zero")) {
        std::fprintf(stderr, "train_chars: --hsdp is for --mode zero1, zero2 and zero3\n");
        return false;
    }
    return true;
}

}  // namespace

int main(int count, char** words) {
    Options o;
    std::string staleness = std::to_string(o.staleness), groups;
    CLI::App app("Trains a small network that guesses characters, data parallel.");
    app.add_option("--mode", o.mode, "how ranks work together")
        ->check(CLI::IsMember(mode_names()))
        ->capture_default_str();
    app.add_option("--device", o.device, "where ranks train; GPUs may have several")
        ->check(CLI::IsMember({"cpu", "cuda"}))
        ->capture_default_str();
    app.add_option("--steps", o.steps)->check(CLI::Range(0, 1000000))->capture_default_str();
    app.add_option("--batch", o.batch, "samples of a step, over all ranks")->capture_default_str();
    app.add_option("--optimizer", o.optimizer)->check(CLI::IsMember({"adamw", "lamb", "muon"}))->capture_default_str();
    app.add_option("--rate", o.rate, "learning rate")->capture_default_str();
    app.add_option("--parts", o.parts, "single: in how many parts it adds up a batch; dataparallel: devices")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    app.add_option("--staleness", staleness, "async, async-arrival: how many steps a rank may be ahead, or 'unbounded'")
        ->capture_default_str();
    app.add_option("--servers", o.servers, "ps, ps-sharded, async, async-arrival, push-pull: how many ranks serve")
        ->check(CLI::Range(1, 1024));
    app.add_option(
        "--hsdp", groups,
        "zero1, zero2, zero3 (the default with it): GROUPSxRANKS, 2x4 say, or host; each group has a copy of "
        "what is sharded");
    app.add_flag("--dedicated", o.dedicated, "ranks that serve do nothing else");
    app.add_option("--slow-rank", o.slow_rank, "a rank that takes three times as long for its passes");
    app.add_option("--text", o.text, "file to learn")->capture_default_str();
    app.add_option("--curve", o.curve, "write the loss of every step, as JSON");
    app.add_option("--trace", o.trace, "write rank 0's time line, for ui.perfetto.dev");
    app.add_option("--save", o.save, "write a checkpoint at the end: a folder of safetensors files");
    app.add_option("--load", o.load, "go on from a checkpoint, with the samples that come next");
    app.add_flag("--fp16", o.fp16, "parameters and gradients in float16, with loss scaling, on CPUs");
    app.add_option("--save-every", o.save_every, "--save after every so many steps, too")
        ->check(CLI::Range(0, 1000000));
    app.add_flag("--elastic", o.elastic,
                 "when a rank dies, the others go on; what it alone had comes from the last checkpoint (asynchronous "
                 "modes: from the values that others received last)");
    app.add_option("--rendezvous", o.rendezvous, "--elastic: newcomers leave their requests at this path, and join");
    app.add_option("--join", o.join, "--elastic: join those that train, at their --rendezvous, as one more rank");
    app.add_flag("--uneven", o.uneven,
                 "ranks have different numbers of batches: the first one as many as --steps, the last about half");
    app.add_flag("--quiet", o.quiet, "no progress");
    CLI11_PARSE(app, count, words);
    if (!groups.empty() && app.count("--mode") == 0) o.mode = "zero3";
    if (!read_staleness(staleness, o) || !read_groups(groups, o)) return 1;
    const bool of_servers = o.on_arrival() || o.mode == "push-pull";
    if (o.fp16 && (o.device != "cpu" || o.mode == "async" || o.mode == "dataparallel" || of_servers)) {
        std::fprintf(stderr,
                     "train_chars: --fp16 is for CPUs, and not for async, async-arrival, push-pull and dataparallel\n");
        return 1;
    }
    if ((!o.rendezvous.empty() || !o.join.empty()) &&
        (!o.elastic || o.device != "cpu" || of_servers || o.mode == "async")) {
        std::fprintf(stderr, "train_chars: --rendezvous and --join are for --elastic, on CPUs, in synchronous modes\n");
        return 1;
    }
    if (o.elastic && !o.on_arrival() && (o.dedicated_servers() > 0 || of_servers)) {
        std::fprintf(stderr,
                     "train_chars: --elastic is for --mode async-arrival, and for modes other than push-pull without "
                     "dedicated servers\n");
        return 1;
    }
    if (o.uneven && (o.elastic || o.mode == "async" || o.mode == "dataparallel" || of_servers)) {
        std::fprintf(stderr, "train_chars: --uneven is for synchronous modes, without --elastic\n");
        return 1;
    }
    if (o.save_every > 0 && o.save.empty()) {
        std::fprintf(stderr, "train_chars: --save-every needs --save\n");
        return 1;
    }
    std::string why;
    if (o.device == "cuda" && gpu::count(o.mode == "dataparallel" ? o.parts : 1, why) == 0) {
        if (is_rank_zero()) std::fprintf(stderr, "train_chars: --device %s: %s\n", o.device.c_str(), why.c_str());
        return exit_no_device;
    }
    try {
        if (!o.join.empty()) {
            tuttiComm_t others = join(o.join);
            o.rendezvous = o.join;  // from inside it looks there with the others
            train(o, others);
            must(tuttiCommDestroy(others));
            return 0;
        }
        const tuttiComm_t comm = joined();
        int rank = 0, ranks = 1;
        must(tuttiCommUserRank(comm, &rank));
        must(tuttiCommCount(comm, &ranks));
        const bool one_process = o.mode == "single" || o.mode == "dataparallel";
        tuttiComm_t team = nullptr;  // without the processes that one_process leaves idle
        must(tuttiCommSplit(comm, one_process && rank > 0 ? TUTTI_SPLIT_NOCOLOR : 0, rank, &team, nullptr));
        if (team != nullptr) {
            train(o, team);
            must(tuttiCommDestroy(team));
        }
        must(o.elastic ? tuttiCommAbort(comm) : tuttiCommDestroy(comm));  // where a rank has died it has failed
    } catch (const std::exception& error) {
        std::fprintf(stderr, "train_chars: %s\n", error.what());
        return 1;
    }
}
