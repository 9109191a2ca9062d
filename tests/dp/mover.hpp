// A rank with a layer that moves from communicator to communicator.
#pragma once

#include <vector>

#include "dp/numbers.hpp"
#include "dp/on_ranks.hpp"

namespace tutti::harness {

inline constexpr std::size_t mover_counts[] = {5, 1, 1000, 333};

inline std::vector<tuttiDpParameter_t> registered(tuttiDataType_t type) {
    std::vector<tuttiDpParameter_t> all;
    const char* const names[] = {"a", "b", "c", "d"};
    for (std::size_t p = 0; p < 4; ++p)
        all.push_back({names[p],
                       nullptr,
                       nullptr,
                       mover_counts[p],
                       type,
                       tuttiDpSameType,
                       0,
                       static_cast<int>(p / 2),
                       0,
                       {},
                       tuttiDpTrained});
    all.push_back({"frozen", nullptr, nullptr, 3, tuttiInt32, tuttiDpSameType, 0, 1, 0, {}, tuttiDpFrozen});
    return all;
}

/// A rank with its layer. All ranks have the same gradients, so results do not depend on how many there are.
class Mover {
  public:
    Mover(const tuttiUniqueId& id, int rank, int ranks, const tuttiDpConfig_t& config, tuttiDataType_t type)
        : type_(type), parameters_(registered(type)) {
        comms_.push_back(harness::join(id, rank, ranks, true));
        tuttiDpConfig_t in_floats = config;  // the mean of equal gradients is exact
        in_floats.fp32Gradients = 1;
        must_succeed(tuttiDpCreate(&dp, parameters_.data(), parameters_.size(), &in_floats, comms_.back()), "create");
        zero3_ = config.mode == tuttiDpZero3;
    }
    ~Mover() {
        leave();
        for (const tuttiComm_t comm : comms_) tuttiCommDestroy(comm);
    }
    Mover(const Mover&) = delete;
    void leave() {
        if (dp != nullptr) tuttiDpDestroy(dp);
        dp = nullptr;
    }

    /// Begin, all gradients, Synchronize. The first error: any call may be where this rank hears that a peer has left.
    tuttiResult_t pass(int step) {
        tuttiResult_t result = tuttiDpBegin(dp);
        for (std::size_t p = 4; p-- > 0 && result == tuttiSuccess;) {
            std::vector<float> g(mover_counts[p]);
            for (std::size_t i = 0; i < g.size(); ++i)
                g[i] = static_cast<float>((i * 7 + p * 3 + static_cast<std::size_t>(step)) % 9) / 4 - 1;
            result = harness::offer(dp, p, g);
        }
        return result == tuttiSuccess ? tuttiDpSynchronize(dp) : result;
    }
    void step(int number) {
        must_succeed(pass(number), "pass");
        must_succeed(tuttiDpStep(dp), "step");
    }
    tuttiResult_t move(const tuttiUniqueId& id, int rank, int ranks) {
        comms_.push_back(harness::join(id, rank, ranks, true));
        return tuttiDpMove(dp, comms_.back());
    }
    long long steps() { return statistics(dp).steps; }
    std::vector<float> weights() {
        std::vector<float> all;
        for (std::size_t p = 0; p < 4; ++p) {
            if (zero3_ && p % 2 == 0) must_succeed(tuttiDpGather(dp, static_cast<int>(p / 2)), "gather");
            std::vector<float> w(mover_counts[p]);
            dp::convert(DataType::float32, w.data(), static_cast<DataType>(type_), data_of<void>(dp, p), w.size());
            all.insert(all.end(), w.begin(), w.end());
            if (zero3_ && p % 2 == 1) must_succeed(tuttiDpRelease(dp, static_cast<int>(p / 2)), "release");
        }
        return all;
    }
    int* frozen() { return data_of<int>(dp, 4); }

    tuttiDp_t dp = nullptr;

  private:
    const tuttiDataType_t type_;
    bool zero3_ = false;
    std::vector<tuttiDpParameter_t> parameters_;
    std::vector<tuttiComm_t> comms_;
};

/// The weights of one rank after `steps` steps.
inline std::vector<float> alone(tuttiDpConfig_t config, tuttiDataType_t type, int steps) {
    config.mode = tuttiDpNaive;
    config.shardRanks = config.server = TUTTI_UNDEF_INT;
    Mover rank(new_id(), 0, 1, config, type);
    for (int s = 0; s < steps; ++s) rank.step(s);
    return rank.weights();
}

}  // namespace tutti::harness
