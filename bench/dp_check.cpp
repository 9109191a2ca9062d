// dp_check: the data-parallel layer on GPUs trains to the bits of the layer on CPUs, in every mode. Ranks are threads;
// those on GPUs share the devices that there are. In some cases rank 0 is on a CPU, and the others on GPUs.
#include <tutti/dp.h>
#include <tutti/tutti.h>

#include <CLI/CLI.hpp>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cuda.hpp"

namespace {

using Weights = std::vector<std::vector<std::uint32_t>>;  // by parameter: each one's bits

constexpr std::size_t counts[] = {1, 7, 40001, 3, 250000};
constexpr std::size_t parameters = std::size(counts);
constexpr int steps = 3, host = -1;

void must(tuttiResult_t result) {
    if (result != tuttiSuccess) throw std::runtime_error(tuttiGetLastError(nullptr));
}

/// What a rank trains on.
struct Place {
    int device = host;
    void* stream = nullptr;

    void settle() const {
        while (device != host && !perf::cuda::idle(device, stream)) std::this_thread::yield();
    }
    void get(void* to, const void* from, std::size_t bytes) const {
        settle();
        if (device == host)
            std::memcpy(to, from, bytes);
        else
            perf::cuda::download(device, to, static_cast<const std::byte*>(from), bytes);
    }
    void put(void* to, const void* from, std::size_t bytes) const {
        settle();
        if (device == host)
            std::memcpy(to, from, bytes);
        else
            perf::cuda::upload(device, static_cast<std::byte*>(to), from, bytes);
    }
};

struct Case {
    const char* name;
    tuttiDpMode_t mode;
    tuttiDpOptimizerKind_t optimizer;
    tuttiDataType_t type;
    void (*more)(tuttiDpConfig_t& config) = nullptr;
    bool cpu_first = false;  // rank 0 is on a CPU
    bool moves = false;      // the layer goes on with another communicator after the first step
};

std::size_t size_of(tuttiDataType_t type) {
    return type == tuttiBfloat16 ? 2 : 4;
}

/// bfloat16 is the upper half of a float.
std::vector<std::byte> as_type(tuttiDataType_t type, const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * size_of(type));
    for (std::size_t i = 0; i < values.size(); ++i)
        std::memcpy(bytes.data() + i * size_of(type),
                    reinterpret_cast<const std::byte*>(&values[i]) + 4 - size_of(type), size_of(type));
    return bytes;
}

std::uint32_t bits_of(tuttiDataType_t type, const std::byte* values, std::size_t i) {
    std::uint32_t bits = 0;
    std::memcpy(reinterpret_cast<std::byte*>(&bits) + 4 - size_of(type), values + i * size_of(type), size_of(type));
    return bits;
}

/// Each rank pulls every weight towards a number of its own.
class Rank {
  public:
    Rank(const Case& c, tuttiComm_t comm, int rank, const Place& place)
        : case_(c), comm_(comm), rank_(rank), place_(place) {
        tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
        config.mode = c.mode;
        config.optimizer.kind = c.optimizer;
        config.optimizer.learningRate = 0.01;
        config.optimizer.weightDecay = 0.1;
        config.clipNorm = c.optimizer == tuttiDpMomentum ? 1 : 0;
        config.bucketBytes = 256 * 1024;
        config.stream = place.stream;
        if (c.more != nullptr) c.more(config);
        serves_only_ = config.dedicated == 1 && rank == 0;
        const char* const names[parameters] = {"a", "b", "c", "d", "e"};
        std::vector<tuttiDpParameter_t> all;
        for (std::size_t p = 0; p < parameters; ++p)
            all.push_back({names[p],
                           nullptr,
                           nullptr,
                           counts[p],
                           c.type,
                           tuttiDpSameType,
                           0,
                           static_cast<int>(p / 2),
                           0,
                           {},
                           tuttiDpTrained});
        must(tuttiDpCreate(&dp_, all.data(), all.size(), &config, comm));
    }
    ~Rank() {
        tuttiDpDestroy(dp_);
        if (next_ != nullptr) tuttiCommDestroy(next_);
    }
    Rank(const Rank&) = delete;

    void step(int number) {
        must(tuttiDpBegin(dp_));
        for (std::size_t p = parameters; p-- > 0 && !serves_only_;) {
            const std::vector<std::byte> values = read(p);
            std::vector<float> gradient(counts[p]);
            for (std::size_t i = 0; i < counts[p]; ++i) {
                float w;
                const std::uint32_t bits = bits_of(case_.type, values.data(), i);
                std::memcpy(&w, &bits, sizeof w);
                gradient[i] =
                    w - static_cast<float>((i * 37 + p * 11 + static_cast<std::size_t>(rank_ + number)) % 101) / 64;
            }
            void* at = nullptr;
            must(tuttiDpGradient(dp_, p, &at));
            const std::vector<std::byte> written = as_type(case_.type, gradient);
            place_.put(at, written.data(), written.size());
            must(tuttiDpGradReady(dp_, p));
        }
        must(tuttiDpSynchronize(dp_));
        must(tuttiDpStep(dp_));
        if (!case_.moves || number > 0) return;
        must(tuttiCommSplit(comm_, 0, rank_, &next_, nullptr));
        must(tuttiDpMove(dp_, next_));
    }

    Weights weights() {
        must(tuttiDpWait(dp_));
        Weights all(parameters);
        for (std::size_t p = 0; p < parameters; ++p) {
            const std::vector<std::byte> values = read(p);
            for (std::size_t i = 0; i < counts[p]; ++i) all[p].push_back(bits_of(case_.type, values.data(), i));
        }
        return all;
    }

  private:
    std::vector<std::byte> read(std::size_t p) {
        const int unit = static_cast<int>(p / 2);
        const bool gathers = case_.mode == tuttiDpZero3;
        if (gathers) must(tuttiDpGather(dp_, unit));
        void* at = nullptr;
        must(tuttiDpData(dp_, p, &at));
        std::vector<std::byte> values(counts[p] * size_of(case_.type));
        place_.get(values.data(), at, values.size());
        if (gathers) must(tuttiDpRelease(dp_, unit));
        return values;
    }

    const Case& case_;
    tuttiComm_t comm_, next_ = nullptr;
    int rank_;
    bool serves_only_ = false;
    Place place_;
    tuttiDp_t dp_ = nullptr;
};

/// The last rank's weights after some steps.
Weights train(const Case& c, int ranks, const std::vector<Place>& places) {
    tuttiUniqueId id;
    must(tuttiGetUniqueId(&id));
    Weights weights;
    std::vector<std::thread> threads;
    std::vector<std::string> failures(static_cast<std::size_t>(ranks));
    // Memory of GPUs is taken and freed while no kernel there waits for another rank: that may wait for all kernels.
    std::barrier all(ranks);
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            const auto k = static_cast<std::size_t>(r);
            try {
                tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
                config.reproducible = 1;
                config.device = places[k].device;
                config.timeoutMs = 30000;
                tuttiComm_t comm = nullptr;
                must(tuttiCommInitRankConfig(&comm, ranks, id, r, &config));
                {
                    Rank rank(c, comm, r, places[k]);
                    all.arrive_and_wait();
                    for (int step = 0; step < steps; ++step) rank.step(step);
                    Weights mine = rank.weights();
                    if (r == ranks - 1) weights = std::move(mine);
                    all.arrive_and_wait();
                }
                must(tuttiCommDestroy(comm));
            } catch (const std::exception& error) {
                failures[k] = error.what();
                all.arrive_and_drop();
            }
        });
    for (std::thread& t : threads) t.join();
    for (const std::string& text : failures)
        if (!text.empty()) throw std::runtime_error(text);
    return weights;
}

/// How many weights differ.
std::size_t differences(const Weights& a, const Weights& b) {
    std::size_t count = 0;
    for (std::size_t p = 0; p < parameters; ++p)
        for (std::size_t i = 0; i < counts[p]; ++i) count += a[p][i] != b[p][i];
    return count;
}

using Config = tuttiDpConfig_t;

void offloaded(Config& c) {
    c.offload = 1;
}
void hierarchical(Config& c) {
    c.shardRanks = c.hierarchical = 1;
}
void dedicated(Config& c) {
    c.dedicated = 1;
}
/// Parameters that are exactly one step old: the same bits from run to run.
void late(Config& c) {
    c.staleness = c.exactDelay = 1;
}

template <tuttiDpCompression_t kind>
void compressed(Config& c) {
    c.compression = kind;
    c.topK = 0.1;
}

tuttiResult_t own_reduction(void*, const tuttiDpBucket_t* b, tuttiComm_t comm) {
    return tuttiAllReduce(b->data, b->data, b->count, b->type, tuttiAvg, comm, b->stream);
}

constexpr auto f32 = tuttiFloat32, bf16 = tuttiBfloat16;
constexpr bool cpu_first = true, moves = true;

const Case cases[] = {
    {"naive, SGD", tuttiDpNaive, tuttiDpSgd, f32},
    {"bucketed, clipped momentum", tuttiDpBucketed, tuttiDpMomentum, f32},
    {"bucketed, Adam, bfloat16", tuttiDpBucketed, tuttiDpAdam, bf16},
    {"server, AdamW", tuttiDpServer, tuttiDpAdamW, f32},
    {"sharded, AdamW", tuttiDpShardedServer, tuttiDpAdamW, f32},
    {"ZeRO-1, AdamW, bfloat16", tuttiDpZero1, tuttiDpAdamW, bf16},
    {"ZeRO-2, AdamW", tuttiDpZero2, tuttiDpAdamW, f32},
    {"ZeRO-3, AdamW", tuttiDpZero3, tuttiDpAdamW, f32},
    {"ZeRO-3 in groups, AdamW", tuttiDpZero3, tuttiDpAdamW, f32, [](Config& c) { c.shardRanks = 1; }},
    {"ZeRO-2 in groups, first each group", tuttiDpZero2, tuttiDpAdamW, bf16, hierarchical},
    {"ZeRO-1, AdamW, bfloat16, offloaded", tuttiDpZero1, tuttiDpAdamW, bf16, offloaded},
    {"ZeRO-3, AdamW, offloaded", tuttiDpZero3, tuttiDpAdamW, f32, offloaded},
    {"a CPU serves GPUs, AdamW", tuttiDpServer, tuttiDpAdamW, f32, dedicated, cpu_first},
    {"a CPU serves and works, bfloat16", tuttiDpServer, tuttiDpAdam, bf16, nullptr, cpu_first},
    {"bucketed, a CPU among GPUs", tuttiDpBucketed, tuttiDpMomentum, f32, nullptr, cpu_first},
    {"fp16 on the way", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpFp16>},
    {"bf16 on the way", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpBf16>},
    {"fp8 on the way, scaled", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpFp8>},
    {"the largest tenth on the way", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpTopK>},
    {"PowerSGD", tuttiDpBucketed, tuttiDpSgd, f32, compressed<tuttiDpPowerSgd>},
    {"a hook", tuttiDpBucketed, tuttiDpSgd, f32, [](Config& c) { c.hook = own_reduction; }},
    {"asynchronous without delay", tuttiDpShardedServer, tuttiDpAdamW, f32, [](Config& c) { c.staleness = 0; }},
    {"asynchronous, delay-1, bfloat16", tuttiDpServer, tuttiDpAdamW, bf16, late},
    {"asynchronous, delay-1, a CPU serves", tuttiDpServer, tuttiDpAdamW, f32, late, cpu_first},
    {"bucketed, moved", tuttiDpBucketed, tuttiDpAdam, f32, [](Config& c) { c.elastic = 1; }, false, moves},
    {"ZeRO-3, moved", tuttiDpZero3, tuttiDpAdam, bf16, [](Config& c) { c.elastic = 1; }, false, moves},
};

}  // namespace

int main(int count, char** words) {
    int ranks = 2;
    std::string device = "cuda";
    CLI::App app("The data-parallel layer on GPUs trains to the bits of the layer on CPUs.");
    app.add_option("--ranks", ranks)->check(CLI::Range(1, 64))->capture_default_str();
    app.add_option("--device", device, "cpu: both sides are CPUs, to try the program itself")
        ->check(CLI::IsMember({"cuda", "cpu"}))
        ->capture_default_str();
    CLI11_PARSE(app, count, words);
    std::string why;
    const int devices = device == "cuda" ? perf::cuda::devices(ranks, why) : 0;
    if (device == "cuda" && devices == 0) {
        std::fprintf(stderr, "dp_check: no GPU: %s\n", why.c_str());
        return 2;
    }
    bool good = true;
    try {
        const std::vector<Place> cpus(static_cast<std::size_t>(ranks));
        std::vector<Place> places = cpus;
        for (int r = 0; r < ranks && devices > 0; ++r)
            places[static_cast<std::size_t>(r)] = {r % devices, perf::cuda::make_stream(r % devices)};
        for (const Case& c : cases) {
            if (c.cpu_first && ranks < 2) continue;
            std::vector<Place> here = places;
            if (c.cpu_first) here[0] = {};
            const std::size_t wrong = differences(train(c, ranks, here), train(c, ranks, cpus));
            std::printf("%-36s %s (%zu weights differ)\n", c.name, wrong == 0 ? "OK" : "FAILED", wrong);
            std::fflush(stdout);
            good &= wrong == 0;
        }
        for (const Place& place : places)
            if (place.device != host) perf::cuda::destroy_stream(place.device, place.stream);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "dp_check: %s\n", error.what());
        return 1;
    }
    return good ? 0 : 1;
}
