#include "world.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "cuda.hpp"

namespace perf {

namespace {

std::function<void(const std::string&)> listener;

double folded(double a, double b, tuttiRedOp_t how) {
    return how == tuttiMax ? std::max(a, b) : how == tuttiMin ? std::min(a, b) : a + b;
}

}  // namespace

void on_failure(std::function<void(const std::string&)> f) {
    listener = std::move(f);
}

void fail(ExitCode code, const std::string& why) {
    // The first thread that fails speaks for the process; the others may be waiting for it in a barrier, so nobody
    // returns.
    static std::mutex mutex;
    mutex.lock();
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", why.c_str());
    if (listener) listener(why);
    _exit(code);
}

void expect(tuttiResult_t result, tuttiComm_t comm, int rank) {
    if (result == tuttiSuccess) return;
    const std::string text = tuttiGetLastError(comm);
    const std::string who = rank < 0 ? "" : "rank " + std::to_string(rank) + ": ";
    fail(result == tuttiTimeout ? exit_timeout : exit_library,
         who + (text.empty() ? tuttiGetErrorString(result) : text));
}

World::World(const Options& options)
    : options_(options),
      threads_(options.threads),
      ranks_per_thread_(options.ranks_per_thread),
      local_ranks_(threads_ * ranks_per_thread_),
      comms_(static_cast<std::size_t>(local_ranks_)),
      threads_barrier_(threads_),
      of_threads_(static_cast<std::size_t>(threads_)) {
    const tuttiConfig_t configuration = config(-1);
    expect(tuttiCommInitEnv(&processes_comm_, &configuration), nullptr, -1);
    expect(tuttiCommCount(processes_comm_, &processes_), nullptr, -1);
    expect(tuttiCommUserRank(processes_comm_, &process_), nullptr, -1);
    make_communicators();
    if (!options.rival.empty()) init_rival();
}

void World::make_communicators() {
    const Options& options = options_;
    const bool gpus = options.devices > 0;
    if (local_ranks_ == 1 && !gpus) {
        comms_[0] = processes_comm_;
        return;
    }
    const bool configured = options.reproducible || !options.algorithm.empty() || !options.transport.empty() ||
                            options.timeout_seconds > 0 || options.threads_per_rank > 0 || options.cta_policy > 0;
    if (processes_ == 1 && !configured && !options.parallel_init) {
        std::vector<int> devices;
        for (int i = 0; i < local_ranks_; ++i) devices.push_back(device_of(i));
        expect(tuttiCommInitAll(comms_.data(), local_ranks_, gpus ? devices.data() : nullptr), nullptr, -1);
        return;
    }
    if (process_ == 0) expect(tuttiGetUniqueId(&id_), nullptr, -1);
    share(id_);
    if (!options.parallel_init) init(0, local_ranks_);
}

int World::device_of(int rank) const {
    if (!options_.on_gpu(rank)) return -1;
    const char* local = std::getenv("LOCAL_RANK");
    const int process_here = local != nullptr ? std::atoi(local) : process_;
    return (process_here * local_ranks_ + rank - first_rank(0)) % options_.devices;
}

tuttiConfig_t World::config(int rank) const {
    tuttiConfig_t configuration = TUTTI_CONFIG_INITIALIZER;
    if (options_.timeout_seconds > 0) configuration.timeoutMs = options_.timeout_seconds * 1000;
    if (!options_.algorithm.empty()) configuration.algorithm = options_.algorithm.c_str();
    const bool joins_gpus = options_.transport == "p2p";  // of CPU ranks it knows nothing
    if (!options_.transport.empty() && !(joins_gpus && rank < 0)) configuration.transport = options_.transport.c_str();
    configuration.commName = "perf";
    configuration.blocking = 1;  // whatever NCCL_COMM_BLOCKING says
    if (options_.reproducible) configuration.reproducible = 1;
    if (options_.threads_per_rank > 0) configuration.threads = options_.threads_per_rank;
    if (options_.cta_policy > 0) configuration.ctaPolicy = options_.cta_policy;
    if (rank >= 0 && options_.on_gpu(rank)) configuration.device = device_of(rank);
    return configuration;
}

void World::share(tuttiUniqueId& id) {
    expect(tuttiBroadcast(&id, &id, sizeof id, tuttiUint8, 0, processes_comm_, nullptr), processes_comm_, process_);
}

/// All processes agree on whether the other library bears these ranks; it is not an error if it does not.
void World::init_rival() {
    rival_ = load_library(options_.rival);
    tuttiUniqueId id{};
    std::string refusal;
    const auto check = [&](tuttiResult_t result) {
        if (result != tuttiSuccess && refusal.empty()) refusal = rival_->text_of(result, nullptr);
        return result == tuttiSuccess;
    };
    const auto agree = [&] {
        for (const std::string& text : gather(refusal))
            if (rival_refusal_.empty()) rival_refusal_ = text;
        return rival_refusal_.empty();
    };
    if (process_ == 0) check(rival_->get_unique_id(&id));
    if (!agree()) return;
    share(id);
    rival_comms_.resize(comms_.size());
    check(rival_->group_start());
    for (int i = 0; i < local_ranks_; ++i) {
        const int rank = first_rank(0) + i;
        if (options_.devices > 0) cuda::use(device_of(rank));
        if (!check(rival_->init_rank(&rival_comms_[static_cast<std::size_t>(i)], ranks(), id, rank))) break;
    }
    check(rival_->group_end());
    agree();
}

std::span<const tuttiComm_t> World::rival_comms(int thread) const {
    return std::span(rival_comms_)
        .subspan(static_cast<std::size_t>(thread * ranks_per_thread_), static_cast<std::size_t>(ranks_per_thread_));
}

void World::init(int first, int count) {
    const int rank = process_ * local_ranks_ + first;
    expect(tuttiGroupStart(), nullptr, rank);
    for (int i = 0; i < count; ++i) {
        const tuttiConfig_t configuration = config(rank + i);
        expect(tuttiCommInitRankConfig(&comms_[static_cast<std::size_t>(first + i)], ranks(), id_, rank + i,
                                       &configuration),
               nullptr, rank + i);
    }
    expect(tuttiGroupEnd(), nullptr, rank);
}

std::span<tuttiComm_t> World::join(int thread) {
    const int first = thread * ranks_per_thread_;
    if (comms_[static_cast<std::size_t>(first)] == nullptr) init(first, ranks_per_thread_);
    return std::span(comms_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(ranks_per_thread_));
}

void World::among_processes(std::span<double> values, tuttiRedOp_t how) {
    if (processes_ == 1) return;
    expect(tuttiAllReduce(values.data(), values.data(), values.size(), tuttiDouble, how, processes_comm_, nullptr),
           processes_comm_, process_);
}

void World::barrier(int thread) {
    combine(thread, 0, tuttiSum);
}

double World::combine(int thread, double value, tuttiRedOp_t how) {
    combine(thread, std::span(&value, 1), how);
    return value;
}

void World::combine(int thread, std::span<double> values, tuttiRedOp_t how) {
    of_threads_[static_cast<std::size_t>(thread)].assign(values.begin(), values.end());
    threads_barrier_.arrive_and_wait();
    if (thread == 0) {
        combined_ = of_threads_[0];
        for (std::size_t t = 1; t < of_threads_.size(); ++t)
            for (std::size_t i = 0; i < combined_.size(); ++i)
                combined_[i] = folded(combined_[i], of_threads_[t][i], how);
        among_processes(combined_, how);
    }
    // Nobody comes back to overwrite combined_ before all have copied it: thread 0 does so behind the barrier above.
    threads_barrier_.arrive_and_wait();
    std::copy(combined_.begin(), combined_.end(), values.begin());
}

std::vector<std::string> World::gather(const std::string& line) {
    constexpr std::size_t longest = 256;
    std::vector<char> mine(longest), all(longest * static_cast<std::size_t>(processes_));
    std::memcpy(mine.data(), line.data(), std::min(line.size(), longest - 1));
    expect(tuttiAllGather(mine.data(), all.data(), longest, tuttiChar, processes_comm_, nullptr), processes_comm_,
           process_);
    std::vector<std::string> lines;
    for (std::size_t p = 0; p < all.size(); p += longest) lines.emplace_back(&all[p]);
    return lines;
}

void World::leave() {
    if (rival()) {
        rival_->expect(rival_->group_start(), nullptr, first_rank(0));
        for (tuttiComm_t comm : rival_comms_) rival_->expect(rival_->destroy(comm), nullptr, first_rank(0));
        rival_->expect(rival_->group_end(), nullptr, first_rank(0));
    }
    for (std::size_t i = 0; i < comms_.size(); ++i)
        expect(tuttiCommDestroy(comms_[i]), nullptr, first_rank(0) + static_cast<int>(i));
    if (comms_[0] != processes_comm_) expect(tuttiCommDestroy(processes_comm_), nullptr, first_rank(0));
}

void World::give_up(ExitCode code, const std::string& why) {
    if (processes_comm_ != nullptr) tuttiCommDestroy(processes_comm_);
    for (tuttiComm_t comm : comms_)
        if (comm != nullptr && comm != processes_comm_) tuttiCommDestroy(comm);
    fail(code, why);
}

}  // namespace perf
