// Trains a small network on a real text, data parallel in every mode of tutti/dp.h:
//
//     tutti-run -n 4 train_chars --mode bucketed
//
// --mode single is one rank that works through the parts of the batch one after the other: all synchronous modes end at
// its loss, to the last bit. --device cuda trains on GPUs, which ranks may share.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <thread>

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

/// comm: replaced if --elastic goes on without a rank.
void train(const Options& o, tuttiComm_t& comm) {
    using Clock = std::chrono::steady_clock;
    const Text text = Text::read(o.text);
    int rank = 0, ranks = 1;
    must(tuttiCommUserRank(comm, &rank));
    must(tuttiCommCount(comm, &ranks));
    auto layers = std::make_unique<LayerComm>(o, comm);
    Trainer trainer(o, text, layers->get());
    const int began = trainer.workers();
    if (!o.load.empty()) trainer.load(o.load);
    const Clock::time_point start = Clock::now();
    for (int step = 1; step <= o.steps; ++step) {
        try {
            trainer.step(step);
        } catch (const std::runtime_error&) {
            if (!o.elastic) throw;
            shrink(comm);
            must(tuttiCommUserRank(comm, &rank));
            must(tuttiCommCount(comm, &ranks));
            auto of_survivors = std::make_unique<LayerComm>(o, comm);
            step = trainer.move(of_survivors->get());
            layers = std::move(of_survivors);
            continue;
        }
        if (rank != 0 || trainer.serves_only() || !shows(o, step)) continue;
        const double loss = trainer.loss(step);
        const std::chrono::duration<double, std::milli> passed = Clock::now() - start;
        say_progress(o, step, loss, passed.count() / step);
    }
    const double final_loss = trainer.evaluate();
    const std::chrono::duration<double, std::milli> passed = Clock::now() - start;
    if (!o.save.empty()) trainer.save(o.save);
    std::vector<double> losses = trainer.losses();
    must(tuttiAllReduce(losses.data(), losses.data(), losses.size(), tuttiFloat64, tuttiSum, comm, nullptr));
    if (rank != 0) return;
    for (double& loss : losses) loss /= trainer.workers();
    say_statistics(trainer.dp(), o);
    const std::string bound =
        trainer.workers() < began ? "no bound: not all ranks have lived" : bound_of(o, trainer.workers());
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

}  // namespace

int main(int count, char** words) {
    Options o;
    CLI::App app("Trains a small network that guesses characters, data parallel.");
    app.add_option("--mode", o.mode, "how ranks work together")
        ->check(CLI::IsMember(mode_names()))
        ->capture_default_str();
    app.add_option("--device", o.device, "where ranks train; GPUs may have several")
        ->check(CLI::IsMember({"cpu", "cuda"}))
        ->capture_default_str();
    app.add_option("--steps", o.steps)->check(CLI::Range(0, 1000000))->capture_default_str();
    app.add_option("--batch", o.batch, "samples of a step, over all ranks")->capture_default_str();
    app.add_option("--rate", o.rate, "learning rate")->capture_default_str();
    app.add_option("--parts", o.parts, "single: in how many parts it adds up a batch; dataparallel: devices")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    app.add_option("--staleness", o.staleness, "async: how many steps a rank may be ahead")->capture_default_str();
    app.add_option("--text", o.text, "file to learn")->capture_default_str();
    app.add_option("--curve", o.curve, "write the loss of every step, as JSON");
    app.add_option("--trace", o.trace, "write rank 0's time line, for ui.perfetto.dev");
    app.add_option("--save", o.save, "write a checkpoint at the end: a folder of safetensors files");
    app.add_option("--load", o.load, "go on from a checkpoint, with the samples that come next");
    app.add_flag("--fp16", o.fp16, "parameters and gradients in float16, with loss scaling, on CPUs");
    app.add_flag("--elastic", o.elastic, "naive, bucketed: when a rank dies, the others go on");
    app.add_flag("--quiet", o.quiet, "no progress");
    CLI11_PARSE(app, count, words);
    if (o.fp16 && (o.device != "cpu" || o.mode == "async" || o.mode == "dataparallel")) {
        std::fprintf(stderr, "train_chars: --fp16 is for CPUs, and for all modes but async and dataparallel\n");
        return 1;
    }
    std::string why;
    if (o.device == "cuda" && gpu::count(why) == 0) {
        if (is_rank_zero()) std::fprintf(stderr, "train_chars: --device %s: %s\n", o.device.c_str(), why.c_str());
        return exit_no_device;
    }
    try {
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
