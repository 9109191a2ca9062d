// A model to train: a loss that is a sum over parameters of any number and shape, with a gradient that depends on the
// weights, so that a wrong step shows in all later ones.
#pragma once

#include <functional>
#include <vector>

#include "harness/collective.hpp"
#include "tutti/dp.h"

namespace tutti {
class GpuWorld;
}

namespace tutti::harness {

struct Setup {
    int ranks = 1;
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    int first_step = 0, steps = 4;  // from first_step to steps - 1
    int slices = 12;                // of the batch; a multiple of the number of workers and of config.microBatches
    std::vector<std::size_t> counts = {1, 7, 33, 1000, 3, 4099, 1, 64};
    tuttiDataType_t type = tuttiFloat32;
    tuttiDataType_t grad_type = tuttiDpSameType;
    float shrink = 1;                        // what gradients are multiplied by
    bool own_data = true, own_grad = false;  // in the caller's memory
    bool made_elsewhere = false;             // every other gradient goes to GradReadyAt; all, if zeroGrad is 0
    bool reproducible = true;
    GpuWorld* gpus = nullptr;                                               // where ranks are; config.stream is set
    std::function<bool(int rank, int step, std::size_t parameter)> skips;   // whose gradient is not there
    std::function<bool(int rank, int step, std::size_t parameter)> spoils;  // whose gradient has an infinity
    std::function<void(int rank, tuttiDp_t dp)> created;
    std::function<void(int rank, int step)> between;                      // before each step
    std::function<void(int rank, int step, tuttiDp_t dp)> after;          // after each Step, for the same
    std::function<std::size_t(int rank, int step, std::size_t i)> order;  // of readiness: the i-th parameter
};

struct Trained {
    std::vector<std::vector<float>> weights;      // by parameter
    std::vector<double> losses;                   // by step: of the whole batch
    std::vector<tuttiDpStatistics_t> statistics;  // by rank
    std::vector<tuttiDpMemory_t> memory;
};

/// Trains on threads. Throws what a rank met, and if ranks that should be equal are not.
Trained train(const Setup& setup);

/// One rank that adds the gradients of all slices in the order in which `ranks` ranks would add them.
Trained train_alone(Setup setup);

/// The largest difference of two weights, over their magnitude or 1.
double difference(const Trained& a, const Trained& b);

tuttiDpConfig_t config_for(tuttiDpMode_t mode, tuttiDpOptimizerKind_t optimizer = tuttiDpAdamW);

/// Where the values and the gradient of a parameter are. Throw if they can't be told now.
template <class T = float>
T* data_of(tuttiDp_t dp, std::size_t p) {
    void* at = nullptr;
    must_succeed(tuttiDpData(dp, p, &at), "data");
    return static_cast<T*>(at);
}
template <class T = float>
T* gradient(tuttiDp_t dp, std::size_t p) {
    void* at = nullptr;
    must_succeed(tuttiDpGradient(dp, p, &at), "gradient");
    return static_cast<T*>(at);
}

inline tuttiDpStatistics_t statistics(tuttiDp_t dp) {
    tuttiDpStatistics_t s;
    must_succeed(tuttiDpGetStatistics(dp, &s), "statistics");
    return s;
}

inline void end_iteration(tuttiDp_t dp) {
    must_succeed(tuttiDpSynchronize(dp), "synchronize");
    must_succeed(tuttiDpStep(dp), "step");
}

/// A communicator and a layer, which end also if the rank that has them is never complete.
struct Held {
    tuttiComm_t comm = nullptr;
    tuttiDp_t dp = nullptr;
    ~Held() {
        if (dp != nullptr) tuttiDpDestroy(dp);
        if (comm != nullptr) tuttiCommDestroy(comm);
    }
};

/// A communicator of one rank of a group of threads that have the same id.
tuttiComm_t join(const tuttiUniqueId& id, int rank, int ranks, bool reproducible);

}  // namespace tutti::harness
