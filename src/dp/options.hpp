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
    std::size_t bucket_bytes, first_bucket_bytes;
    bool rebuild, sum, fp32_gradients, zero_unused, broadcast, zero, dedicated, exact_delay, trace, offload;
    int micro_batches, server, servers;
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

/// What the C API was given. Throws tuttiInvalidArgument that names the field or the parameter.
std::vector<Parameter> read_parameters(const tuttiDpParameter_t* parameters, std::size_t count, const Options& options);
Options read_options(const tuttiDpConfig_t* config, const tuttiDpParameter_t* parameters, std::size_t count, int ranks);

/// What has to be equal on all ranks, as text: "'w1' (float32[100], gradient float32, group 0, unit 0)".
std::string describe(const Parameter& parameter);

/// How many numbers per element the optimizer keeps.
int states_of(tuttiDpOptimizerKind_t kind);

}  // namespace tutti::dp
