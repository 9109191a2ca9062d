// Parameter servers among the ranks of a communicator, and what their keys must hold: each gradient once, no worker
// further ahead than it may be, the values as of the last push of one's own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "data.hpp"
#include "tutti/ps.h"

namespace tutti::steps {

/// All workers push in every clock and element a power of 8 that is theirs, so that a value says how often each has
/// pushed: up to 7 clocks of 8 ranks are exact in a float32.
class Servers {
  public:
    /// Collective, as run(). all: dice that all ranks throw alike. Throw Failure or Wrong.
    Servers(const World& world, Dice all, Dice& own, Memory& memory, std::size_t most_bytes);
    ~Servers();  // ends requests that are under way
    Servers(const Servers&) = delete;

    void run();

  private:
    struct Key {
        std::string name;
        std::size_t count;
        float *values, *gradient;
    };

    bool works(int rank) const { return config_.dedicated != 1 || rank >= config_.servers; }
    bool only_sums() const { return config_.optimizer.kind == tuttiDpNoOptimizer; }
    void push_and_pull();
    void pull();
    void look_at(const Key& key, int least, int most);
    void wait_for(const std::vector<tuttiPsRequest_t>& requests);
    /// Where ranks have died it may be so, and then the communicator says so.
    void doubt(const std::string& what) {
        if (doubt_.empty()) doubt_ = what;
    }
    void agree(bool ends);

    World world_;
    Dice own_;
    tuttiPs_t ps_ = nullptr;
    tuttiPsConfig_t config_ = TUTTI_PS_CONFIG_INITIALIZER;
    int clocks_, clock_ = 0;
    std::vector<Key> keys_;
    std::string doubt_;
};

}  // namespace tutti::steps
