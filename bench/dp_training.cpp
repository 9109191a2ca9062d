#include "dp_training.hpp"

#include <stdlib.h>  // mkdtemp

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <thread>
#include <utility>

#include "cuda.hpp"
#include "numbers.hpp"

namespace dp_check {

void Place::settle() const {
    while (device != host && !perf::cuda::idle(device, stream)) std::this_thread::yield();
}
void Place::get(void* to, const void* from, std::size_t bytes) const {
    settle();
    if (device == host)
        std::memcpy(to, from, bytes);
    else
        perf::cuda::download(device, to, static_cast<const std::byte*>(from), bytes);
}
void Place::put(void* to, const void* from, std::size_t bytes) const {
    settle();
    if (device == host)
        std::memcpy(to, from, bytes);
    else
        perf::cuda::upload(device, static_cast<std::byte*>(to), from, bytes);
}
std::shared_ptr<std::byte> Place::allocate(std::size_t bytes) const {
    if (device == host) return {new std::byte[bytes](), std::default_delete<std::byte[]>()};
    std::byte* const made = perf::cuda::allocate(device, bytes);
    perf::cuda::fill(device, made, std::byte{0}, bytes);
    return {made, [d = device](std::byte* memory) { perf::cuda::release(d, memory); }};
}

Comm::Comm(const Place& place, int ranks, const tuttiUniqueId& id, int rank) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.reproducible = 1;
    config.device = place.device;
    config.timeoutMs = 30000;
    config.blocking = 1;
    must(tuttiCommInitRankConfig(&handle, ranks, id, rank, &config));
}
Comm::~Comm() {
    if (handle != nullptr) tuttiCommDestroy(handle);
}
void Comm::end() {
    must(tuttiCommDestroy(std::exchange(handle, nullptr)));
}

void on_ranks(const std::vector<Place>& places,
              const std::function<void(int rank, const tuttiUniqueId& id, std::barrier<>& all)>& work) {
    const int ranks = static_cast<int>(places.size());
    std::barrier<> all(ranks);
    tuttiUniqueId id;
    must(tuttiGetUniqueId(&id));
    std::vector<std::thread> threads;
    std::vector<std::string> failures(places.size());
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            try {
                work(r, id, all);
            } catch (const std::exception& error) {
                failures[static_cast<std::size_t>(r)] = "rank " + std::to_string(r) + ": " + error.what();
                all.arrive_and_drop();
            }
        });
    for (std::thread& t : threads) t.join();
    std::string texts;
    for (const std::string& text : failures)
        if (!text.empty()) texts += (texts.empty() ? "" : "; ") + text;
    if (!texts.empty()) throw std::runtime_error(texts);
}

namespace {

constexpr std::size_t counts[] = {1, 7, 40001, 3, 130000};
constexpr const char* names[] = {"a", "b", "c", "d", "e"};
constexpr std::size_t parameters = std::size(counts), buffer = 1, matrix = 2, frozen = 3;
constexpr std::size_t rows = 221, columns = 181;  // of the matrix
static_assert(rows * columns == counts[matrix]);
constexpr int steps = 3;
constexpr double rate = 0.01;

using Values = std::vector<std::vector<float>>;  // by parameter

/// The bits of an element. Types of 16 bits are for values that they can hold, and bfloat16 drops digits.
std::uint64_t encode(tuttiDataType_t type, float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (type == tuttiFloat32) return bits;
    if (type == tuttiBfloat16) return bits >> 16;
    if (type == tuttiFloat64) return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    return std::isinf(value) ? 0x7c00 : perf::encode(type, value);
}

std::vector<std::byte> as_type(tuttiDataType_t type, const std::vector<float>& values) {
    const std::size_t size = perf::size_of(type);
    std::vector<std::byte> bytes(values.size() * size);
    for (std::size_t i = 0; i < values.size(); ++i) perf::store(bytes.data() + i * size, size, encode(type, values[i]));
    return bytes;
}

std::vector<float> as_floats(tuttiDataType_t type, const std::vector<std::uint64_t>& elements) {
    std::vector<float> all(elements.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto low = static_cast<std::uint32_t>(elements[i]);
        all[i] = type == tuttiFloat32    ? std::bit_cast<float>(low)
                 : type == tuttiBfloat16 ? std::bit_cast<float>(low << 16)
                                         : static_cast<float>(perf::decode(type, elements[i]));
    }
    return all;
}

/// The caller's memory of one rank, if the case has any.
struct Memory {
    Memory(const Case& c, const Place& place) : values(parameters), gradients(parameters) {
        for (std::size_t p = 0; p < parameters && (c.what & callers) != 0; ++p) {
            values[p] = place.allocate(counts[p] * perf::size_of(c.type));
            gradients[p] = place.allocate(counts[p] * perf::size_of(c.type));
        }
    }
    std::vector<std::shared_ptr<std::byte>> values, gradients;
};

/// A rank with its layer. Each rank pulls every weight towards a number of its own.
class Rank {
  public:
    Rank(const Case& c, tuttiComm_t comm, int rank, int ranks, const Place& place, const Memory& memory)
        : case_(c), comm_(comm), rank_(rank), ranks_(ranks), place_(place) {
        Config config = TUTTI_DP_CONFIG_INITIALIZER;
        config.mode = c.mode;
        config.optimizer.kind = c.optimizer;
        config.optimizer.learningRate = rate;
        config.optimizer.weightDecay = 0.1;
        config.clipNorm = c.optimizer == tuttiDpMomentum ? 1 : 0;
        config.bucketBytes = 256 * 1024;
        config.stream = place.stream;
        config.elastic = does(moves) || does(abandons);
        config.nanCheck = does(finds);
        if (does(twice)) config.microBatches = 2;
        config.findUnusedParameters = does(unused);
        const tuttiDpGroup_t groups[] = {{1, 0.1, 0, 0}, {0.5, 0, 0, 0}};
        if (does(other_rates)) config.groups = groups, config.groupCount = 2;
        if (c.more != nullptr) c.more(config, ranks);
        serves_only_ = config.dedicated == 1 && rank == 0;
        gathers_ = c.mode == tuttiDpZero3 || config.overlapParamGather == 1;
        std::vector<tuttiDpParameter_t> all;
        for (std::size_t p = 0; p < parameters; ++p) all.push_back(described(p, config, memory));
        must(tuttiDpCreate(&dp_, all.data(), all.size(), &config, comm));
        if (does(stills)) begin_still();
    }
    ~Rank() {
        tuttiDpDestroy(dp_);
        if (next_ != nullptr) tuttiCommDestroy(next_);
    }
    Rank(const Rank&) = delete;

    /// Makes the steps from `first` on, and what the case does between them. Loads from a folder before, and saves to
    /// another; "": it does not.
    void run(int first, const std::string& from, const std::string& to) {
        if (!from.empty()) must(tuttiDpLoad(dp_, from.c_str()));
        if (does(abandons)) first = abandon();
        const int mine = does(joins) ? std::max(first, steps - rank_) : steps;
        for (int number = first; number < mine; ++number) {
            step(number);
            if (number == 0 && does(moves)) move();
            if (number == 1 && does(resets)) must(tuttiDpResetErrorFeedback(dp_));
            if (number != 1 || to.empty()) continue;
            must(does(saves) ? tuttiDpSave(dp_, to.c_str()) : tuttiDpSaveAsync(dp_, to.c_str()));
            if (does(saves)) break;
        }
        if (does(joins)) must(tuttiDpJoin(dp_));
        if (!to.empty()) must(tuttiDpSaveWait(dp_));
    }

    Weights weights() {
        must(tuttiDpWait(dp_));
        if (does(stills)) must(tuttiDpBroadcast(dp_, 0));
        if (does(finds)) must(tuttiDpCheckEqual(dp_));
        Weights all(parameters);
        for (std::size_t p = 0; p < parameters; ++p) all[p] = bits(p);
        return all;
    }

  private:
    bool does(What what) const { return (case_.what & what) != 0; }
    bool is_still(std::size_t p) const { return does(stills) && (p == buffer || p == frozen); }
    /// In the second step nobody uses the first parameter, and only rank 0 the matrix.
    bool is_unused(std::size_t p, int number) const {
        return does(unused) && number == 1 && (p == 0 || (p == matrix && rank_ > 0));
    }
    static int unit_of(std::size_t p) { return static_cast<int>(p / 2); }

    tuttiDpParameter_t described(std::size_t p, const Config& config, const Memory& memory) const {
        tuttiDpParameter_t one{};
        one.name = names[p];
        one.data = memory.values[p].get();
        one.grad = is_still(p) ? nullptr : memory.gradients[p].get();
        one.count = counts[p];
        one.type = case_.type;
        one.gradType = tuttiDpSameType;
        one.group = config.groupCount > 0 ? static_cast<int>(p % 2) : 0;
        one.unit = unit_of(p);
        if (p == matrix) one.dims = 2, one.shape[0] = rows, one.shape[1] = columns;
        one.kind = !is_still(p) ? tuttiDpTrained : p == frozen ? tuttiDpFrozen : tuttiDpBuffer;
        return one;
    }

    /// Values that no optimizer makes: those of rank 0 are sent to all.
    void begin_still() {
        for (const std::size_t p : {buffer, frozen}) write(p, std::vector<float>(counts[p], still(p, -1)));
        must(tuttiDpBroadcast(dp_, 0));
    }
    float still(std::size_t p, int number) const {
        return static_cast<float>(8 * rank_ + number + 2 + static_cast<int>(p));
    }

    void step(int number) {
        if (case_.what & other_rates) set_rates(number);
        must(tuttiDpBegin(dp_));
        for (int pass = 0; pass < (does(twice) ? 2 : 1); ++pass) {
            if (does(twice)) must(tuttiDpNoSync(dp_, pass == 0));
            // In ZeRO-3 all ranks gather between the same reductions, which begin where a parameter is ready.
            const Values early = does(unused) ? read_all() : Values();
            for (std::size_t i = 0; i < parameters && !serves_only_; ++i) {
                const std::size_t p = does(forwards) ? i : parameters - 1 - i;
                if (is_still(p) || is_unused(p, number)) continue;
                make_gradient(p, number + 2 * pass, does(unused) ? early[p] : read(p));
            }
        }
        must(tuttiDpSynchronize(dp_));
        if (does(finds) && number == 1) find();
        if (does(clips)) must(tuttiDpClipValue(dp_, 0.5));
        if (does(clips)) must(tuttiDpClipNorm(dp_, 1, nullptr));
        if (case_.optimizer == tuttiDpNoOptimizer) return update();
        must(tuttiDpStep(dp_));
        if (does(stills)) write(buffer, std::vector<float>(counts[buffer], still(buffer, number)));
    }

    void make_gradient(std::size_t p, int number, const std::vector<float>& w) {
        double scale = 1;
        must(tuttiDpGetLossScale(dp_, &scale, nullptr));
        std::vector<float> gradient(w.size());
        for (std::size_t i = 0; i < w.size(); ++i)
            gradient[i] =
                static_cast<float>(scale) *
                (w[i] - static_cast<float>((i * 37 + p * 11 + static_cast<std::size_t>(rank_ + number)) % 101) / 64);
        if (is_spoilt(p, number)) gradient.back() = INFINITY;
        void* at = nullptr;
        must(tuttiDpGradient(dp_, p, &at));
        const std::vector<std::byte> written = as_type(case_.type, gradient);
        place_.put(at, written.data(), written.size());
        must(tuttiDpGradReady(dp_, p));
    }
    bool is_spoilt(std::size_t p, int number) const {
        return does(overflows) && number == 1 && rank_ == ranks_ - 1 && p == matrix;
    }

    void find() {
        int rank = -1;
        std::size_t parameter = 0;
        must(tuttiDpFindNan(dp_, &rank, &parameter));
        if (rank != ranks_ - 1 || parameter != matrix) throw std::runtime_error("FindNan names another gradient");
    }

    void set_rates(int number) {
        must(tuttiDpSetLearningRate(dp_, rate / (1 + number)));
        const tuttiDpGroup_t other{0.25, 0.2, 0, 0};
        if (number == 1) must(tuttiDpSetGroup(dp_, 1, &other));
    }

    /// The caller's own, where the layer has no optimizer.
    void update() {
        int finite = 1;
        must(tuttiDpUnscale(dp_, &finite));
        for (std::size_t p = 0; p < parameters && finite != 0; ++p) {
            void* at = nullptr;
            must(tuttiDpGradient(dp_, p, &at));
            const std::vector<float> gradient = as_floats(case_.type, bits(at, p));
            std::vector<float> w = read(p);
            for (std::size_t i = 0; i < w.size(); ++i) w[i] -= gradient[i] / 64;
            write(p, w);
        }
    }

    /// Rank 0 makes the first step, and leaves the second in the middle. The others are told so in a call of the second
    /// step, or of the first, which rank 0 may have ended earlier than they. Then all have made the first. Returns the
    /// number of the next step.
    int abandon() {
        bool told = rank_ == 0;
        try {
            step(0);
            if (rank_ == 0) {
                must(tuttiDpBegin(dp_));
                make_gradient(parameters - 1, 1, read(parameters - 1));
            } else {
                step(1);
            }
        } catch (const Failed& failed) {
            if (rank_ == 0 || failed.result != tuttiRemoteError) throw;
            told = true;
        }
        if (!told) throw std::runtime_error("rank 0 has abandoned an iteration, and another rank made the step");
        must(tuttiDpAbandon(dp_));
        tuttiDpStatistics_t statistics;
        must(tuttiDpGetStatistics(dp_, &statistics));
        if (statistics.steps != 1) throw std::runtime_error("the first step was abandoned, too");
        return 1;
    }

    void move() {
        must(tuttiCommSplit(comm_, 0, rank_, &next_, nullptr));
        must(tuttiDpMove(dp_, next_));
    }

    std::vector<std::uint64_t> bits(const void* at, std::size_t p) const {
        const std::size_t size = perf::size_of(case_.type);
        std::vector<std::byte> bytes(counts[p] * size);
        place_.get(bytes.data(), at, bytes.size());
        std::vector<std::uint64_t> all(counts[p]);
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = perf::load(bytes.data() + i * size, size);
        return all;
    }
    /// Of a parameter's values.
    std::vector<std::uint64_t> bits(std::size_t p) {
        if (gathers_) must(tuttiDpGather(dp_, unit_of(p)));
        void* at = nullptr;
        must(tuttiDpData(dp_, p, &at));
        std::vector<std::uint64_t> all = bits(at, p);
        if (case_.mode == tuttiDpZero3) must(tuttiDpRelease(dp_, unit_of(p)));
        return all;
    }
    std::vector<float> read(std::size_t p) { return as_floats(case_.type, bits(p)); }
    Values read_all() {
        Values all;
        for (std::size_t p = 0; p < parameters; ++p) all.push_back(read(p));
        return all;
    }
    void write(std::size_t p, const std::vector<float>& values) {
        void* at = nullptr;
        must(tuttiDpData(dp_, p, &at));
        const std::vector<std::byte> written = as_type(case_.type, values);
        place_.put(at, written.data(), written.size());
    }

    const Case& case_;
    tuttiComm_t comm_, next_ = nullptr;
    int rank_, ranks_;
    bool serves_only_ = false, gathers_ = false;
    Place place_;
    tuttiDp_t dp_ = nullptr;
};

/// Runs a layer on each rank (Rank::run). Returns the last rank's weights.
Weights go(const Case& c, const std::vector<Place>& places, int first, const std::string& from, const std::string& to) {
    const int ranks = static_cast<int>(places.size());
    Weights weights;
    on_ranks(places, [&](int r, const tuttiUniqueId& id, std::barrier<>& all) {
        const Place& place = places[static_cast<std::size_t>(r)];
        const Memory memory(c, place);
        all.arrive_and_wait();
        Comm comm(place, ranks, id, r);
        {
            Rank rank(c, comm.handle, r, ranks, place, memory);
            all.arrive_and_wait();
            rank.run(first, from, to);
            Weights mine = rank.weights();
            if (r == ranks - 1) weights = std::move(mine);
            all.arrive_and_wait();
        }
        comm.end();
        all.arrive_and_wait();
    });
    return weights;
}

struct Folder {
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "dp_check-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for checkpoints: " + name);
        path = name;
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    Folder(const Folder&) = delete;
    std::string path;
};

}  // namespace

Weights train(const Case& c, const std::vector<Place>& places) {
    if ((c.what & (saves | saves_beside)) == 0) return go(c, places, 0, "", "");
    const std::vector<Place> cpus(places.size());
    const Folder folder;
    go(c, (c.what & from_cpus) != 0 ? cpus : places, 0, "", folder.path);
    return go(c, (c.what & then_cpus) != 0 ? cpus : places, 2, folder.path, "");
}

}  // namespace dp_check
