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
    std::vector<std::size_t> shape;  // the product is count
    tuttiDpKind_t kind = tuttiDpTrained;
    bool is_trained() const { return kind == tuttiDpTrained; }
    bool accumulates() const { return main_type != grad_type; }  // GradReady adds to a main gradient
};

/// The config, with the defaults filled in; but bucketBytes and firstBucketBytes of 0 are for size_buckets(), servers
/// of 0 are all ranks, and a staleness of -1 is synchronous.
struct Options : tuttiDpConfig_t {
    std::vector<tuttiDpGroup_t> own_groups;  // instead of `groups`; at least one

    /// Steps of all ranks that are made later, by the engine; not config.onArrival.
    bool asynchronous() const { return staleness >= 0 && !onArrival; }
    /// Ranks that serve and do not work.
    int dedicated_servers() const { return !dedicated ? 0 : mode == tuttiDpServer ? 1 : servers; }
    bool serves_only(int rank) const { return dedicated && (mode == tuttiDpServer ? rank == server : rank < servers); }
    /// Every rank has all gradients and updates all parameters itself.
    bool replicated() const { return mode == tuttiDpNaive || mode == tuttiDpBucketed; }
    /// Updates are of whole parameters: each has one owner.
    bool whole() const { return wholeUpdates == 1 || optimizer.kind == tuttiDpMuon; }
    /// Something else stands in for the sum of a bucket.
    bool compresses() const { return compression != tuttiDpNoCompression || hook != nullptr; }
    /// Gradients of float32 travel in 16 bits.
    bool sends_halves() const { return hook == nullptr && (compression == tuttiDpFp16 || compression == tuttiDpBf16); }
    /// A bucket's gradients live only until they are reduced.
    bool passing_gradients() const { return mode == tuttiDpZero2 || mode == tuttiDpZero3 || asynchronous(); }
    /// Values come beside the next forward pass, and not in Step.
    bool overlaps_gather() const { return overlapParamGather && mode >= tuttiDpServer && mode <= tuttiDpZero2; }
    /// What has to be equal on all ranks, as text. rates: with the learning rate, and those of groups, which programs
    /// change.
    std::string describe(bool rates = true) const;
};

/// What was registered, the same on all ranks. Constant but for the learning rate, and those of groups.
struct Registration {
    std::vector<Parameter> parameters;
    Options options{};
};

/// What the C API was given. Throws tuttiInvalidArgument that names the field or the parameter.
std::vector<Parameter> read_parameters(const char* function, const std::vector<tuttiDpParameter_t>& parameters,
                                       const Options& options);
Options read_options(const tuttiDpConfig_t* config, const std::vector<tuttiDpParameter_t>& parameters, int ranks);

/// Throws unless the parameter is trained.
void refuse_still(const char* function, const Parameter& parameter);

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
