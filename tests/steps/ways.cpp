// The two interfaces of parameter servers.
#include <algorithm>
#include <utility>

#include "servers.hpp"

namespace tutti::steps {
namespace {

class OfKeys : public Servers {
  public:
    OfKeys(const World& world, Dice all, Dice& own, Memory& memory, std::size_t most_bytes)
        : Servers(world, all, own, memory, most_bytes, true) {
        Dice more{all.next(), 1};
        tuttiPsConfig_t config = TUTTI_PS_CONFIG_INITIALIZER;
        config.servers = shape_.servers;
        config.dedicated = shape_.dedicated;
        config.staleness = shape_.staleness < 0 ? TUTTI_PS_UNBOUNDED : shape_.staleness;
        config.optimizer = optimizer();
        one_part_ = more.chance(50);
        config.partBytes = one_part_ ? 0 : most_bytes / 64;
        config.threads = 1 + static_cast<int>(more.below(2));
        config.timeoutMs = 60'000;
        std::vector<tuttiPsKey_t> keys;
        for (const Key& key : keys_) keys.push_back({key.name.c_str(), key.count, tuttiFloat32, nullptr});
        must(tuttiPsCreate(&ps_, keys.data(), keys.size(), &config, world.comm), "tuttiPsCreate");
    }
    ~OfKeys() override {
        if (ps_ == nullptr) return;
        tuttiPsAbort(ps_);
        tuttiPsDestroy(ps_);
    }

  private:
    void put_gradients() const {
        for (const Key& key : keys_) std::fill_n(key.gradient, key.count, gradient_now());
    }
    template <class Begin>
    void each(Begin begin, const char* function) {
        std::vector<tuttiPsRequest_t> requests(keys_.size());
        for (std::size_t k = 0; k < keys_.size(); ++k) must(begin(k, &requests[k]), function);
        for (const tuttiPsRequest_t request : requests) must(tuttiPsWait(ps_, request), "tuttiPsWait");
    }
    void pull() override {
        each([this](std::size_t k, auto* request) { return tuttiPsPull(ps_, k, keys_[k].values, request); },
             "tuttiPsPull");
    }
    void newest() override { pull(); }
    void push() override {
        put_gradients();
        each([this](std::size_t k, auto* request) { return tuttiPsPush(ps_, k, keys_[k].gradient, request); },
             "tuttiPsPush");
    }
    void push_and_pull() override {
        put_gradients();
        each([this](std::size_t k,
                    auto* request) { return tuttiPsPushPull(ps_, k, keys_[k].gradient, keys_[k].values, request); },
             "tuttiPsPushPull");
    }
    void tick() override { must(tuttiPsClock(ps_), "tuttiPsClock"); }
    void serve() override { must(tuttiPsServe(ps_), "tuttiPsServe"); }
    Counts counts() override {
        tuttiPsStatistics_t its = TUTTI_PS_STATISTICS_INITIALIZER;
        must(tuttiPsGetStatistics(ps_, &its), "tuttiPsGetStatistics");
        return {its.lost, its.updates, its.pushes, std::max(its.largestPullStaleness, its.largestStaleness), true};
    }
    void leave() override { must(tuttiPsDestroy(std::exchange(ps_, nullptr)), "tuttiPsDestroy"); }

    tuttiPs_t ps_ = nullptr;
};

class OnArrival : public Servers {
  public:
    OnArrival(const World& world, Dice all, Dice& own, Memory& memory, std::size_t most_bytes)
        : Servers(world, all, own, memory, most_bytes, false) {
        tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
        config.onArrival = 1;
        config.mode = shape_.servers == 1 ? tuttiDpServer : tuttiDpShardedServer;
        config.servers = shape_.servers;
        config.dedicated = shape_.dedicated;
        config.staleness = shape_.staleness < 0 ? TUTTI_DP_UNBOUNDED : shape_.staleness;
        config.optimizer = optimizer();
        Dice more{all.next(), 2};
        config.findUnusedParameters = 1;  // the last iterations have no gradients
        std::vector<tuttiDpParameter_t> parameters;
        for (const Key& key : keys_) {
            tuttiDpParameter_t one{};
            one.name = key.name.c_str();
            one.data = key.values;
            one.grad = more.chance(50) ? key.gradient : nullptr;
            one.count = key.count;
            one.type = tuttiFloat32;
            one.gradType = tuttiDpSameType;
            parameters.push_back(one);
        }
        if (all.chance(30)) moves_at_ = static_cast<int>(all.below(static_cast<std::size_t>(clocks_)));
        if (moves_at_ >= 0) choose_who_moves(all);
        if (comes_ >= 0)
            must(tuttiCommSplit(world.comm, world.rank == comes_, 0, &first_.it, nullptr), "tuttiCommSplit");
        must(tuttiDpCreate(&dp_, parameters.data(), parameters.size(), &config, comes_ >= 0 ? first_.it : world.comm),
             "tuttiDpCreate");
    }
    ~OnArrival() override {
        if (dp_ != nullptr) tuttiDpDestroy(dp_);
    }

  private:
    struct Communicator {
        ~Communicator() {
            if (it != nullptr) tuttiCommAbort(it);
        }
        void destroy() {
            if (it != nullptr) must(tuttiCommDestroy(std::exchange(it, nullptr)), "tuttiCommDestroy");
        }
        tuttiComm_t it = nullptr;
    };

    /// A server stays: with it go gradients that it had applied, and workers may do without a few then.
    void choose_who_moves(Dice& all) {
        const int workers = world_.ranks - shape_.servers;  // that do not serve
        if (workers <= shape_.dedicated) return;            // without it nobody would work
        const auto any = [&] {
            return shape_.servers + static_cast<int>(all.below(static_cast<std::size_t>(workers)));
        };
        if (all.chance(50)) leaves_ = any();
        if (all.chance(50)) comes_ = any();
        if (comes_ == leaves_) leaves_ = -1;
    }
    void begin() {
        if (!std::exchange(begun_, true)) must(tuttiDpBegin(dp_), "tuttiDpBegin");
    }
    void pull() override { begin(); }
    void newest() override { must(tuttiDpWait(dp_), "tuttiDpWait"); }
    void push() override {
        begin();
        for (std::size_t k = keys_.size(); k-- > 0;) {
            void* gradient = nullptr;
            must(tuttiDpGradient(dp_, k, &gradient), "tuttiDpGradient");
            std::fill_n(static_cast<float*>(gradient), keys_[k].count, gradient_now());
            must(tuttiDpGradReady(dp_, k), "tuttiDpGradReady");
            ++pushes_;
        }
    }
    void push_and_pull() override { throw Wrong("layers have no servers that only sum"); }
    void tick() override {
        begin();
        begun_ = false;
        if (own_.chance(10)) return must(tuttiDpAbandon(dp_), "tuttiDpAbandon");  // gradients that were ready count
        must(tuttiDpSynchronize(dp_), "tuttiDpSynchronize");
        must(tuttiDpStep(dp_), "tuttiDpStep");
    }
    void serve() override {}  // leave() does
    void move() override {
        const bool stays = world_.rank != leaves_;
        if (!stays) {
            had_ = counts();
            must(tuttiDpDestroy(std::exchange(dp_, nullptr)), "tuttiDpDestroy");
        }
        must(tuttiCommSplit(world_.comm, stays ? 0 : TUTTI_SPLIT_NOCOLOR, 0, &next_.it, nullptr), "tuttiCommSplit");
        if (stays) must(tuttiDpMove(dp_, next_.it), "tuttiDpMove");
    }
    Counts counts() override {
        if (dp_ == nullptr) return had_;
        tuttiDpStatistics_t its{};
        must(tuttiDpGetStatistics(dp_, &its), "tuttiDpGetStatistics");
        return {0, its.applied, pushes_, its.largestStaleness, shape_.dedicated != 1};
    }
    void leave() override {
        if (dp_ != nullptr) must(tuttiDpDestroy(std::exchange(dp_, nullptr)), "tuttiDpDestroy");
        next_.destroy();
        first_.destroy();
    }

    tuttiDp_t dp_ = nullptr;
    Communicator first_, next_;  // before a move, where somebody comes with it; after it
    Counts had_{};               // of a rank that has left
    bool begun_ = false;
    long long pushes_ = 0;
};

}  // namespace

std::unique_ptr<Servers> servers_of_keys(const World& world, Dice all, Dice& own, Memory& memory,
                                         std::size_t most_bytes) {
    return std::make_unique<OfKeys>(world, all, own, memory, most_bytes);
}

std::unique_ptr<Servers> servers_on_arrival(const World& world, Dice all, Dice& own, Memory& memory,
                                            std::size_t most_bytes) {
    return std::make_unique<OnArrival>(world, all, own, memory, most_bytes);
}

}  // namespace tutti::steps
