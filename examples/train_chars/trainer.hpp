// A rank that trains the network of model.hpp with the layer of tutti/dp.h, on a CPU or a GPU.
#pragma once

#include <tutti/dp.h>
#include <tutti/ps.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "gpu_model.hpp"
#include "model.hpp"

struct Options {
    std::string mode = "bucketed", optimizer = "adamw", device = "cpu", text = TRAIN_TEXT, curve, trace, save, load,
                rendezvous, join;
    int steps = 300, batch = 96, parts = 4, staleness = 2, servers = 0, slow_rank = -1, save_every = 0;
    int groups = 1, group_ranks = 0;  // --hsdp; 0: it was not given
    double rate = 0.003;
    bool quiet = false, elastic = false, fp16 = false, dedicated = false, uneven = false;

    bool on_arrival() const { return mode == "async-arrival"; }
    /// --uneven: how many of the steps a worker, or a part of --mode single, has a batch for.
    int batches_of(int worker, int workers) const { return uneven ? steps - steps * worker / (2 * workers) : steps; }
    /// Ranks that serve and do not work: the first ones.
    int dedicated_servers() const { return mode == "ps-cpu" ? 1 : dedicated ? std::max(1, servers) : 0; }
};

/// The values of --mode.
std::vector<std::string> mode_names();

/// Throws what Tutti says of a call that failed.
void must(tuttiResult_t result);

/// The rank's samples of every step, in order: epoch after epoch.
class Samples {
  public:
    Samples(std::size_t length, int ranks, int rank) : sampler_{length, ranks, rank, 1, 1, 1, 0} {}
    std::vector<std::size_t> next(std::size_t count);
    /// So many samples were had before.
    void skip(std::size_t count) { next(count); }

  private:
    tuttiDpSampler_t sampler_;
    std::vector<std::size_t> order_;
    std::size_t at_ = 0;
};

/// --mode dataparallel: as many devices as options.parts says, in this process (parts of its CPU, or GPUs, which may be
/// one GPU several times), as PyTorch's DataParallel. Device 0 has the values and the gradients.
class Devices {
  public:
    /// first: the model and the stream of device 0, if devices are GPUs; batch: samples of a step.
    Devices(int count, const Shape& shape, const Text& text, GpuModel* first, std::size_t batch);
    ~Devices();
    Devices(const Devices&) = delete;

    /// The mean loss of these samples. Gradients: those of the devices' mean losses, added up.
    double pass(const std::vector<tuttiDpParameter_t>& parameters, const std::vector<std::size_t>& samples);

  private:
    static tuttiResult_t work(void* user, const tuttiDpReplica_t* replica);

    std::vector<tuttiComm_t> comms_;
    Shape shape_;
    const Text& text_;
    // On GPUs:
    std::vector<GpuModel*> models_;
    std::deque<GpuModel> own_models_;
    std::vector<tuttiStream_t> streams_;
    std::unique_ptr<gpu::Memory<double>> losses_;  // by sample
};

/// A rank with its network, on the device of its communicator.
class Trainer {
  public:
    Trainer(const Options& options, const Text& text, tuttiComm_t comm);
    ~Trainer();
    Trainer(const Trainer&) = delete;

    /// --uneven: whether this rank has a batch for it.
    bool has_batch(int step) const;
    /// --uneven: none are left. Returns when all ranks have come here.
    void join();
    /// From 1 on. On a GPU it may return before the step is done.
    void step(int number);
    /// The mean loss of this rank's share in a step, in all of them. Waits for a GPU.
    double loss(int step);
    const std::vector<double>& losses();

    /// Goes on with these ranks: how many steps are done. The samples that follow are dealt anew, the same ones that
    /// any number of ranks would have had; where a batch can't be dealt, it is a little smaller.
    int move(tuttiComm_t comm);

    /// A checkpoint, with the position in the samples.
    void save(const std::string& path);
    void load(const std::string& path);

    /// The loss on samples that are the same for everybody, a thousand of them.
    double evaluate();

    tuttiDp_t dp() const { return dp_; }
    bool serves_only() const { return serves_only_; }
    int workers() const { return workers_; }
    int first_worker() const { return ranks_ - workers_; }

  private:
    struct OnGpu;

    void deal_samples(int deal);
    void push_and_pull(const std::vector<tuttiDpParameter_t>& parameters, tuttiComm_t comm);
    void fetch_losses(int first, int count);  // from a GPU, of these steps
    double pass_on_devices();
    Owner owner(bool learns);
    Owner owner_of_halves(bool learns);
    // On a GPU: what the layer does next comes after what the passes have enqueued; the other way round.
    void layer_follows() const;
    void passes_follow() const;

    const Options& options_;
    const Text& text_;
    Shape shape_;
    std::vector<Weights> weights_;
    std::vector<std::vector<float>> first_;
    std::vector<double> losses_;     // of every step; those of a GPU when they have been asked for
    std::unique_ptr<OnGpu> on_gpu_;  // nullptr on a CPU
    tuttiDp_t dp_ = nullptr;
    int rank_ = 0, ranks_ = 1, workers_ = 1, parts_ = 1;
    std::vector<std::vector<float>> values_, gradients_;  // --fp16: what passes work on
    bool serves_only_ = false, sharded_ = false, passing_gradients_ = false;
    // --mode push-pull: servers sum, and a layer of this rank alone updates.
    tuttiPs_t ps_ = nullptr;
    tuttiComm_t alone_ = nullptr;
    std::vector<tuttiPsRequest_t> sums_;  // by parameter
    std::unique_ptr<Devices> devices_;
    std::size_t share_ = 0;
    std::size_t seen_ = 0;  // samples of all ranks, in all steps
    std::vector<Samples> samples_;
};
