// The caller's parameters and config, checked, with the defaults filled in.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "tutti/dp.h"

namespace tutti::dp {

class Backend;

struct Parameter {
    std::string name;
    void* data;  // the caller's memory of the values; nullptr if the layer has it
    void* grad;  // the caller's memory of the gradient; nullptr if the layer has it
    std::size_t count;
    DataType type;       // of the values
    DataType grad_type;  // of the gradient that the caller writes
    DataType main_type;  // of the gradient that is accumulated and reduced
    int group, unit;
    std::vector<std::size_t> shape;  // the product is count
    tuttiDpKind_t kind = tuttiDpTrained;
    bool is_trained() const { return kind == tuttiDpTrained; }
    bool accumulates() const { return main_type != grad_type; }  // GradReady adds to a main gradient
};

/// A whole number of a config. TUTTI_UNDEF_INT stands for the fallback.
struct Field {
    const char* name;
    int& value;
    int fallback, least, most;
};

/// Sets the fallbacks. Throws tuttiInvalidArgument for a number that is out of its limits.
void fill_fields(const char* function, std::span<const Field> fields);

/// Throws tuttiInvalidArgument if config.optimizer is of no known kind, or lacks its callback.
void check_kind(const char* function, const tuttiDpOptimizer_t& optimizer);

/// The config with the defaults filled in, with these exceptions: bucketBytes and firstBucketBytes may be 0 until
/// size_buckets(), servers may be 0 for all ranks, and staleness -1 means synchronous.
struct Options : tuttiDpConfig_t {
    std::vector<tuttiDpGroup_t> own_groups;  // replaces `groups`; at least one

    /// Whether the Engine makes steps in the background (config.staleness). False with config.onArrival.
    bool asynchronous() const { return staleness >= 0 && !onArrival; }
    // Of so many ranks, in tuttiDpServer and tuttiDpShardedServer. One rank alone, with which a newcomer's layer
    // begins, serves and works, whatever was asked for.
    int server_of(int ranks) const { return ranks > 1 ? server : 0; }
    int servers_of(int ranks) const { return mode == tuttiDpServer ? 1 : servers > 0 && ranks > 1 ? servers : ranks; }
    bool serves(int rank, int ranks) const {
        return mode == tuttiDpServer ? rank == server_of(ranks) : rank < servers_of(ranks);
    }
    /// The number of ranks that serve and do not work.
    int dedicated_servers(int ranks) const { return dedicated && ranks > 1 ? servers_of(ranks) : 0; }
    bool serves_only(int rank, int ranks) const { return dedicated_servers(ranks) > 0 && serves(rank, ranks); }
    /// Every rank has all gradients and updates all parameters itself.
    bool replicated() const { return mode == tuttiDpNaive || mode == tuttiDpBucketed; }
    /// Parameters are updated as a whole: each has one owner.
    bool whole() const { return wholeUpdates == 1 || optimizer.kind == tuttiDpMuon; }
    /// A hook or a built-in compression replaces the reduction of buckets.
    bool compresses() const { return compression != tuttiDpNoCompression || hook != nullptr; }
    /// Gradients of float32 travel in 16 bits.
    bool sends_halves() const { return hook == nullptr && (compression == tuttiDpFp16 || compression == tuttiDpBf16); }
    /// A bucket's gradients have memory only until they are reduced; then only the owned range is kept.
    bool passing_gradients() const { return mode == tuttiDpZero2 || mode == tuttiDpZero3 || asynchronous(); }
    /// A rank that is ahead waits before it borrows memory for more gradients. Not where ranks may make calls in
    /// different orders, in which they would wait for each other.
    bool bounds_gradients() const { return passing_gradients() && !asynchronous() && !gathers_apart() && !nanCheck; }
    /// New values are gathered during the next forward pass, not in Step.
    bool overlaps_gather() const { return overlapParamGather && mode >= tuttiDpServer && mode <= tuttiDpZero2; }
    /// Gathers of values have a communicator and a queue of their own.
    bool gathers_apart() const { return separateGathers && (mode == tuttiDpZero3 || overlaps_gather()); }
    /// The options that must be equal on all ranks, as text. rates: include the learning rate and the groups', which
    /// programs change.
    std::string describe(bool rates = true) const;
};

/// What was registered, the same on all ranks. Constant, except for the learning rate and the groups.
struct Registration {
    std::vector<Parameter> parameters;
    Options options{};
};

/// Check and copy the arguments of tuttiDpCreate. Throw tuttiInvalidArgument that names the field or the parameter.
std::vector<Parameter> read_parameters(const char* function, const std::vector<tuttiDpParameter_t>& parameters,
                                       const Options& options);
Options read_options(const tuttiDpConfig_t* config, const std::vector<tuttiDpParameter_t>& parameters, int ranks);

/// Throws if the parameter is not trained (frozen, or a buffer).
void refuse_still(const char* function, const Parameter& parameter);
/// Throws tuttiInvalidArgument unless a gradient of the parameter can lie there, where `backend` works.
void check_source(const Parameter& parameter, const void* gradient, const Backend& backend);

/// Throws if the memory of two parameters overlaps: it would be updated, or reduced, twice.
void refuse_aliases(const std::vector<Parameter>& parameters);

/// Sets the bucket sizes that were not given. As long as communication keeps up, only the last bucket can't overlap the
/// backward pass, because it is complete when the pass ends. So a bucket has a sixteenth of all gradients, but at least
/// 1 MiB, so that the cost per call stays small, and at most 25 MiB, beyond which size gains nothing.
void size_buckets(Options& options, const std::vector<Parameter>& parameters);

/// What must be equal on all ranks, as text: "'w1' (float32[100], gradient float32 reduced as float32, group 0, unit 0,
/// the layer's gradient)".
std::string describe(const Parameter& parameter);

/// How many states per element the optimizer keeps, without the master.
int states_of(tuttiDpOptimizerKind_t kind);

}  // namespace tutti::dp
