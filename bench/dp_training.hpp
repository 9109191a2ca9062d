// What dp_check trains: a small model with the data-parallel layer, by ranks that are threads of this process.
#pragma once

#include <tutti/dp.h>
#include <tutti/tutti.h>

#include <barrier>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace dp_check {

inline constexpr int host = -1;

struct Failed : std::runtime_error {
    explicit Failed(tuttiResult_t r) : std::runtime_error(tuttiGetLastError(nullptr)), result(r) {}
    tuttiResult_t result;
};

inline void must(tuttiResult_t result) {
    if (result != tuttiSuccess) throw Failed(result);
}

/// Where a rank trains: a GPU and the stream of its layer, or the host.
struct Place {
    int device = host;
    void* stream = nullptr;

    /// Waits until the stream is idle.
    void settle() const;
    /// Copy from and to memory of this place, behind the work on the stream.
    void get(void* to, const void* from, std::size_t bytes) const;
    void put(void* to, const void* from, std::size_t bytes) const;
    /// Zeroed memory of this place.
    std::shared_ptr<std::byte> allocate(std::size_t bytes) const;
};

/// A communicator of one rank, with sums in the order of ranks.
struct Comm {
    Comm(const Place& place, int ranks, const tuttiUniqueId& id, int rank);
    ~Comm();
    Comm(const Comm&) = delete;
    /// Destroys it. Throws what Destroy returns.
    void end();
    tuttiComm_t handle = nullptr;
};

/// Runs work on a thread for each place, with an id for a communicator. Throws what ranks that failed have met. Memory
/// of GPUs is taken and freed while no kernel there waits for another rank, because that may wait for all kernels: for
/// this, work may wait for all ranks at `all`, which a rank that fails leaves.
void on_ranks(const std::vector<Place>& places,
              const std::function<void(int rank, const tuttiUniqueId& id, std::barrier<>& all)>& work);

/// What a case does besides steps. Flags.
enum What : unsigned {
    cpu_first = 1,        // rank 0 is on a CPU
    moves = 2,            // after the first step the layer goes on with another communicator
    saves = 4,            // after the second step all is saved; new layers load it, and make the third
    saves_beside = 8,     // the same by SaveAsync, while the saved layers make the third step, too
    then_cpus = 16,       // the new layers are on CPUs
    from_cpus = 32,       // the layers that are saved are on CPUs
    abandons = 64,        // rank 0 abandons the second step; then all ranks make it
    joins = 128,          // rank r has no batch in the last r steps
    resets = 256,         // what compression has kept is dropped after the second step
    overflows = 512,      // the last rank's gradient has an infinity in the second step
    finds = 1024,         // FindNan names that gradient, and CheckEqual compares at the end
    clips = 2048,         // ClipValue and ClipNorm are called before each Step
    callers = 4096,       // values and gradients are in the caller's memory
    twice = 8192,         // each step has two passes
    stills = 16384,       // one parameter is frozen, and one a buffer
    other_rates = 32768,  // each step has another learning rate, and the second another weight decay of group 1
    unused = 65536,       // in the second step some ranks, or all, leave parameters out
    forwards = 131072     // gradients are ready from the first parameter to the last
};

using Config = tuttiDpConfig_t;
using Weights = std::vector<std::vector<std::uint64_t>>;  // by parameter: the bits of each

struct Case {
    const char* name;
    tuttiDpMode_t mode;
    tuttiDpOptimizerKind_t optimizer;
    tuttiDataType_t type;
    void (*more)(Config& config, int ranks) = nullptr;
    unsigned what = 0;                                               // of What
    Weights (*instead)(const std::vector<Place>& places) = nullptr;  // of train(); then all else has no meaning
};

/// The last rank's weights after three steps. places: of each rank.
Weights train(const Case& c, const std::vector<Place>& places);

/// Outputs and gradients of tuttiDpDataParallel, with a device for each place.
Weights one_process(const std::vector<Place>& places);

/// The last rank's weights after three steps of all ranks with config.onArrival. Whatever the order in which gradients
/// arrive, their sum is the same to the last bit.
Weights applied_on_arrival(const std::vector<Place>& places);

/// What servers (tutti/ps.h) add up, and send to the last of the ranks that are at these places.
Weights pushed_and_pulled(const std::vector<Place>& places);

}  // namespace dp_check
