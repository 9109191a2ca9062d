// Ranks that are threads of this process, on emulated GPUs.
#pragma once

#include <functional>
#include <vector>

#include "harness/collective.hpp"
#include "harness/emulated_gpus.hpp"
#include "harness/harness.hpp"

namespace tutti {

class GpuWorld {
  public:
    explicit GpuWorld(int ranks, int devices = 2, const tuttiConfig_t* config = nullptr, int blocks = 16)
        : gpus_(devices, blocks), comms_(static_cast<std::size_t>(ranks)) {
        gpu::use_gpus(&gpus_);
        tuttiUniqueId id;
        harness::require_success(tuttiGetUniqueId(&id), "tuttiGetUniqueId");
        for (int r = 0; r < ranks; ++r) streams_.push_back(gpus_.make_stream(device(r)));
        harness::run(ranks, [&](int rank) {
            tuttiConfig_t own = TUTTI_CONFIG_INITIALIZER;
            if (config != nullptr) own = *config;
            own.device = device(rank);
            harness::require_success(
                tuttiCommInitRankConfig(&comms_[static_cast<std::size_t>(rank)], ranks, id, rank, &own), "init");
        });
    }
    ~GpuWorld() {
        for (void* stream : streams_) gpus_.destroy_stream(stream);
        for (tuttiComm_t comm : comms_) tuttiCommDestroy(comm);
        gpu::use_gpus(nullptr);
    }
    GpuWorld(const GpuWorld&) = delete;

    harness::EmulatedGpus& gpus() { return gpus_; }
    int device(int rank) const { return rank % gpus_.count(); }
    tuttiComm_t comm(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
    void* stream(int rank) const { return streams_[static_cast<std::size_t>(rank)]; }

    void each(const std::function<void(int rank, void* stream)>& body) {
        harness::run(static_cast<int>(comms_.size()), [&](int rank) { body(rank, stream(rank)); });
    }
    void run(const std::vector<harness::Case>& cases) {
        each([&](int rank, void* stream) {
            for (harness::Case c : cases) {
                c.gpus = &gpus_;
                c.device = device(rank);
                harness::run_case(c, comm(rank), rank, static_cast<int>(comms_.size()), stream);
            }
        });
    }

  private:
    harness::EmulatedGpus gpus_;
    std::vector<tuttiComm_t> comms_;
    std::vector<void*> streams_;
};

}  // namespace tutti
