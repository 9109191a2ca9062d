// Layers over three parameters, on ranks that are threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "dp/training.hpp"
#include "harness/harness.hpp"

namespace tutti::harness {

/// Where threads wait for each other: a rank that fails, and by that ends the communicator, must not do so while others
/// are still in the call before.
class Rendezvous {
  public:
    explicit Rendezvous(int threads) : threads_(threads) {}
    void wait() {
        ++arrived_;
        for (int ms = 0; ms < 20000 && arrived_ < threads_; ++ms)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

  private:
    const int threads_;
    std::atomic<int> arrived_{0};
};

/// Runs ranks with a layer each over `parameters`; body(rank, dp).
template <class Body>
void on_ranks(int ranks, const std::vector<tuttiDpParameter_t>& parameters, const tuttiDpConfig_t& config, Body body) {
    const tuttiUniqueId id = new_id();
    Rendezvous created(ranks);
    run(ranks, [&](int r) {
        tuttiComm_t comm = join(id, r, ranks, true);
        tuttiDp_t dp = nullptr;
        must_succeed(tuttiDpCreate(&dp, parameters.data(), parameters.size(), &config, comm), "create");
        created.wait();
        body(r, dp, comm);
        tuttiDpDestroy(dp);
        tuttiCommDestroy(comm);
    });
}

inline std::vector<tuttiDpParameter_t> three() {
    return {{"a", nullptr, nullptr, 5, tuttiFloat32, tuttiDpSameType, 0, 0},
            {"b", nullptr, nullptr, 1, tuttiFloat32, tuttiDpSameType, 0, 0},
            {"c", nullptr, nullptr, 100, tuttiFloat32, tuttiDpSameType, 0, 0}};
}

/// Begin; fill(p) and GradReady for the parameters in this order; Synchronize.
template <class Fill>
void pass(tuttiDp_t dp, std::initializer_list<std::size_t> order, Fill fill) {
    must_succeed(tuttiDpBegin(dp), "begin");
    for (const std::size_t p : order) {
        fill(p);
        must_succeed(tuttiDpGradReady(dp, p), "ready");
    }
    must_succeed(tuttiDpSynchronize(dp), "synchronize");
}

/// Writes g into a parameter's gradient, and says that it is ready. The first error, if there was one: any call may be
/// where this rank hears that a peer gives the iteration up.
inline tuttiResult_t offer(tuttiDp_t dp, std::size_t p, std::span<const float> g) {
    void* at = nullptr;
    if (const tuttiResult_t result = tuttiDpGradient(dp, p, &at); result != tuttiSuccess) return result;
    std::memcpy(at, g.data(), g.size_bytes());
    return tuttiDpGradReady(dp, p);
}
inline tuttiResult_t offer(tuttiDp_t dp, std::size_t p, float g) {
    return offer(dp, p, std::span<const float>(&g, 1));
}

}  // namespace tutti::harness
