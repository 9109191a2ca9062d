// Data parallelism apart from tuttiDp_t: one process that drives all devices, and parameter servers.
#include <tutti/ps.h>

#include <bit>
#include <deque>

#include "dp_training.hpp"

namespace dp_check {
namespace {

constexpr std::size_t weights = 4099, samples = 37;

std::vector<float> numbers(std::size_t count, int seed) {
    std::vector<float> all(count);
    for (std::size_t i = 0; i < count; ++i)
        all[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(seed)) % 101) / 64;
    return all;
}

std::vector<std::uint64_t> bits_of(const std::vector<float>& values) {
    std::vector<std::uint64_t> bits;
    for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
    return bits;
}

std::vector<float> fetched(const Place& place, const void* at, std::size_t count) {
    std::vector<float> values(count);
    place.get(values.data(), at, count * 4);
    return values;
}

/// Parameter "w", whose values and gradient lie there.
tuttiDpParameter_t parameter_of(void* values, void* gradient) {
    tuttiDpParameter_t parameter{};
    parameter.name = "w";
    parameter.data = values;
    parameter.grad = gradient;
    parameter.count = weights;
    parameter.type = tuttiFloat32;
    parameter.gradType = tuttiDpSameType;
    return parameter;
}

/// y = x * (the sum of some weights); the gradient of each weight is its number times the sum of x, on each device.
tuttiResult_t work(void* user, const tuttiDpReplica_t* r) {
    const Place& place = (*static_cast<const std::vector<Place>*>(user))[static_cast<std::size_t>(r->device)];
    const std::vector<float> w = fetched(place, r->values[0], weights), x = fetched(place, r->input, r->samples);
    std::vector<float> gradient = fetched(place, r->gradients[0], weights), y(r->samples);
    for (std::size_t s = 0; s < r->samples; ++s) {
        y[s] = x[s] * w[(r->firstSample + s) % weights];
        for (std::size_t i = 0; i < weights; ++i) gradient[i] += x[s] / static_cast<float>(i + 3);
    }
    place.put(r->output, y.data(), y.size() * 4);
    place.put(r->gradients[0], gradient.data(), gradient.size() * 4);
    return tuttiSuccess;
}

}  // namespace

Weights one_process(const std::vector<Place>& places) {
    std::vector<tuttiStream_t> streams;
    for (const Place& place : places) streams.push_back(place.stream);
    const Place& first = places[0];
    const auto w = first.allocate(weights * 4), gradient = first.allocate(weights * 4), x = first.allocate(samples * 4),
               y = first.allocate(samples * 4);
    first.put(w.get(), numbers(weights, 5).data(), weights * 4);
    first.put(x.get(), numbers(samples, 9).data(), samples * 4);
    const int count = static_cast<int>(places.size());
    tuttiUniqueId id;
    must(tuttiGetUniqueId(&id));
    std::deque<Comm> owned;
    must(tuttiGroupStart());
    for (int r = 0; r < count; ++r) owned.emplace_back(places[static_cast<std::size_t>(r)], count, id, r);
    must(tuttiGroupEnd());
    std::vector<tuttiComm_t> comms;
    for (const Comm& comm : owned) comms.push_back(comm.handle);
    const tuttiDpParameter_t parameter = parameter_of(w.get(), gradient.get());
    const tuttiDpBatch_t batch{samples, x.get(), 4, y.get(), 4};
    std::vector<Place> user = places;
    must(tuttiDpDataParallel(comms.data(), count, streams.data(), &parameter, 1, &batch, work, &user));
    return {bits_of(fetched(first, gradient.get(), weights)), bits_of(fetched(first, y.get(), samples))};
}

Weights pushed_and_pulled(const std::vector<Place>& places) {
    const int ranks = static_cast<int>(places.size());
    Weights sums(1);
    on_ranks(places, [&](int r, const tuttiUniqueId& id, std::barrier<>& all) {
        const Place& place = places[static_cast<std::size_t>(r)];
        const auto memory = place.allocate(weights * 4);
        all.arrive_and_wait();
        Comm comm(place, ranks, id, r);
        const tuttiPsKey_t key{"w", weights, tuttiFloat32, nullptr};
        tuttiPsConfig_t config = TUTTI_PS_CONFIG_INITIALIZER;
        config.partBytes = 4096;
        config.timeoutMs = 30000;
        config.stream = place.stream;
        tuttiPs_t ps = nullptr;
        must(tuttiPsCreate(&ps, &key, 1, &config, comm.handle));
        std::unique_ptr<tuttiPs, decltype(&tuttiPsDestroy)> owned(ps, tuttiPsDestroy);
        place.put(memory.get(), numbers(weights, r).data(), weights * 4);
        for (int round = 0; round < 4; ++round) {  // in the place's memory, and in the host's
            std::vector<float> values = fetched(place, memory.get(), weights);
            for (float& value : values) value /= 3;
            if (round % 2 == 1) must(tuttiPsPushPull(ps, 0, values.data(), values.data(), nullptr));
            place.put(memory.get(), values.data(), weights * 4);
            if (round % 2 == 0) must(tuttiPsPushPull(ps, 0, memory.get(), memory.get(), nullptr));
        }
        if (r == ranks - 1) sums[0] = bits_of(fetched(place, memory.get(), weights));
        owned.reset();
        comm.end();
        all.arrive_and_wait();
    });
    return sums;
}

Weights applied_on_arrival(const std::vector<Place>& places) {
    const int ranks = static_cast<int>(places.size());
    Weights all(1);
    on_ranks(places, [&](int r, const tuttiUniqueId& id, std::barrier<>& barrier) {
        const Place& place = places[static_cast<std::size_t>(r)];
        const auto w = place.allocate(weights * 4), g = place.allocate(weights * 4);
        barrier.arrive_and_wait();
        Comm comm(place, ranks, id, r);
        place.put(w.get(), numbers(weights, 5).data(), weights * 4);
        const tuttiDpParameter_t parameter = parameter_of(w.get(), g.get());
        Config config = TUTTI_DP_CONFIG_INITIALIZER;
        config.mode = tuttiDpShardedServer;
        config.onArrival = 1;
        config.staleness = 1;
        config.microBatches = 2;
        config.clipValue = 0.5;
        config.compression = tuttiDpFp16;
        config.optimizer.kind = tuttiDpSgd;
        config.optimizer.learningRate = 0.25;
        config.optimizer.weightDecay = 0;
        config.stream = place.stream;
        tuttiDp_t dp = nullptr;
        must(tuttiDpCreate(&dp, &parameter, 1, &config, comm.handle));
        std::unique_ptr<tuttiDp, decltype(&tuttiDpDestroy)> owned(dp, tuttiDpDestroy);
        for (int step = 0; step < 3; ++step) {
            must(tuttiDpBegin(dp));
            place.put(g.get(), numbers(weights, 7 * r + step).data(), weights * 4);
            must(tuttiDpGradReady(dp, 0));
            must(tuttiDpSynchronize(dp));
            must(tuttiDpStep(dp));
        }
        must(tuttiDpWait(dp));  // this rank's gradients have been applied
        barrier.arrive_and_wait();
        must(tuttiDpWait(dp));
        if (r == ranks - 1) all[0] = bits_of(fetched(place, w.get(), weights));
        barrier.arrive_and_wait();
        owned.reset();
        comm.end();
        barrier.arrive_and_wait();
    });
    return all;
}

}  // namespace dp_check
