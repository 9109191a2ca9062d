// What a parameter server was asked for, checked, and which server has which part of which key. The same on all ranks.
#pragma once

#include <string>
#include <vector>

#include "base/types.hpp"
#include "tutti/ps.h"

namespace tutti::dp::ps {

/// The config with the defaults filled in. `optimizer.kind` tuttiDpNoOptimizer: servers only sum.
struct Settings : tuttiPsConfig_t {
    std::vector<int> server_ranks;  // of the communicator, by the server's number
    std::vector<int> worker_ranks;  // ascending, by the worker's number

    bool only_sums() const { return optimizer.kind == tuttiDpNoOptimizer; }
    bool bounded() const { return staleness >= 0; }
    /// The server's or worker's number of a rank; -1: it is none.
    int server_of(int rank) const;
    int worker_of(int rank) const;
    /// What has to be equal on all ranks, as text.
    std::string describe() const;
};

struct Key {
    std::string name;
    std::size_t count;
    DataType type;
    const void* initial;             // the caller's, during Create
    std::vector<std::size_t> parts;  // their numbers, by offset
    std::size_t number;              // what an update of the caller's knows it by
    double rate_factor;              // of the worker's learning rate
    double weight_decay;
    DataType push_type = type;  // of gradients as they are pushed
    std::string describe() const;
};

/// Elements [first, first + count) of a key.
struct PartPlace {
    std::size_t key, first, count;
    DataType type;
    DataType push_type;
    int server;                                                            // its number
    std::size_t bytes() const { return count * size_of(type); }            // of values
    std::size_t push_bytes() const { return count * size_of(push_type); }  // of a gradient
};

struct Table {
    std::vector<Key> keys;
    std::vector<PartPlace> parts;
};

/// All that a server has of a part, side by side: how many updates it has had, 8 bytes; the optimizer's states, an
/// array each: the master if there is one, and then state 0 and 1; the values.
struct Snapshot {
    Snapshot(const Settings& settings, const PartPlace& place);
    std::size_t states_at = 8, values_at, bytes;  // bytes from the start; all together
    std::size_t arrays, array_bytes;              // of states, and of one of them
};

/// What the C API was given. Throw tuttiInvalidArgument that names the field or the key.
Settings read_settings(const tuttiPsConfig_t* config, int ranks);
std::vector<Key> read_keys(const tuttiPsKey_t* keys, std::size_t count, const Settings& settings);

/// Cuts keys into parts and deals them to servers: the largest first, each to the one with the fewest bytes.
Table deal(std::vector<Key> keys, std::size_t part_bytes, int servers);

}  // namespace tutti::dp::ps
