// Training on emulated GPUs, or on GPUs and CPUs.
#pragma once

#include "dp/training.hpp"
#include "gpu/world.hpp"

namespace tutti::harness {

inline constexpr int gpu_ranks = sanitized ? 2 : 3;

inline tuttiConfig_t reproducible() {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.reproducible = 1;
    config.timeoutMs = 20000;
    return config;
}

/// Ranks on GPUs, and what they train: little, since each of their threads is one of the host's.
struct Gpus {
    explicit Gpus(tuttiDpMode_t mode, tuttiDpOptimizerKind_t optimizer = tuttiDpAdamW)
        : config(reproducible()), world(gpu_ranks, 2, &config) {
        prepare(mode, optimizer, gpu_ranks);
    }
    /// devices: of every rank; -1: a CPU.
    Gpus(tuttiDpMode_t mode, tuttiDpOptimizerKind_t optimizer, const std::vector<int>& devices)
        : config(reproducible()), world(devices, true, &config) {
        prepare(mode, optimizer, static_cast<int>(devices.size()));
    }
    Trained on_cpus() const {
        Setup same = setup;
        same.gpus = nullptr;
        same.config.offload = TUTTI_UNDEF_INT;
        return train(same);
    }
    /// After the first step all ranks move to another communicator.
    Trained moving() const {
        std::vector<tuttiComm_t> next(static_cast<std::size_t>(setup.ranks), nullptr);
        Setup same = setup;
        same.after = [&](int r, int step, tuttiDp_t dp) {
            if (step != 0) return;
            must_succeed(tuttiDpWait(dp), "wait");
            tuttiComm_t& its = next[static_cast<std::size_t>(r)];
            must_succeed(tuttiCommSplit(world.comm(r), 0, r, &its, nullptr), "split");
            must_succeed(tuttiDpMove(dp, its), "move");
        };
        Trained moved = train(same);
        for (const tuttiComm_t comm : next) tuttiCommDestroy(comm);
        return moved;
    }
    tuttiConfig_t config;
    GpuWorld world;
    Setup setup;

  private:
    void prepare(tuttiDpMode_t mode, tuttiDpOptimizerKind_t optimizer, int ranks) {
        setup.ranks = ranks;
        setup.gpus = &world;
        setup.steps = 3;
        setup.counts = {1, 7, 33, 600, 3, 1999};
        setup.config = config_for(mode, optimizer);
    }
};

}  // namespace tutti::harness
