// Ranks that are threads of this process, on emulated GPUs.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "harness/collective.hpp"
#include "harness/emulated_gpus.hpp"
#include "harness/harness.hpp"

namespace tutti {

/// The error that comes to pass on a communicator within some seconds.
inline tuttiResult_t await_error(tuttiComm_t comm) {
    tuttiResult_t result = tuttiSuccess;
    for (int looks = 0; looks < 5000 && result == tuttiSuccess; ++looks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (tuttiCommGetAsyncError(comm, &result) != tuttiSuccess) break;
    }
    return result;
}

class GpuWorld {
  public:
    explicit GpuWorld(int ranks, int devices = 2, const tuttiConfig_t* config = nullptr, int blocks = 16)
        : GpuWorld(in_turn(ranks, devices), true, config, devices, blocks) {}

    /// devices: of every rank; -1: it is on a CPU. prepare: what is to be done to the GPUs first.
    GpuWorld(
        std::vector<int> device_of, bool peer_access, const tuttiConfig_t* config = nullptr, int devices = 2,
        int blocks = 16, const std::function<void(harness::EmulatedGpus&)>& prepare = [](auto&) {})
        : gpus_(devices, blocks, 3, peer_access), devices_(std::move(device_of)), comms_(devices_.size()) {
        const int ranks = static_cast<int>(devices_.size());
        prepare(gpus_);
        gpu::use_gpus(&gpus_);
        const tuttiUniqueId id = harness::new_id();
        for (int r = 0; r < ranks; ++r) streams_.push_back(device(r) < 0 ? nullptr : gpus_.make_stream(device(r)));
        harness::run(ranks, [&](int rank) {
            tuttiConfig_t own = TUTTI_CONFIG_INITIALIZER;
            if (config != nullptr) own = *config;
            own.device = device(rank);
            harness::must_succeed(
                tuttiCommInitRankConfig(&comms_[static_cast<std::size_t>(rank)], ranks, id, rank, &own), "init");
        });
    }
    ~GpuWorld() {
        for (void* stream : streams_)
            if (stream != nullptr) gpus_.destroy_stream(stream);
        for (tuttiComm_t comm : comms_) tuttiCommDestroy(comm);
        gpu::use_gpus(nullptr);
    }
    GpuWorld(const GpuWorld&) = delete;

    harness::EmulatedGpus& gpus() { return gpus_; }
    int device(int rank) const { return devices_[static_cast<std::size_t>(rank)]; }
    tuttiComm_t comm(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
    void* stream(int rank) const { return streams_[static_cast<std::size_t>(rank)]; }

    void each(const std::function<void(int rank, void* stream)>& body) {
        harness::run(static_cast<int>(comms_.size()), [&](int rank) { body(rank, stream(rank)); });
    }
    void run(const std::vector<harness::Case>& cases) {
        each([&](int rank, void* stream) {
            for (harness::Case c : cases) {
                c.gpus = device(rank) < 0 ? nullptr : &gpus_;
                c.device = device(rank);
                harness::run_case(c, comm(rank), rank, static_cast<int>(comms_.size()), stream);
            }
        });
    }

  private:
    static std::vector<int> in_turn(int ranks, int devices) {
        std::vector<int> all;
        for (int r = 0; r < ranks; ++r) all.push_back(r % devices);
        return all;
    }

    harness::EmulatedGpus gpus_;
    const std::vector<int> devices_;
    std::vector<tuttiComm_t> comms_;
    std::vector<void*> streams_;
};

}  // namespace tutti
