// The checked settings of parameter servers, and which server has which part of which key. The same on all ranks.
#pragma once

#include <string>
#include <vector>

#include "base/types.hpp"
#include "tutti/ps.h"

namespace tutti::dp::ps {

/// The config with the defaults filled in.
struct Settings : tuttiPsConfig_t {
    std::vector<int> server_ranks;  // by server number: its rank in the communicator
    std::vector<int> worker_ranks;  // by worker number, ascending

    bool only_sums() const { return optimizer.kind == tuttiDpNoOptimizer; }
    bool bounded() const { return staleness >= 0; }
    /// The number of a rank as a server or worker; -1 if it is none.
    int server_of(int rank) const;
    int worker_of(int rank) const;
    /// The settings that must be equal on all ranks, as text.
    std::string describe() const;
};

struct Key {
    std::string name;
    std::size_t count;
    DataType type;
    const void* initial;             // the caller's memory, valid during Create; nullptr for zeros
    std::vector<std::size_t> parts;  // numbers of its parts, by offset
    std::size_t number;              // tuttiDpPiece_t::parameter in the caller's update callback
    double rate_factor;              // multiplies the worker's learning rate
    double weight_decay;
    DataType push_type = type;  // type of gradients as they are sent
    std::string describe() const;
};

/// Elements [first, first + count) of a key.
struct PartPlace {
    std::size_t key, first, count;
    DataType type;
    DataType push_type;
    int server;                                                            // number of its server
    std::size_t bytes() const { return count * size_of(type); }            // of its values
    std::size_t push_bytes() const { return count * size_of(push_type); }  // of its gradient as it is sent
};

struct Table {
    std::vector<Key> keys;
    std::vector<PartPlace> parts;
};

/// The format in which everything that a server keeps of a part is sent: the number of updates (8 bytes); the states,
/// each an array: the master if there is one, then state 0 and state 1; the values.
struct Snapshot {
    Snapshot(const Settings& settings, const PartPlace& place);
    std::size_t states_at = 8, values_at, bytes;  // offsets in bytes; the total length
    std::size_t arrays, array_bytes;              // how many arrays of states, and the length of each
};

/// Check and copy the arguments of tuttiPsCreate. Throw tuttiInvalidArgument that names the field or the key.
Settings read_settings(const tuttiPsConfig_t* config, int ranks);
std::vector<Key> read_keys(const tuttiPsKey_t* keys, std::size_t count, const Settings& settings);

/// Cuts keys into parts and deals them to servers: the largest first, each to the one with the fewest bytes.
Table deal(std::vector<Key> keys, std::size_t part_bytes, int servers);

}  // namespace tutti::dp::ps
