// What the caller asked for, checked, with the defaults filled in.
#pragma once

#include <string>
#include <vector>

#include "base/types.hpp"
#include "tutti/dp.h"

namespace tutti::dp {

struct Parameter {
    std::string name;
    void* data;  // the caller's; nullptr: the layer's
    void* grad;  // the same
    std::size_t count;
    DataType type;
    DataType grad_type;  // what the caller writes
    DataType main_type;  // what is added up and reduced
    int group, unit;
    bool accumulates() const { return main_type != grad_type; }  // GradReady adds to a main gradient
};

struct Options {
    tuttiDpMode_t mode;
    std::size_t bucket_bytes, first_bucket_bytes;  // 0: what size_buckets() makes of it
    bool rebuild, sum, fp32_gradients, zero_unused, broadcast, zero, dedicated, exact_delay, trace, offload, elastic,
        nan_check;
    int micro_batches, server;
    int servers;    // 0: all ranks, how many there are
    int staleness;  // -1: synchronous
    tuttiDpOptimizer_t optimizer;
    std::vector<tuttiDpGroup_t> groups;
    double clip_norm;
    tuttiDpCompression_t compression;
    double top_k;
    int power_rank;
    tuttiDpHook_t hook;
    void* hook_user;
    tuttiStream_t stream;

    bool asynchronous() const { return staleness >= 0; }
    /// Every rank has all gradients and updates all parameters itself.
    bool replicated() const { return mode == tuttiDpNaive || mode == tuttiDpBucketed; }
    /// A bucket's gradients live only until they are reduced.
    bool passing_gradients() const { return mode == tuttiDpZero2 || mode == tuttiDpZero3 || asynchronous(); }
    /// What has to be equal on all ranks, as text.
    std::string describe() const;
};

/// What was registered, the same on all ranks. Constant but for the learning rate.
struct Registration {
    std::vector<Parameter> parameters;
    Options options{};
};

/// What the C API was given. Throws tuttiInvalidArgument that names the field or the parameter.
std::vector<Parameter> read_parameters(const char* function, const tuttiDpParameter_t* parameters, std::size_t count,
                                       const Options& options);
Options read_options(const tuttiDpConfig_t* config, const tuttiDpParameter_t* parameters, std::size_t count, int ranks);

/// Throws if two parameters' memory overlaps: they would be updated, or reduced, twice.
void refuse_aliases(const std::vector<Parameter>& parameters);

/// The sizes that were not given. What can't be hidden behind a backward pass is its last bucket, which is complete
/// when the pass ends, and, while communication keeps up, no more than that: so a bucket is at most a sixteenth of all
/// gradients; but not so small that calls cost more than bytes, nor larger than 25 MiB, where nothing is gained by
/// size.
void size_buckets(Options& options, const std::vector<Parameter>& parameters);

/// What has to be equal on all ranks, as text: "'w1' (float32[100], gradient float32, group 0, unit 0)".
std::string describe(const Parameter& parameter);

/// How many numbers per element the optimizer keeps.
int states_of(tuttiDpOptimizerKind_t kind);

}  // namespace tutti::dp
