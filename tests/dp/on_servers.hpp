// Parameter servers of tutti/ps.h, on ranks that are threads.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "dp/on_ranks.hpp"
#include "tutti/ps.h"

namespace tutti::harness {

inline tuttiPsConfig_t config_of(int servers, int dedicated, tuttiDpOptimizerKind_t kind) {
    tuttiPsConfig_t config = TUTTI_PS_CONFIG_INITIALIZER;
    config.servers = servers;
    config.dedicated = dedicated;
    config.optimizer.kind = kind;
    config.optimizer.learningRate = 1;
    config.threads = 3;
    return config;
}

inline tuttiPsStatistics_t statistics(tuttiPs_t ps) {
    tuttiPsStatistics_t s = TUTTI_PS_STATISTICS_INITIALIZER;
    must_succeed(tuttiPsGetStatistics(ps, &s), "statistics");
    return s;
}

inline const std::vector<tuttiPsKey_t> some_keys = {{"large", 40000, tuttiFloat32, nullptr},
                                                    {"one", 1, tuttiFloat32, nullptr},
                                                    {"middle", 999, tuttiFloat32, nullptr},
                                                    {"other", 1000, tuttiFloat32, nullptr}};

/// Ranks with a ps each; body(rank, ps) destroys it. A rank that throws must not let the others wait.
template <class Body>
void on_servers(int ranks, const tuttiPsConfig_t& config,
                const std::function<std::vector<tuttiPsKey_t>(int rank)>& keys_of, Body body) {
    const tuttiUniqueId id = new_id();
    run(ranks, [&](int r) {
        const std::vector<tuttiPsKey_t> keys = keys_of(r);
        tuttiComm_t comm = join(id, r, ranks, true);
        tuttiPs_t ps = nullptr;
        must_succeed(tuttiPsCreate(&ps, keys.data(), keys.size(), &config, comm), "create");
        tuttiCommDestroy(comm);  // not used any more
        try {
            body(r, ps);
        } catch (...) {
            tuttiPsAbort(ps);
            tuttiPsDestroy(ps);
            throw;
        }
    });
}

template <class Body>
void on_servers(int ranks, const tuttiPsConfig_t& config, const std::vector<tuttiPsKey_t>& keys, Body body) {
    on_servers(
        ranks, config, [&](int) { return keys; }, body);
}

inline bool works(const tuttiPsConfig_t& config, int rank) {
    return config.dedicated != 1 || rank >= config.servers;
}

inline std::vector<float> pulled(tuttiPs_t ps, std::size_t key, std::size_t count) {
    std::vector<float> values(count, NAN);
    must_succeed(tuttiPsPull(ps, key, values.data(), nullptr), "pull");
    return values;
}

}  // namespace tutti::harness
