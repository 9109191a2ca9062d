#include "trainer.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <stdexcept>
#include <thread>

#include "half.hpp"

namespace {

constexpr std::size_t evaluated = 1000;  // samples

const std::map<std::string, tuttiDpMode_t> modes = {
    {"single", tuttiDpNaive},        {"naive", tuttiDpNaive},        {"bucketed", tuttiDpBucketed},
    {"ps", tuttiDpServer},           {"ps-cpu", tuttiDpServer},      {"ps-sharded", tuttiDpShardedServer},
    {"async", tuttiDpShardedServer}, {"zero1", tuttiDpZero1},        {"zero2", tuttiDpZero2},
    {"zero3", tuttiDpZero3},         {"dataparallel", tuttiDpNaive}, {"async-arrival", tuttiDpShardedServer},
    {"push-pull", tuttiDpNaive},     {"all-gather", tuttiDpBucketed}};

}  // namespace

std::vector<std::string> mode_names() {
    std::vector<std::string> names;
    for (const auto& mode : modes) names.push_back(mode.first);
    return names;
}

void must(tuttiResult_t result) {
    if (result != tuttiSuccess) throw std::runtime_error(tuttiGetLastError(nullptr));
}

std::vector<std::size_t> Samples::next(std::size_t count) {
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

// ------------------------------------------------------------------------------------------------------------- devices

Devices::Devices(int count, const Shape& shape, const Text& text, GpuModel* first, std::size_t batch)
    : comms_(static_cast<std::size_t>(count)), shape_(shape), text_(text) {
    int gpus = 0;
    if (first != nullptr) {
        must(tuttiGetDeviceCount(&gpus));
        losses_ = std::make_unique<gpu::Memory<double>>(first->stream().device, batch);
    }
    tuttiUniqueId id;
    must(tuttiGetUniqueId(&id));
    must(tuttiGroupStart());
    for (int d = 0; d < count; ++d) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.reproducible = 1;
        if (first != nullptr) {
            config.device = (first->stream().device + d) % gpus;
            models_.push_back(d == 0 ? first
                                     : &own_models_.emplace_back(shape, text, gpu::make_stream(config.device), batch));
            streams_.push_back(models_.back()->stream().handle);
        }
        must(tuttiCommInitRankConfig(&comms_[static_cast<std::size_t>(d)], count, id, d, &config));
    }
    must(tuttiGroupEnd());
}

Devices::~Devices() {
    for (tuttiComm_t comm : comms_) tuttiCommDestroy(comm);
    for (const GpuModel& model : own_models_) gpu::destroy(model.stream());
}

double Devices::pass(const std::vector<tuttiDpParameter_t>& parameters, const std::vector<std::size_t>& samples) {
    std::vector<double> losses(samples.size());  // of each sample that of its device
    const bool on_gpus = !models_.empty();
    tuttiDpBatch_t batch{samples.size(), samples.data(), sizeof samples[0], losses.data(), sizeof losses[0]};
    if (on_gpus) {
        batch.input = models_[0]->bring(samples);
        batch.output = losses_->data();
    }
    must(tuttiDpDataParallel(comms_.data(), static_cast<int>(comms_.size()), on_gpus ? streams_.data() : nullptr,
                             parameters.data(), parameters.size(), &batch, work, this));
    if (on_gpus) gpu::download(models_[0]->stream(), losses.data(), losses_->data(), losses.size() * sizeof losses[0]);
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return sum / static_cast<double>(losses.size());
}

tuttiResult_t Devices::work(void* user, const tuttiDpReplica_t* replica) {
    const auto& self = *static_cast<Devices*>(user);
    Owner owner;
    owner.values = [&](std::size_t w) { return static_cast<const float*>(replica->values[w]); };
    owner.gradient = [&](std::size_t w) { return static_cast<float*>(replica->gradients[w]); };
    owner.ready = [](std::size_t) {};
    owner.enter = owner.leave = [](int) {};
    const auto* samples = static_cast<const std::size_t*>(replica->input);
    auto* const losses = static_cast<double*>(replica->output);
    try {
        if (!self.models_.empty()) {
            self.models_[static_cast<std::size_t>(replica->device)]->pass(samples, replica->samples, owner, losses,
                                                                          static_cast<int>(replica->samples));
        } else {
            const double loss =
                ::pass(self.shape_, self.text_, std::vector(samples, samples + replica->samples), owner);
            std::fill_n(losses, replica->samples, loss);
        }
    } catch (const std::exception&) {
        return tuttiSystemError;
    }
    return tuttiSuccess;
}

// ------------------------------------------------------------------------------------------------------------- trainer

/// What a rank on a GPU has besides. Passes run on one stream, and the layer works on another, so that gradients travel
/// beside the backward pass.
struct Trainer::OnGpu {
    OnGpu(int device, const Shape& shape, const Text& text, const Options& options)
        : passes(gpu::make_stream(device)),
          layer(gpu::make_stream(device)),
          model(shape, text, passes, std::max(evaluated, static_cast<std::size_t>(options.batch))),
          losses(device, static_cast<std::size_t>(options.steps * options.parts) + 1) {}
    ~OnGpu() {
        gpu::destroy(passes);
        gpu::destroy(layer);
    }
    OnGpu(const OnGpu&) = delete;

    const gpu::Stream passes, layer;
    GpuModel model;
    gpu::Memory<double> losses;  // of each part of each step; at the end: that of evaluate()
    std::deque<gpu::Memory<float>> values;
};

Trainer::Trainer(const Options& options, const Text& text, tuttiComm_t comm)
    : options_(options),
      text_(text),
      shape_{text.characters},
      weights_(weights_of(shape_)),
      losses_(static_cast<std::size_t>(options.steps)) {
    int device = TUTTI_DEVICE_CPU;
    must(tuttiCommUserRank(comm, &rank_));
    must(tuttiCommCount(comm, &ranks_));
    must(tuttiCommDevice(comm, &device));
    if (device != TUTTI_DEVICE_CPU) on_gpu_ = std::make_unique<OnGpu>(device, shape_, text, options);
    for (std::size_t w = 0; w < weights_.size(); ++w) first_.push_back(first_values(weights_, w));
    std::vector<tuttiDpParameter_t> parameters;
    for (std::size_t w = 0; w < weights_.size(); ++w) {
        float* const values =
            on_gpu_ ? on_gpu_->values.emplace_back(on_gpu_->layer, first_[w]).data() : first_[w].data();
        if (options.fp16) {  // over the first half of the same memory
            auto* const halves = reinterpret_cast<std::uint16_t*>(values);
            for (std::size_t i = 0; i < weights_[w].count; ++i) halves[i] = to_half(values[i]);
            values_.emplace_back(weights_[w].count);
            gradients_.emplace_back(weights_[w].count);
        }
        parameters.push_back({weights_[w].name,
                              values,
                              nullptr,
                              weights_[w].count,
                              options.fp16 ? tuttiFloat16 : tuttiFloat32,
                              tuttiDpSameType,
                              0,
                              weights_[w].unit,
                              0,
                              {},
                              tuttiDpTrained});
        if (const std::size_t columns = weights_[w].columns; columns > 1) {  // checkpoints say so, and Muon asks
            parameters.back().dims = 2;
            parameters.back().shape[0] = weights_[w].count / columns;
            parameters.back().shape[1] = columns;
        }
    }
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.mode = modes.at(options.mode);
    config.optimizer.kind = options.optimizer == "lamb" ? tuttiDpLamb : tuttiDpAdamW;
    const tuttiDpGroup_t groups[] = {{1, 0.01, 0, 0}, {0.15, 0.01, 1, 0}};  // of Muon, and of AdamW beside it
    if (options.optimizer == "muon") {
        config.optimizer.kind = tuttiDpMuon;
        config.optimizer.momentum = 0.95;
        config.groups = groups;
        config.groupCount = 2;
        for (tuttiDpParameter_t& p : parameters) p.group = p.unit == 0 || p.unit == 3;  // the first layer and the last
    }
    config.optimizer.learningRate = options.rate;
    config.optimizer.weightDecay = 0.01;
    config.bucketBytes = 64 * 1024;  // so small a network would fit into one bucket
    config.firstBucketBytes = 16 * 1024;
    config.trace = !options.trace.empty();
    if (options.fp16) config.lossScale = 65536;
    if (on_gpu_) config.stream = on_gpu_->layer.handle;
    config.elastic = options.elastic ? 1 : 0;
    if (options.uneven) config.join = TUTTI_DP_JOIN_ALL;
    serves_only_ = rank_ < options.dedicated_servers();
    const bool push_pull = options.mode == "push-pull";
    if (!push_pull) {
        if (options.dedicated_servers() > 0) config.dedicated = 1;
        if (options.servers > 0) config.servers = options.servers;
        if (options.mode == "ps" && options.servers > 1) config.mode = tuttiDpShardedServer;
    }
    if (options.mode == "async" || options.on_arrival()) config.staleness = options.staleness;
    if (options.on_arrival()) config.onArrival = 1;
    if (options.group_ranks != 0) {
        if (options.group_ranks > 0 && options.join.empty() && options.groups * options.group_ranks != ranks_)
            throw std::runtime_error("--hsdp is " + std::to_string(options.groups) + "x" +
                                     std::to_string(options.group_ranks) + ", and there are " + std::to_string(ranks_) +
                                     " ranks");
        config.shardRanks = options.group_ranks;
    }
    if (options.mode == "all-gather") {
        config.compression = tuttiDpAllGather;
        config.bucketBytes = config.firstBucketBytes = std::size_t{1} << 20;  // one bucket
    }
    const bool one_rank = options.mode == "single" || options.mode == "dataparallel";
    parts_ = one_rank ? options.parts : 1;
    if (one_rank) config.microBatches = parts_;
    if (options.mode == "dataparallel")
        devices_ = std::make_unique<Devices>(parts_, shape_, text, on_gpu_ ? &on_gpu_->model : nullptr,
                                             static_cast<std::size_t>(options.batch));
    sharded_ = config.mode == tuttiDpZero3;
    passing_gradients_ = sharded_ || config.mode == tuttiDpZero2 || options.mode == "async";
    workers_ = ranks_ - options.dedicated_servers();
    if (push_pull) push_and_pull(parameters, comm);
    must(tuttiDpCreate(&dp_, parameters.data(), parameters.size(), &config, push_pull ? alone_ : comm));
    if (options.slow_rank >= ranks_)
        throw std::runtime_error("--slow-rank is " + std::to_string(options.slow_rank) + ", and there are " +
                                 std::to_string(ranks_) + " ranks");
    const int deal = one_rank ? parts_ : workers_;
    if (deal < 1 || options.batch % deal != 0)
        throw std::runtime_error("a batch of " + std::to_string(options.batch) + " can't be dealt to " +
                                 std::to_string(deal) + " workers");
    deal_samples(deal);
}

Trainer::~Trainer() {
    tuttiDpDestroy(dp_);  // dedicated servers: when all workers have done the same
    if (ps_ != nullptr) tuttiPsDestroy(ps_);
    if (alone_ != nullptr) tuttiCommDestroy(alone_);
}

void Trainer::push_and_pull(const std::vector<tuttiDpParameter_t>& parameters, tuttiComm_t comm) {
    std::vector<tuttiPsKey_t> keys;
    for (const tuttiDpParameter_t& p : parameters) keys.push_back({p.name, p.count, p.type, nullptr});
    tuttiPsConfig_t config = TUTTI_PS_CONFIG_INITIALIZER;
    config.servers = options_.servers;
    config.dedicated = options_.dedicated ? 1 : 0;
    config.average = 1;
    if (on_gpu_) config.stream = on_gpu_->layer.handle;
    must(tuttiPsCreate(&ps_, keys.data(), keys.size(), &config, comm));
    must(tuttiCommSplit(comm, rank_, 0, &alone_, nullptr));
    sums_.resize(keys.size());
}

void Trainer::layer_follows() const {
    if (on_gpu_) gpu::follow(on_gpu_->layer, on_gpu_->passes);
}

void Trainer::passes_follow() const {
    if (on_gpu_) gpu::follow(on_gpu_->passes, on_gpu_->layer);
}

bool Trainer::has_batch(int step) const {
    return !serves_only_ && step <= options_.batches_of(rank_ - first_worker(), workers_);
}

void Trainer::join() {
    must(tuttiDpJoin(dp_));
}

void Trainer::step(int number) {
    if (ps_ != nullptr && serves_only_) return;  // its threads serve
    must(tuttiDpBegin(dp_));
    passes_follow();
    const auto began = std::chrono::steady_clock::now();
    double loss = devices_ ? pass_on_devices() : 0;
    int parts = parts_;  // that have a batch
    while (parts > 1 && number > options_.batches_of(parts - 1, parts_)) --parts;
    for (int p = 0; p < parts && !serves_only_ && !devices_; ++p) {
        must(tuttiDpNoSync(dp_, p + 1 < parts));
        const std::vector<std::size_t> samples = samples_[static_cast<std::size_t>(p)].next(share_);
        if (on_gpu_)
            on_gpu_->model.pass(on_gpu_->model.bring(samples), samples.size(), owner(true),
                                on_gpu_->losses.data() + (number - 1) * parts_ + p);
        else
            loss += pass(shape_, text_, samples, owner(true)) / parts_;
    }
    if (rank_ == options_.slow_rank)  // three times as long
        std::this_thread::sleep_for(2 * (std::chrono::steady_clock::now() - began));
    losses_.at(static_cast<std::size_t>(number - 1)) = loss;
    for (std::size_t w = 0; w < sums_.size(); ++w) {
        must(tuttiPsWait(ps_, sums_[w]));
        must(tuttiDpGradReady(dp_, w));
    }
    must(tuttiDpSynchronize(dp_));
    must(tuttiDpStep(dp_));
    seen_ += share_ * samples_.size() * static_cast<std::size_t>(workers_);
}

void Trainer::save(const std::string& path) {
    if (ps_ != nullptr && rank_ != first_worker()) return;  // all have the same
    must(tuttiDpSetNote(dp_, "samples", std::to_string(seen_).c_str()));
    must(tuttiDpSave(dp_, path.c_str()));
}

void Trainer::load(const std::string& path) {
    char samples[32] = "";
    must(tuttiDpLoad(dp_, path.c_str()));
    must(tuttiDpGetNote(dp_, "samples", samples, sizeof samples));
    seen_ = std::stoull(samples);
    for (Samples& of_part : samples_) of_part.skip(seen_ / static_cast<std::size_t>(workers_) / samples_.size());
}

double Trainer::loss(int step) {
    fetch_losses(step, 1);
    return losses_.at(static_cast<std::size_t>(step - 1));
}

const std::vector<double>& Trainer::losses() {
    fetch_losses(1, options_.steps);
    return losses_;
}

void Trainer::fetch_losses(int first, int count) {
    if (!on_gpu_ || devices_ || count == 0) return;
    std::vector<double> parts(static_cast<std::size_t>(count * parts_));
    gpu::download(on_gpu_->passes, parts.data(), on_gpu_->losses.data() + (first - 1) * parts_,
                  parts.size() * sizeof parts[0]);
    for (int i = 0; i < count; ++i) {
        double loss = 0;
        for (int p = 0; p < parts_; ++p) loss += parts[static_cast<std::size_t>(i * parts_ + p)] / parts_;
        losses_.at(static_cast<std::size_t>(first - 1 + i)) = loss;
    }
}

int Trainer::move(tuttiComm_t comm) {
    must(tuttiDpMove(dp_, comm));
    must(tuttiCommUserRank(comm, &rank_));
    must(tuttiCommCount(comm, &ranks_));
    workers_ = ranks_;
    deal_samples(workers_);
    tuttiDpStatistics_t s;
    must(tuttiDpGetStatistics(dp_, &s));
    seen_ = static_cast<std::size_t>(s.steps) * share_ * static_cast<std::size_t>(workers_);
    for (Samples& its : samples_) its.skip(seen_ / static_cast<std::size_t>(workers_) / samples_.size());
    return static_cast<int>(s.steps);
}

double Trainer::evaluate() {
    must(tuttiDpWait(dp_));
    passes_follow();
    std::vector<std::size_t> some;
    for (std::size_t i = 0; i < evaluated; ++i) some.push_back(i * text_.samples() / evaluated);
    if (!on_gpu_) return pass(shape_, text_, some, owner(false));
    double* const there = on_gpu_->losses.data() + on_gpu_->losses.count() - 1;
    on_gpu_->model.pass(on_gpu_->model.bring(some), some.size(), owner(false), there);
    double loss = 0;
    gpu::download(on_gpu_->passes, &loss, there, sizeof loss);
    return loss;
}

void Trainer::deal_samples(int deal) {
    share_ = static_cast<std::size_t>(options_.batch / deal);
    samples_.clear();
    for (int p = 0; p < parts_; ++p) samples_.emplace_back(text_.samples(), deal, rank_ - (ranks_ - workers_) + p);
}

double Trainer::pass_on_devices() {
    std::vector<std::size_t> batch;
    for (Samples& of_device : samples_)
        for (const std::size_t sample : of_device.next(share_)) batch.push_back(sample);
    const Owner here = owner(true);
    std::vector<tuttiDpParameter_t> parameters;
    for (std::size_t w = 0; w < weights_.size(); ++w)
        parameters.push_back({weights_[w].name,
                              const_cast<float*>(here.values(w)),
                              here.gradient(w),
                              weights_[w].count,
                              tuttiFloat32,
                              tuttiDpSameType,
                              0,
                              0,
                              0,
                              {},
                              tuttiDpTrained});
    const double loss = devices_->pass(parameters, batch);
    for (std::size_t w = 0; w < weights_.size(); ++w) here.ready(w);
    return loss;
}

Owner Trainer::owner(bool learns) {
    if (options_.fp16) return owner_of_halves(learns);
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
            if (passing_gradients_) passes_follow();  // others stay, and were zeroed in Begin
            return static_cast<float*>(at);
        };
        o.ready = [this](std::size_t w) {
            layer_follows();
            if (ps_ != nullptr) {
                void* at = nullptr;
                must(tuttiDpGradient(dp_, w, &at));
                return must(tuttiPsPushPull(ps_, w, at, at, &sums_[w]));
            }
            must(tuttiDpGradReady(dp_, w));
        };
    }
    o.enter = [this](int unit) {
        if (!sharded_) return;
        must(tuttiDpGather(dp_, unit));
        passes_follow();
    };
    o.leave = [this](int unit) {
        if (!sharded_) return;
        layer_follows();
        must(tuttiDpRelease(dp_, unit));
    };
    return o;
}

/// The layer has float16, and the loss is scaled; passes work in fp32.
Owner Trainer::owner_of_halves(bool learns) {
    Owner o;
    o.values = [this](std::size_t w) {
        void* at = nullptr;
        must(tuttiDpData(dp_, w, &at));
        for (std::size_t i = 0; i < weights_[w].count; ++i)
            values_[w][i] = from_half(static_cast<const std::uint16_t*>(at)[i]);
        return static_cast<const float*>(values_[w].data());
    };
    if (learns) {
        o.gradient = [this](std::size_t w) {
            std::ranges::fill(gradients_[w], 0.0f);
            return gradients_[w].data();
        };
        o.ready = [this](std::size_t w) {
            double scale = 1;
            void* at = nullptr;
            must(tuttiDpGetLossScale(dp_, &scale, nullptr));
            must(tuttiDpGradient(dp_, w, &at));
            auto* const halves = static_cast<std::uint16_t*>(at);
            for (std::size_t i = 0; i < weights_[w].count; ++i)
                halves[i] = to_half(from_half(halves[i]) + gradients_[w][i] * static_cast<float>(scale));
            must(tuttiDpGradReady(dp_, w));
        };
    }
    o.enter = [this](int unit) {
        if (sharded_) must(tuttiDpGather(dp_, unit));
    };
    o.leave = [this](int unit) {
        if (sharded_) must(tuttiDpRelease(dp_, unit));
    };
    return o;
}
