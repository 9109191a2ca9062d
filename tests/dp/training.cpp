#include "dp/training.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "dp/numbers.hpp"
#include "gpu/world.hpp"
#include "harness/harness.hpp"

namespace tutti::harness {
namespace {

/// A number in [-0.5, 0.5) that depends on everything.
float noise(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15u ^ b * 0xbf58476d1ce4e5b9u ^ (c + 1) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return static_cast<float>(x >> 40) * 0x1p-24f - 0.5f;
}

/// Loss of element i of parameter p in a slice: 1/2 c (w - t)^2. Returns the gradient.
float gradient_of(int slice, std::size_t p, std::size_t i, float w, double& loss) {
    const auto s = static_cast<std::uint64_t>(slice);
    const float c = 1.0f + noise(s, p, i), off = w - noise(s + 1000, p, i);
    loss += 0.5 * c * off * off;
    return c * off;
}

using Memory = std::shared_ptr<std::byte>;

/// For a caller's values or gradients: the rank's GPU's if it has one. The emulated ones' can be read.
Memory memory_for(const Setup& s, int rank, std::size_t bytes) {
    if (s.gpus == nullptr || s.gpus->device(rank) < 0)
        return {static_cast<std::byte*>(std::calloc(bytes, 1)), [](std::byte* at) { std::free(at); }};
    EmulatedGpus& gpus = s.gpus->gpus();
    const int device = s.gpus->device(rank);
    return {gpus.allocate(device, bytes), [&gpus, device](std::byte* at) { gpus.free(device, at); }};
}

int dedicated_servers(const tuttiDpConfig_t& config) {
    if (config.dedicated != 1) return 0;
    return config.mode == tuttiDpShardedServer ? config.servers : 1;
}

/// One rank at work.
class Rank {
  public:
    Rank(const Setup& s, int rank, const tuttiUniqueId& id) : s_(s), rank_(rank) {
        if (s.gpus == nullptr) held_.comm = join(id, rank, s.ranks, s.reproducible);
        const tuttiComm_t comm = s.gpus != nullptr ? s.gpus->comm(rank) : held_.comm;
        tuttiDpConfig_t config = s.config;
        if (s.gpus != nullptr) config.stream = s.gpus->stream(rank);
        const std::size_t size = size_of(static_cast<DataType>(s.type));
        const std::size_t grad_size = size_of(grad_type());
        std::vector<tuttiDpParameter_t> parameters;
        for (std::size_t p = 0; p < s.counts.size(); ++p) {
            names_.push_back("w" + std::to_string(p));
            data_.push_back(memory_for(s, rank, s.counts[p] * size));
            grads_.push_back(memory_for(s, rank, s.counts[p] * grad_size));
            std::vector<float> start(s.counts[p]);
            for (std::size_t i = 0; i < start.size(); ++i) start[i] = noise(77, p, i);
            dp::convert(static_cast<DataType>(s.type), data_[p].get(), DataType::float32, start.data(), start.size());
        }
        for (std::size_t p = 0; p < s.counts.size(); ++p)
            parameters.push_back({names_[p].c_str(), initial(p), s.own_grad ? grads_[p].get() : nullptr, s.counts[p],
                                  s.type, s.grad_type, 0, static_cast<int>(p / 3)});
        must_succeed(tuttiDpCreate(&held_.dp, parameters.data(), parameters.size(), &config, comm), "create");
        if (!s.own_data && s.config.mode != tuttiDpZero3) {
            for (std::size_t p = 0; p < s.counts.size(); ++p) {
                void* const at = data_of<void>(held_.dp, p);
                settle();
                std::memcpy(at, data_[p].get(), s.counts[p] * size);
            }
            must_succeed(tuttiDpBroadcast(held_.dp, 0), "broadcast");
        }
        if (s.created) s.created(rank, held_.dp);
    }
    Rank(const Rank&) = delete;

    double iterate(int step) {
        const int first = dedicated_servers(s_.config), workers = s_.ranks - first;
        const bool several = s_.config.mode == tuttiDpShardedServer;
        const bool serves = first > 0 && (several ? rank_ < first : rank_ == std::max(0, s_.config.server));
        const int micro = s_.config.microBatches == TUTTI_UNDEF_INT ? 1 : s_.config.microBatches;
        if (s_.between) s_.between(rank_, step);
        must_succeed(tuttiDpBegin(held_.dp), "begin");
        double loss = 0;
        const int parts = s_.slices / workers / micro;  // of one pass
        for (int m = 0; m < micro && !serves; ++m) {
            must_succeed(tuttiDpNoSync(held_.dp, m + 1 < micro), "no_sync");
            const int begin = ((rank_ - first) * micro + m) * parts;
            pass(step, begin, begin + parts, loss);
        }
        end_iteration(held_.dp);
        if (s_.after) s_.after(rank_, step, held_.dp);
        return loss;
    }

    std::vector<std::vector<float>> weights() {
        must_succeed(tuttiDpWait(held_.dp), "wait");
        std::vector<std::vector<float>> all;
        for (std::size_t p = 0; p < s_.counts.size(); ++p) {
            use_unit(p, p);
            all.push_back(values(p));
        }
        use_unit(s_.counts.size(), 0);
        return all;
    }

    tuttiDpStatistics_t statistics() { return harness::statistics(held_.dp); }
    tuttiDpMemory_t memory() {
        tuttiDpMemory_t m{};
        must_succeed(tuttiDpGetMemory(held_.dp, &m), "memory");
        return m;
    }

  private:
    DataType grad_type() const {
        if (s_.config.fp32Gradients == 1 && !s_.own_grad) return DataType::float32;
        return static_cast<DataType>(s_.grad_type == tuttiDpSameType ? s_.type : s_.grad_type);
    }
    void* initial(std::size_t p) { return s_.own_data || s_.config.mode == tuttiDpZero3 ? data_[p].get() : nullptr; }
    /// What the layer has enqueued has been done.
    void settle() {
        if (s_.gpus != nullptr && s_.gpus->device(rank_) >= 0)
            s_.gpus->gpus().synchronize_stream(s_.gpus->stream(rank_));
    }

    std::vector<float> values(std::size_t p) {
        const void* const at = data_of<void>(held_.dp, p);
        settle();
        std::vector<float> w(s_.counts[p]);
        dp::convert(DataType::float32, w.data(), static_cast<DataType>(s_.type), at, w.size());
        return w;
    }

    /// The unit of the i-th parameter that is used is here; ZeRO-3: and no other.
    void use_unit(std::size_t i, std::size_t p) {
        const bool zero3 = s_.config.mode == tuttiDpZero3;
        if (!zero3 && s_.config.overlapParamGather != 1) return;
        const int unit = i < s_.counts.size() ? static_cast<int>(p / 3) : -1;
        if (unit == unit_) return;
        if (unit_ >= 0 && zero3) must_succeed(tuttiDpRelease(held_.dp, unit_), "release");
        if (unit >= 0) must_succeed(tuttiDpGather(held_.dp, unit), "gather");
        unit_ = unit;
    }

    /// Backward: from the last parameter to the first, or as setup.order says.
    void pass(int step, int begin, int end, double& loss) {
        const std::size_t count = s_.counts.size();
        double scale = 0;
        must_succeed(tuttiDpGetLossScale(held_.dp, &scale, nullptr), "scale");
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t p = s_.order ? s_.order(rank_, step, i) : count - 1 - i;
            use_unit(i, p);
            if (s_.skips && s_.skips(rank_, step, p)) continue;
            const std::vector<float> w = values(p);
            void* const at = gradient<void>(held_.dp, p);
            settle();
            std::vector<float> sum(w.size(), 0.0f);
            for (int slice = begin; slice < end; ++slice)
                for (std::size_t e = 0; e < w.size(); ++e) sum[e] += gradient_of(slice, p, e, w[e], loss);
            for (float& g : sum)  // the mean of this pass
                g = g / static_cast<float>(end - begin) * (s_.shrink * static_cast<float>(scale));
            if (s_.spoils && s_.spoils(rank_, step, p)) sum.back() = INFINITY;
            if (s_.made_elsewhere && (s_.config.zeroGrad == 0 || (p + static_cast<std::size_t>(rank_)) % 2 == 0)) {
                Memory& made = made_[p];
                if (made == nullptr) made = memory_for(s_, rank_, sum.size() * size_of(grad_type()));
                dp::convert(grad_type(), made.get(), DataType::float32, sum.data(), sum.size());
                must_succeed(tuttiDpGradReadyAt(held_.dp, p, made.get()), "ready elsewhere");
                continue;
            }
            const bool overwrite = s_.config.fp32Gradients == 1 && s_.own_grad;
            if (overwrite)
                dp::convert(grad_type(), at, DataType::float32, sum.data(), sum.size());
            else
                dp::add(grad_type(), at, DataType::float32, sum.data(), sum.size());
            must_succeed(tuttiDpGradReady(held_.dp, p), "ready");
        }
        use_unit(count, 0);
    }

    const Setup& s_;
    std::map<std::size_t, Memory> made_;  // by parameter
    int rank_;
    int unit_ = -1;
    std::vector<std::string> names_;
    std::vector<Memory> data_, grads_;
    Held held_;
};

}  // namespace

tuttiComm_t join(const tuttiUniqueId& id, int rank, int ranks, bool reproducible) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.reproducible = reproducible;
    config.timeoutMs = 20000;
    tuttiComm_t comm = nullptr;
    must_succeed(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config), "join");
    return comm;
}

Trained train(const Setup& setup) {
    const tuttiUniqueId id = new_id();
    Trained all;
    const auto ranks = static_cast<std::size_t>(setup.ranks);
    all.losses.assign(static_cast<std::size_t>(setup.steps), 0);
    all.statistics.resize(ranks);
    all.memory.resize(ranks);
    std::vector<std::vector<std::vector<float>>> weights(ranks);
    std::vector<std::vector<double>> losses(ranks);
    run(setup.ranks, [&](int r) {
        const auto k = static_cast<std::size_t>(r);
        Rank rank(setup, r, id);
        losses[k].resize(static_cast<std::size_t>(setup.first_step));
        for (int step = setup.first_step; step < setup.steps; ++step) losses[k].push_back(rank.iterate(step));
        weights[k] = rank.weights();
        all.statistics[k] = rank.statistics();
        all.memory[k] = rank.memory();
    });
    for (const std::vector<double>& mine : losses)
        for (std::size_t step = 0; step < mine.size(); ++step) all.losses[step] += mine[step] / setup.slices;
    for (const auto& w : weights) check(w == weights[0], "ranks have different weights");
    all.weights = weights[0];
    return all;
}

Trained train_alone(Setup setup) {
    const int micro = setup.config.microBatches == TUTTI_UNDEF_INT ? 1 : setup.config.microBatches;
    const int workers = setup.ranks - dedicated_servers(setup.config);
    tuttiDpConfig_t config = config_for(tuttiDpNaive);
    config.optimizer = setup.config.optimizer;
    config.wholeUpdates = setup.config.wholeUpdates;
    config.clipNorm = setup.config.clipNorm;
    config.clipValue = setup.config.clipValue;
    config.lossScale = setup.config.lossScale;
    config.lossScaleWindow = setup.config.lossScaleWindow;
    config.fp32Gradients = setup.config.fp32Gradients;
    config.microBatches = micro * workers;
    setup.config = config;
    setup.ranks = 1;
    setup.gpus = nullptr;
    return train(setup);
}

double difference(const Trained& a, const Trained& b) {
    double most = 0;
    for (std::size_t p = 0; p < a.weights.size(); ++p)
        for (std::size_t i = 0; i < a.weights[p].size(); ++i) {
            const double x = a.weights[p][i], y = b.weights[p][i];
            most = std::max(most, std::isfinite(x) ? std::fabs(x - y) / std::max(1.0, std::fabs(y)) : 1e30);
        }
    return most;
}

tuttiDpConfig_t config_for(tuttiDpMode_t mode, tuttiDpOptimizerKind_t optimizer) {
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.mode = mode;
    config.optimizer.kind = optimizer;
    config.optimizer.learningRate = 0.05;
    config.optimizer.weightDecay = 0.01;
    config.bucketBytes = 4096;
    config.firstBucketBytes = 256;
    return config;
}

}  // namespace tutti::harness
