// Trains a small network on a real text, data parallel in every mode of tutti/dp.h:
//
//     tutti-run -n 4 train_chars --mode bucketed
//
// --mode single is one rank that works through the parts of the batch one after the other: all synchronous modes end at
// its loss, to the last bit.
#include <tutti/dp.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>

#include "model.hpp"

namespace {

struct Options {
    std::string mode = "bucketed", text = TRAIN_TEXT, curve, trace, save, load;
    int steps = 300, batch = 96, parts = 4, staleness = 2;
    double rate = 0.003;
    bool quiet = false, elastic = false;
};

void must(tuttiResult_t result) {
    if (result != tuttiSuccess) throw std::runtime_error(tuttiGetLastError(nullptr));
}

const std::map<std::string, tuttiDpMode_t> modes = {
    {"single", tuttiDpNaive},  {"naive", tuttiDpNaive},        {"bucketed", tuttiDpBucketed}, {"ps", tuttiDpServer},
    {"ps-cpu", tuttiDpServer}, {"ps-sharded", tuttiDpSharded}, {"async", tuttiDpSharded},     {"zero1", tuttiDpZero1},
    {"zero2", tuttiDpZero2},   {"zero3", tuttiDpZero3},        {"dataparallel", tuttiDpNaive}};

/// The rank's samples of every step, in order: epoch after epoch.
class Samples {
  public:
    Samples(std::size_t length, int ranks, int rank) : sampler_{length, ranks, rank, 1, 1, 1, 0} {}
    std::vector<std::size_t> next(std::size_t count) {
        std::vector<std::size_t> batch;
        while (batch.size() < count) {
            if (at_ == order_.size()) {
                std::size_t all = 0;
                must(tuttiDpSampleCount(&sampler_, &all));
                order_.resize(all);
                must(tuttiDpSample(&sampler_, order_.data()));
                ++sampler_.epoch;
                at_ = 0;
            }
            batch.push_back(order_[at_++]);
        }
        return batch;
    }

  private:
    tuttiDpSampler_t sampler_;
    std::vector<std::size_t> order_;
    std::size_t at_ = 0;
};

/// --mode dataparallel: as many devices as options.parts says, in this process (parts of its CPU), as PyTorch's
/// DataParallel. Device 0 has the values and the gradients.
class Devices {
  public:
    Devices(int count, const Shape& shape, const Text& text) : comms_(static_cast<std::size_t>(count)), text_(text) {
        shape_ = shape;
        tuttiUniqueId id;
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.reproducible = 1;
        must(tuttiGetUniqueId(&id));
        must(tuttiGroupStart());
        for (int d = 0; d < count; ++d)
            must(tuttiCommInitRankConfig(&comms_[static_cast<std::size_t>(d)], count, id, d, &config));
        must(tuttiGroupEnd());
    }
    ~Devices() {
        for (tuttiComm_t comm : comms_) tuttiCommDestroy(comm);
    }
    Devices(const Devices&) = delete;

    /// The mean loss of these samples. Gradients: those of the devices' mean losses, added up.
    double pass(const std::vector<tuttiDpParameter_t>& parameters, const std::vector<std::size_t>& samples) {
        std::vector<double> losses(samples.size());  // of each sample that of its device
        const tuttiDpBatch_t batch{samples.size(), samples.data(), sizeof samples[0], losses.data(), sizeof losses[0]};
        must(tuttiDpDataParallel(comms_.data(), static_cast<int>(comms_.size()), nullptr, parameters.data(),
                                 parameters.size(), &batch, work, this));
        double sum = 0;
        for (const double loss : losses) sum += loss;
        return sum / static_cast<double>(losses.size());
    }

  private:
    static tuttiResult_t work(void* user, const tuttiDpReplica_t* replica) {
        const auto& self = *static_cast<Devices*>(user);
        Owner owner;
        owner.values = [&](std::size_t w) { return static_cast<const float*>(replica->values[w]); };
        owner.gradient = [&](std::size_t w) { return static_cast<float*>(replica->gradients[w]); };
        owner.ready = [](std::size_t) {};
        owner.enter = owner.leave = [](int) {};
        const auto* samples = static_cast<const std::size_t*>(replica->input);
        const double loss = ::pass(self.shape_, self.text_, std::vector(samples, samples + replica->samples), owner);
        std::fill_n(static_cast<double*>(replica->output), replica->samples, loss);
        return tuttiSuccess;
    }

    std::vector<tuttiComm_t> comms_;
    Shape shape_{};
    const Text& text_;
};

/// A rank with its network.
class Trainer {
  public:
    Trainer(const Options& options, const Text& text, tuttiComm_t comm)
        : options_(options), text_(text), shape_{text.characters}, weights_(weights_of(shape_)) {
        must(tuttiCommUserRank(comm, &rank_));
        must(tuttiCommCount(comm, &ranks_));
        for (std::size_t w = 0; w < weights_.size(); ++w) first_.push_back(first_values(weights_, w));
        std::vector<tuttiDpParameter_t> parameters;
        for (std::size_t w = 0; w < weights_.size(); ++w)
            parameters.push_back({weights_[w].name, first_[w].data(), nullptr, weights_[w].count, tuttiFloat32,
                                  tuttiDpSameType, 0, weights_[w].unit});
        tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
        config.mode = modes.at(options.mode);
        config.optimizer.kind = tuttiDpAdamW;
        config.optimizer.learningRate = options.rate;
        config.optimizer.weightDecay = 0.01;
        config.bucketBytes = 64 * 1024;  // so small a network would fit into one bucket
        config.firstBucketBytes = 16 * 1024;
        config.trace = !options.trace.empty();
        serves_only_ = options.mode == "ps-cpu" && rank_ == 0;
        if (options.mode == "ps-cpu") config.dedicated = 1;
        if (options.mode == "async") config.staleness = options.staleness;
        const bool one_rank = options.mode == "single" || options.mode == "dataparallel";
        parts_ = one_rank ? options.parts : 1;
        if (one_rank) config.microBatches = parts_;
        if (options.mode == "dataparallel") devices_ = std::make_unique<Devices>(parts_, shape_, text);
        sharded_ = config.mode == tuttiDpZero3;
        workers_ = ranks_ - (options.mode == "ps-cpu" ? 1 : 0);
        must(tuttiDpCreate(&dp_, parameters.data(), parameters.size(), &config, comm));
        const int deal = one_rank ? parts_ : workers_;
        if (deal < 1 || options.batch % deal != 0)
            throw std::runtime_error("a batch of " + std::to_string(options.batch) + " can't be dealt to " +
                                     std::to_string(deal) + " workers");
        deal_samples(deal);
    }
    ~Trainer() { tuttiDpDestroy(dp_); }
    Trainer(const Trainer&) = delete;

    /// One step; the mean loss of this rank's share.
    double step() {
        must(tuttiDpBegin(dp_));
        double loss = devices_ ? pass_on_devices() : 0;
        for (int p = 0; p < parts_ && !serves_only_ && !devices_; ++p) {
            must(tuttiDpNoSync(dp_, p + 1 < parts_));
            loss += pass(shape_, text_, samples_[static_cast<std::size_t>(p)].next(share_), owner(true)) / parts_;
        }
        must(tuttiDpSynchronize(dp_));
        must(tuttiDpStep(dp_));
        return loss;
    }

    /// Goes on with the survivors: how many steps are done. The samples are dealt anew; where the batch can't be, it is
    /// a little smaller.
    int move(tuttiComm_t comm) {
        must(tuttiDpMove(dp_, comm));
        must(tuttiCommUserRank(comm, &rank_));
        must(tuttiCommCount(comm, &ranks_));
        workers_ = ranks_;
        deal_samples(workers_);
        tuttiDpStatistics_t s;
        must(tuttiDpGetStatistics(dp_, &s));
        return static_cast<int>(s.steps);
    }

    /// The loss on samples that are the same for everybody, a thousand of them.
    double evaluate() {
        must(tuttiDpWait(dp_));
        std::vector<std::size_t> some;
        for (std::size_t i = 0; i < 1000; ++i) some.push_back(i * text_.samples() / 1000);
        return pass(shape_, text_, some, owner(false));
    }

    tuttiDp_t dp() const { return dp_; }
    bool serves_only() const { return serves_only_; }
    int workers() const { return workers_; }

  private:
    void deal_samples(int deal) {
        share_ = static_cast<std::size_t>(options_.batch / deal);
        samples_.clear();
        for (int p = 0; p < parts_; ++p) samples_.emplace_back(text_.samples(), deal, rank_ - (ranks_ - workers_) + p);
    }

    double pass_on_devices() {
        std::vector<std::size_t> batch;
        for (Samples& of_device : samples_)
            for (const std::size_t sample : of_device.next(share_)) batch.push_back(sample);
        const Owner here = owner(true);
        std::vector<tuttiDpParameter_t> parameters;
        for (std::size_t w = 0; w < weights_.size(); ++w)
            parameters.push_back({weights_[w].name, const_cast<float*>(here.values(w)), here.gradient(w),
                                  weights_[w].count, tuttiFloat32, tuttiDpSameType, 0, 0});
        const double loss = devices_->pass(parameters, batch);
        for (std::size_t w = 0; w < weights_.size(); ++w) here.ready(w);
        return loss;
    }

    Owner owner(bool learns) {
        Owner o;
        o.values = [this](std::size_t w) {
            void* at = nullptr;
            must(tuttiDpData(dp_, w, &at));
            return static_cast<const float*>(at);
        };
        if (learns) {
            o.gradient = [this](std::size_t w) {
                void* at = nullptr;
                must(tuttiDpGradient(dp_, w, &at));
                return static_cast<float*>(at);
            };
            o.ready = [this](std::size_t w) { must(tuttiDpGradReady(dp_, w)); };
        }
        o.enter = [this](int unit) {
            if (sharded_) must(tuttiDpGather(dp_, unit));
        };
        o.leave = [this](int unit) {
            if (sharded_) must(tuttiDpRelease(dp_, unit));
        };
        return o;
    }

    const Options& options_;
    const Text& text_;
    Shape shape_;
    std::vector<Weights> weights_;
    std::vector<std::vector<float>> first_;
    tuttiDp_t dp_ = nullptr;
    int rank_ = 0, ranks_ = 1, workers_ = 1, parts_ = 1;
    bool serves_only_ = false, sharded_ = false;
    std::unique_ptr<Devices> devices_;
    std::size_t share_ = 0;
    std::vector<Samples> samples_;
};

void say_progress(const Options& o, int step, double loss, double ms) {
    const bool live = isatty(STDERR_FILENO) != 0;
    if (o.quiet || (!live && step % 50 != 0 && step != o.steps)) return;
    std::fprintf(stderr, "%sstep %d of %d: loss %.4f, %.2f ms a step%s", live ? "\r" : "", step, o.steps, loss, ms,
                 live && step != o.steps ? "   " : "\n");
}

/// What --mode says of how near the others end.
std::string bound_of(const Options& o, int workers) {
    if (o.mode == "single") return "the reference";
    if (o.mode == "async") return "bound 0.2: gradients are up to " + std::to_string(o.staleness) + " steps old";
    const int parts = o.mode == "dataparallel" ? o.parts : workers;
    return "bound 0: the bits of --mode single --parts " + std::to_string(parts) + "; to other parts 0.01";
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

/// comm: replaced if --elastic goes on without a rank.
void train(const Options& o, tuttiComm_t& comm) {
    using Clock = std::chrono::steady_clock;
    const Text text = Text::read(o.text);
    int rank = 0, ranks = 1;
    must(tuttiCommUserRank(comm, &rank));
    must(tuttiCommCount(comm, &ranks));
    Trainer trainer(o, text, comm);
    if (!o.load.empty()) must(tuttiDpLoad(trainer.dp(), o.load.c_str()));
    std::vector<double> losses;
    const Clock::time_point start = Clock::now();
    for (int step = 1; step <= o.steps; ++step) {
        try {
            losses.push_back(trainer.step());
        } catch (const std::runtime_error&) {
            if (!o.elastic) throw;
            shrink(comm);
            must(tuttiCommUserRank(comm, &rank));
            must(tuttiCommCount(comm, &ranks));
            step = trainer.move(comm);
            losses.resize(static_cast<std::size_t>(step));
            continue;
        }
        const std::chrono::duration<double, std::milli> passed = Clock::now() - start;
        if (rank == 0 && !trainer.serves_only()) say_progress(o, step, losses.back(), passed.count() / step);
    }
    const double final_loss = trainer.evaluate();
    const std::chrono::duration<double, std::milli> passed = Clock::now() - start;
    if (!o.save.empty()) must(tuttiDpSave(trainer.dp(), o.save.c_str()));
    must(tuttiAllReduce(losses.data(), losses.data(), losses.size(), tuttiFloat64, tuttiSum, comm, nullptr));
    if (rank != 0) return;
    for (double& loss : losses) loss /= trainer.workers();
    say_statistics(trainer.dp(), o);
    std::printf("mode %s, %d ranks: final loss %.9g after %d steps, %.2f ms a step (%s)\n", o.mode.c_str(), ranks,
                final_loss, o.steps, passed.count() / std::max(1, o.steps), bound_of(o, trainer.workers()).c_str());
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
    std::vector<std::string> names;
    for (const auto& mode : modes) names.push_back(mode.first);
    CLI::App app("Trains a small network that guesses characters, data parallel.");
    app.add_option("--mode", o.mode, "how ranks work together")->check(CLI::IsMember(names))->capture_default_str();
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
    app.add_option("--save", o.save, "write a checkpoint at the end");
    app.add_option("--load", o.load, "begin with a checkpoint");
    app.add_flag("--elastic", o.elastic, "naive, bucketed: when a rank dies, the others go on");
    app.add_flag("--quiet", o.quiet, "no progress");
    CLI11_PARSE(app, count, words);
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
