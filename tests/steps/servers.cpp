#include "servers.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tutti::steps {
namespace {

int digit(int value, int place) {
    return value >> 3 * place & 7;
}

tuttiPsStatistics_t statistics_of(tuttiPs_t ps) {
    tuttiPsStatistics_t statistics = TUTTI_PS_STATISTICS_INITIALIZER;
    must(tuttiPsGetStatistics(ps, &statistics), "tuttiPsGetStatistics");
    return statistics;
}

}  // namespace

Servers::Servers(const World& world, Dice all, Dice& own, Memory& memory, std::size_t most_bytes)
    : world_(world), own_{own.next()}, clocks_(1 + static_cast<int>(all.below(7))) {
    if (world.ranks > 8) throw std::runtime_error("servers among more than 8 ranks");
    config_.servers = 1 + static_cast<int>(all.below(std::min<std::size_t>(2, static_cast<std::size_t>(world.ranks))));
    config_.dedicated = config_.servers < world.ranks && all.chance(50) ? 1 : 0;
    config_.optimizer.kind = all.chance(30) ? tuttiDpNoOptimizer : tuttiDpSgd;
    config_.optimizer.learningRate = 1;
    config_.staleness = only_sums() ? TUTTI_PS_UNBOUNDED : static_cast<int>(all.below(4)) - 1;
    config_.partBytes = all.chance(50) ? most_bytes / 64 : 0;
    config_.threads = 1 + static_cast<int>(all.below(2));
    config_.timeoutMs = 60'000;
    std::vector<tuttiPsKey_t> keys;
    keys_.resize(1 + all.below(3));
    for (Key& key : keys_) {
        key.name = "key " + std::to_string(&key - keys_.data());
        key.count = 1 + all.size(most_bytes / 32);
        key.values = static_cast<float*>(memory.take(key.count * sizeof(float), own));
        key.gradient = static_cast<float*>(memory.take(key.count * sizeof(float), own));
        std::fill_n(key.gradient, key.count, static_cast<float>(1 << 3 * world.rank));
        keys.push_back({key.name.c_str(), key.count, tuttiFloat32, nullptr});
    }
    must(tuttiPsCreate(&ps_, keys.data(), keys.size(), &config_, world.comm), "tuttiPsCreate");
}

Servers::~Servers() {
    if (ps_ == nullptr) return;
    tuttiPsAbort(ps_);
    tuttiPsDestroy(ps_);
}

void Servers::run() {
    if (works(world_.rank)) {
        for (; clock_ < clocks_; ++clock_) {
            if (own_.chance(20)) std::this_thread::sleep_for(std::chrono::microseconds(own_.below(3000)));
            push_and_pull();
            must(tuttiPsClock(ps_), "tuttiPsClock");
        }
        if (!only_sums()) pull();  // then all that this worker has pushed is applied
    }
    agree(false);
    if (works(world_.rank) && !only_sums()) {
        pull();
        for (const Key& key : keys_) look_at(key, clocks_, clocks_);
    }
    agree(true);
    if (!works(world_.rank)) must(tuttiPsServe(ps_), "tuttiPsServe");
    must(tuttiPsDestroy(std::exchange(ps_, nullptr)), "tuttiPsDestroy");
}

/// A worker's clock.
void Servers::push_and_pull() {
    std::vector<tuttiPsRequest_t> requests(keys_.size());
    if (only_sums()) {
        for (std::size_t k = 0; k < keys_.size(); ++k)
            must(tuttiPsPushPull(ps_, k, keys_[k].gradient, keys_[k].values, &requests[k]), "tuttiPsPushPull");
        wait_for(requests);
        for (const Key& key : keys_) look_at(key, 1, 1);
        return;
    }
    pull();
    for (const Key& key : keys_)
        look_at(key, config_.staleness < 0 ? 0 : std::max(0, clock_ - config_.staleness), clocks_);
    for (std::size_t k = 0; k < keys_.size(); ++k)
        must(tuttiPsPush(ps_, k, keys_[k].gradient, &requests[k]), "tuttiPsPush");
    wait_for(requests);
}

void Servers::pull() {
    std::vector<tuttiPsRequest_t> requests(keys_.size());
    for (std::size_t k = 0; k < keys_.size(); ++k)
        must(tuttiPsPull(ps_, k, keys_[k].values, &requests[k]), "tuttiPsPull");
    wait_for(requests);
}

void Servers::wait_for(const std::vector<tuttiPsRequest_t>& requests) {
    for (const tuttiPsRequest_t request : requests) must(tuttiPsWait(ps_, request), "tuttiPsWait");
}

/// How often each worker's gradient is in the values that have been pulled.
void Servers::look_at(const Key& key, int least, int most) {
    for (std::size_t i = 0; i < key.count; ++i) {
        const float value = only_sums() ? key.values[i] : -key.values[i];
        const std::string what = "element " + std::to_string(i) + " of " + key.name + " in clock " +
                                 std::to_string(clock_) + " is " + std::to_string(key.values[i]) + ": ";
        if (!(value >= 0 && value < 1 << 24)) throw Wrong(what + "no sum of gradients");
        const int sums = static_cast<int>(value);
        if (static_cast<float>(sums) != value || sums >> 3 * world_.ranks != 0)
            throw Wrong(what + "no sum of gradients");
        for (int rank = 0; rank < world_.ranks; ++rank) {
            const int times = digit(sums, rank);
            const std::string whose = what + std::to_string(times) + " of rank " + std::to_string(rank) + "'s, ";
            if (times > (works(rank) ? most : 0)) throw Wrong(whose + "more than it has pushed");
            if (!works(rank)) continue;
            if (rank == world_.rank && times != (only_sums() ? 1 : clock_)) throw Wrong(whose + "which are one's own");
            if (times < least) doubt(whose + "at least " + std::to_string(least) + " were to be there");
        }
    }
}

/// All ranks are here. If that succeeds nobody has died, so nothing may be lacking.
void Servers::agree(bool ends) {
    const tuttiPsStatistics_t mine = statistics_of(ps_);
    const long long here[] = {mine.lost, mine.updates, works(world_.rank) ? mine.pushes : 0};
    long long all[3];
    must(tuttiAllReduce(here, all, 3, tuttiInt64, tuttiSum, world_.comm, nullptr), "tuttiAllReduce");
    if (all[0] > 0) throw Wrong("servers have lost " + std::to_string(all[0]) + " workers, and all ranks are there");
    if (!doubt_.empty()) throw Wrong(doubt_);
    if (ends && !only_sums() && all[1] != all[2])
        throw Wrong(std::to_string(all[1]) + " updates of " + std::to_string(all[2]) + " gradients");
    if (config_.staleness >= 0)
        if (const int most = std::max(mine.largestPullStaleness, mine.largestStaleness); most > config_.staleness)
            throw Wrong("a staleness of " + std::to_string(most) + ", more than " + std::to_string(config_.staleness));
}

}  // namespace tutti::steps
