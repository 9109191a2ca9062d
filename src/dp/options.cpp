#include "dp/options.hpp"

#include <algorithm>
#include <climits>
#include <cmath>
#include <set>

#include "base/result.hpp"
#include "dp/backend.hpp"
#include "dp/sized.hpp"

namespace tutti::dp {
namespace {

constexpr const char* create = "tuttiDpCreate";

bool is_float(DataType type) {
    return type == DataType::float16 || type == DataType::bfloat16 || type == DataType::float32 ||
           type == DataType::float64;
}

DataType float_type(const char* function, const char* what, const char* name, tuttiDataType_t given) {
    const bool known = given >= 0 && given < tuttiNumTypes;
    if (!known || !is_float(static_cast<DataType>(given)))
        fail(tuttiInvalidArgument, "%s: the %s of parameter '%s' is %d; a float of 16, 32 or 64 bits was expected",
             function, what, name, static_cast<int>(given));
    return static_cast<DataType>(given);
}

void check_alignment(const char* function, const char* what, const char* name, const void* at, DataType type) {
    if (reinterpret_cast<std::uintptr_t>(at) % size_of(type) != 0)
        fail(tuttiInvalidArgument, "%s: %s of parameter '%s' is %p, which is not aligned to its type", function, what,
             name, at);
}

void check_optimizer(const Options& o) {
    const tuttiDpOptimizer_t& p = o.optimizer;
    check_kind(create, p);
    if (p.kind != tuttiDpNoOptimizer && !(p.learningRate >= 0))
        fail(tuttiInvalidArgument, "%s: config.optimizer.learningRate is %g; 0 or more was expected", create,
             p.learningRate);
    if (p.kind == tuttiDpLamb && (o.staleness >= 0 || o.onArrival))
        fail(tuttiInvalidArgument, "%s: tuttiDpLamb is for synchronous modes", create);
    if (o.wholeUpdates && p.kind != tuttiDpCallback)
        fail(tuttiInvalidArgument, "%s: config.wholeUpdates is for tuttiDpCallback", create);
    if (o.whole() && o.onArrival)
        fail(tuttiInvalidArgument, "%s: with config.onArrival servers have no whole parameters, which %s", create,
             o.wholeUpdates ? "config.wholeUpdates asks for" : "tuttiDpMuon needs");
    if (p.kind == tuttiDpNoOptimizer && !o.replicated())
        fail(tuttiInvalidArgument,
             "%s: in this mode the layer updates the parameters: config.optimizer.kind must be one of tuttiDpSgd to "
             "tuttiDpCallback",
             create);
}

void check_arrival(const Options& o, bool serves) {
    if (!serves)
        fail(tuttiInvalidArgument,
             "%s: config.onArrival needs a parameter server: tuttiDpServer or tuttiDpShardedServer", create);
    const struct {
        const char* name;
        bool set;
    } fields[] = {{"exactDelay", o.exactDelay != 0},
                  {"compression or hook", o.compresses() && !o.sends_halves()},
                  {"offload", o.offload != 0},
                  {"fp32Gradients", o.fp32Gradients != 0},
                  {"nanCheck", o.nanCheck != 0},
                  {"join", o.join != 0},
                  {"trace", o.trace != 0}};
    for (const auto& [name, set] : fields)
        if (set) fail(tuttiInvalidArgument, "%s: config.%s is not there with config.onArrival", create, name);
}

void check_mode(const Options& o, int ranks) {
    const bool serves = o.mode == tuttiDpServer || o.mode == tuttiDpShardedServer;
    if (o.asynchronous() && !serves)
        fail(tuttiInvalidArgument,
             "%s: config.staleness needs a parameter server: tuttiDpServer or tuttiDpShardedServer", create);
    if (o.onArrival) check_arrival(o, serves);
    if (o.exactDelay && !o.asynchronous())
        fail(tuttiInvalidArgument, "%s: config.exactDelay needs config.staleness", create);
    const bool serves_some = o.mode == tuttiDpServer || (o.mode == tuttiDpShardedServer && o.servers > 0);
    if (o.dedicated && (!serves_some || o.dedicated_servers(ranks) >= ranks))
        fail(tuttiInvalidArgument,
             "%s: config.dedicated needs tuttiDpServer, or tuttiDpShardedServer with config.servers, and a worker "
             "besides the servers",
             create);
    if (o.shardRanks != 0 && (o.mode < tuttiDpZero1 || o.mode > tuttiDpZero3))
        fail(tuttiInvalidArgument, "%s: config.shardRanks is for tuttiDpZero1 to tuttiDpZero3", create);
    if (o.hierarchical && o.shardRanks == 0)
        fail(tuttiInvalidArgument, "%s: config.hierarchical needs config.shardRanks: there is one group", create);
    if (o.compresses() && o.asynchronous())
        fail(tuttiInvalidArgument, "%s: hooks and compression are for synchronous modes", create);
    if (o.compression < 0 || o.compression >= tuttiDpNumCompressions)
        fail(tuttiInvalidArgument, "%s: config.compression %d is unknown", create, static_cast<int>(o.compression));
    if (!(o.topK > 0 && o.topK <= 1))
        fail(tuttiInvalidArgument, "%s: config.topK is %g; a part was expected, more than 0 and at most 1", create,
             o.topK);
    if (o.offload && o.optimizer.kind == tuttiDpNoOptimizer)
        fail(tuttiInvalidArgument, "%s: config.offload needs an optimizer of the layer's: there are no states else",
             create);
    if (!(o.lossScale >= 0) || std::isinf(o.lossScale))
        fail(tuttiInvalidArgument, "%s: config.lossScale is %g; 0 or more was expected", create, o.lossScale);
    if (o.join != 0 && o.staleness >= 0) fail(tuttiInvalidArgument, "%s: config.join is for synchronous modes", create);
    if (o.overlapParamGather && (o.staleness >= 0 || o.onArrival))
        fail(tuttiInvalidArgument,
             "%s: config.overlapParamGather is for synchronous modes: others take values in Begin", create);
    if (o.lossScale > 0 && o.asynchronous())
        fail(tuttiInvalidArgument,
             "%s: config.lossScale is for synchronous modes: here a rank has gone on with another scale before its "
             "gradients are looked at",
             create);
    if (!(o.clipNorm >= 0)) fail(tuttiInvalidArgument, "%s: config.clipNorm is %g", create, o.clipNorm);
    if (!(o.clipValue >= 0)) fail(tuttiInvalidArgument, "%s: config.clipValue is %g", create, o.clipValue);
}

void read_types(const char* function, const tuttiDpParameter_t& g, const Options& options, Parameter& p) {
    p.type = float_type(function, "type", g.name, g.type);
    p.grad_type = g.gradType == tuttiDpSameType ? p.type : float_type(function, "gradType", g.name, g.gradType);
    const bool main = options.fp32Gradients && size_of(p.grad_type) < 4;
    p.main_type = main ? DataType::float32 : p.grad_type;
    if (p.grad == nullptr) p.grad_type = p.main_type;  // the caller writes where it is accumulated
}

/// Types of a parameter that is not trained: any type, and no gradient.
void read_types_of_still(const char* function, const tuttiDpParameter_t& g, Parameter& p) {
    if (g.kind < 0 || g.kind >= tuttiDpNumKinds)
        fail(tuttiInvalidArgument, "%s: the kind of parameter '%s' is %d, which is unknown", function, g.name,
             static_cast<int>(g.kind));
    if (g.type < 0 || g.type >= tuttiNumTypes)
        fail(tuttiInvalidArgument, "%s: the type of parameter '%s' is %d, which is unknown", function, g.name,
             static_cast<int>(g.type));
    if (g.grad != nullptr)
        fail(tuttiInvalidArgument, "%s: parameter '%s' is not trained, but has a gradient", function, g.name);
    p.type = p.grad_type = p.main_type = static_cast<DataType>(g.type);
}

std::vector<std::size_t> shape_of(const char* function, const tuttiDpParameter_t& g) {
    if (g.dims < 0 || g.dims > TUTTI_DP_DIMS)
        fail(tuttiInvalidArgument, "%s: parameter '%s' has %d dimensions; 0 to %d was expected", function, g.name,
             g.dims, TUTTI_DP_DIMS);
    if (g.dims == 0) return {g.count};
    std::size_t left = g.count;
    for (int d = 0; d < g.dims && left > 0; ++d)
        left = g.shape[d] == 0 || left % g.shape[d] != 0 ? 0 : left / g.shape[d];
    if (left != 1)
        fail(tuttiInvalidArgument, "%s: the shape of parameter '%s' has not %zu elements, its count", function, g.name,
             g.count);
    return {g.shape, g.shape + g.dims};
}

tuttiDpConfig_t fields_of(const tuttiDpConfig_t* given) {
    tuttiDpConfig_t known = TUTTI_DP_CONFIG_INITIALIZER;
    known.groupSize = first_size<tuttiDpGroup_t>;  // for configs that end before this field
    return known_part(create, given, known, offsetof(tuttiDpConfig_t, bucketBytes), "TUTTI_DP_CONFIG_INITIALIZER");
}

}  // namespace

void fill_fields(const char* function, std::span<const Field> fields) {
    for (const auto& [name, value, fallback, least, most] : fields) {
        if (value == TUTTI_UNDEF_INT)
            value = fallback;
        else if (value < least || value > most)
            fail(tuttiInvalidArgument, "%s: config.%s is %d; %d %s %d was expected", function, name, value, least,
                 most == least + 1 ? "or" : "to", most);
    }
}

void check_kind(const char* function, const tuttiDpOptimizer_t& optimizer) {
    if (optimizer.kind < 0 || optimizer.kind >= tuttiDpNumOptimizers)
        fail(tuttiInvalidArgument, "%s: config.optimizer.kind %d is unknown", function,
             static_cast<int>(optimizer.kind));
    if (optimizer.kind == tuttiDpCallback && optimizer.update == nullptr)
        fail(tuttiInvalidArgument, "%s: config.optimizer.update is NULL, but its kind is tuttiDpCallback", function);
}

int states_of(tuttiDpOptimizerKind_t kind) {
    return kind == tuttiDpNoOptimizer || kind == tuttiDpSgd     ? 0
           : kind == tuttiDpMomentum || kind == tuttiDpNesterov ? 1
                                                                : 2;
}

Options read_options(const tuttiDpConfig_t* config, const std::vector<tuttiDpParameter_t>& parameters, int ranks) {
    Options o{fields_of(config), {}};
    if (o.mode < 0 || o.mode >= tuttiDpNumModes)
        fail(tuttiInvalidArgument, "%s: config.mode %d is unknown", create, static_cast<int>(o.mode));
    const bool all_callers =
        std::ranges::all_of(parameters, [](const auto& p) { return p.grad != nullptr || p.kind != tuttiDpTrained; });
    const Field fields[] = {
        {"rebuild", o.rebuild, all_callers, 0, 1},
        {"sum", o.sum, 0, 0, 1},
        {"microBatches", o.microBatches, 1, 1, 1 << 20},
        {"fp32Gradients", o.fp32Gradients, 0, 0, 1},
        {"findUnusedParameters", o.findUnusedParameters, 0, 0, 1},
        {"broadcast", o.broadcast, 1, 0, 1},
        {"zeroGrad", o.zeroGrad, 1, 0, 1},
        {"server", o.server, 0, 0, ranks > 1 ? ranks - 1 : INT_MAX},
        {"servers", o.servers, 0, 1, ranks > 1 ? ranks : INT_MAX},
        {"dedicated", o.dedicated, 0, 0, 1},
        {"onArrival", o.onArrival, 0, 0, 1},
        {"shardRanks", o.shardRanks, 0, TUTTI_DP_SHARD_HOST, ranks > 1 ? ranks : INT_MAX},
        {"hierarchical", o.hierarchical, 0, 0, 1},
        {"join", o.join, 0, 0, TUTTI_DP_JOIN_ACTIVE},
        {"wholeUpdates", o.wholeUpdates, 0, 0, 1},
        {"prefetch", o.prefetch, 1, 0, 1 << 20},
        {"overlapParamGather", o.overlapParamGather, 0, 0, 1},
        {"separateGathers", o.separateGathers, 0, 0, 1},
        {"updateThreads", o.updateThreads, o.onArrival == 1 ? 0 : 1, 1, 256},
        {"staleness", o.staleness, -1, o.onArrival == 1 ? TUTTI_DP_UNBOUNDED : 0, o.onArrival == 1 ? INT_MAX : 64},
        {"exactDelay", o.exactDelay, 0, 0, 1},
        {"powerRank", o.powerRank, 2, 1, 64},
        {"trace", o.trace, 0, 0, 1},
        {"offload", o.offload, 0, 0, 1},
        {"elastic", o.elastic, 0, 0, 1},
        {"nanCheck", o.nanCheck, 0, 0, 1},
        {"lossScaleWindow", o.lossScaleWindow, 2000, 0, INT_MAX}};
    for (int* const field : {&o.powerRank, &o.updateThreads})
        if (*field == 0) *field = TUTTI_UNDEF_INT;
    fill_fields(create, fields);
    o.rebuild &= o.mode == tuttiDpBucketed;
    if (o.groupCount < 0 || (o.groupCount > 0 && o.groups == nullptr))
        fail(tuttiInvalidArgument, "%s: config.groups is NULL or groupCount negative", create);
    o.own_groups = read_sized(create, o.groups, static_cast<std::size_t>(o.groupCount), o.groupSize);
    if (o.own_groups.empty()) o.own_groups = {{1.0, o.optimizer.weightDecay, 0, 0}};
    if (o.topK == 0) o.topK = 0.01;
    check_mode(o, ranks);
    check_optimizer(o);
    return o;
}

std::vector<Parameter> read_parameters(const char* function, const std::vector<tuttiDpParameter_t>& given,
                                       const Options& options) {
    std::vector<Parameter> all;
    std::set<std::string> names;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const tuttiDpParameter_t& g = given[i];
        if (g.name == nullptr) fail(tuttiInvalidArgument, "%s: the name of parameter %zu is NULL", function, i);
        Parameter p;
        p.name = g.name;
        if (!names.insert(p.name).second)
            fail(tuttiInvalidArgument, "%s: parameter %zu has the name '%s', as one before it", function, i, g.name);
        p.data = g.data;
        p.grad = g.grad;
        p.count = g.count;
        p.kind = g.kind;
        p.is_trained() ? read_types(function, g, options, p) : read_types_of_still(function, g, p);
        p.group = g.group;
        p.unit = g.unit;
        if (p.count == 0 || p.count > SIZE_MAX / 64)
            fail(tuttiInvalidArgument, "%s: parameter '%s' has a count of %zu", function, g.name, g.count);
        p.shape = shape_of(function, g);
        if (g.group < 0 || static_cast<std::size_t>(g.group) >= options.own_groups.size())
            fail(tuttiInvalidArgument, "%s: parameter '%s' is of group %d; there are %zu", function, g.name, g.group,
                 options.own_groups.size());
        if (g.unit < (all.empty() ? 0 : all.back().unit))
            fail(tuttiInvalidArgument, "%s: parameter '%s' is of unit %d; units may not decrease", function, g.name,
                 g.unit);
        if (p.is_trained() && p.type == DataType::float64 && options.optimizer.kind == tuttiDpCallback)
            fail(tuttiInvalidArgument,
                 "%s: parameter '%s' is of float64, but an update of yours (tuttiDpCallback) gets fp32", function,
                 g.name);
        if (const tuttiDpOptimizerKind_t kind = options.optimizer.kind;
            p.is_trained() && p.type == DataType::float64 && (kind == tuttiDpLamb || kind == tuttiDpMuon))
            fail(tuttiInvalidArgument, "%s: parameter '%s' is of float64, which %s has not", function, g.name,
                 kind == tuttiDpLamb ? "tuttiDpLamb" : "tuttiDpMuon");
        check_alignment(function, "data", g.name, p.data, p.type);
        check_alignment(function, "grad", g.name, p.grad, p.grad_type);
        all.push_back(std::move(p));
    }
    if (!given.empty() && std::ranges::none_of(all, &Parameter::is_trained))
        fail(tuttiInvalidArgument, "%s: none of %zu parameters is trained", function, all.size());
    return all;
}

void refuse_still(const char* function, const Parameter& p) {
    if (!p.is_trained())
        fail(tuttiInvalidUsage, "%s: '%s' is %s, and has no gradient", function, p.name.c_str(),
             p.kind == tuttiDpFrozen ? "frozen" : "a buffer");
}

void check_source(const Parameter& p, const void* gradient, const Backend& backend) {
    constexpr const char* function = "tuttiDpGradReadyAt";
    check_alignment(function, "the gradient", p.name.c_str(), gradient, p.grad_type);
    if (!backend.reaches(gradient))
        fail(tuttiInvalidArgument, "%s: the gradient of '%s' is at %p, in memory that this rank's device can't access",
             function, p.name.c_str(), gradient);
}

void refuse_aliases(const std::vector<Parameter>& parameters) {
    struct Range {
        const std::byte *begin, *end;
        const Parameter* of;
        const char* what;
    };
    std::vector<Range> all;
    for (const Parameter& p : parameters) {
        const auto *data = static_cast<std::byte*>(p.data), *grad = static_cast<std::byte*>(p.grad);
        if (data != nullptr) all.push_back({data, data + p.count * size_of(p.type), &p, "values"});
        if (grad != nullptr) all.push_back({grad, grad + p.count * size_of(p.grad_type), &p, "gradient"});
    }
    std::ranges::sort(all, {}, &Range::begin);
    for (std::size_t i = 1; i < all.size(); ++i) {
        const Range &a = all[i - 1], &b = all[i];
        if (b.begin < a.end)
            fail(tuttiInvalidArgument,
                 "%s: the %s of parameter '%s' and the %s of '%s' share memory, and would be worked on twice: register "
                 "memory that is shared (tied weights) once",
                 create, a.what, a.of->name.c_str(), b.what, b.of->name.c_str());
    }
}

void size_buckets(Options& options, const std::vector<Parameter>& parameters) {
    constexpr std::size_t mib = std::size_t{1} << 20, parts = 16;
    std::size_t all = 0;
    for (const Parameter& p : parameters)
        if (p.is_trained()) all += p.count * size_of(p.main_type);
    if (options.bucketBytes == 0) options.bucketBytes = std::clamp(all / parts, mib, 25 * mib);
    if (options.firstBucketBytes == 0) options.firstBucketBytes = std::min(mib, options.bucketBytes);
}

std::string describe(const Parameter& p) {
    const auto name = [](DataType t) { return std::string(name_of(t)); };
    if (!p.is_trained())
        return text("'%s' (%s[%zu], %s)", p.name.c_str(), name(p.type).c_str(), p.count,
                    p.kind == tuttiDpFrozen ? "frozen" : "a buffer");
    return text("'%s' (%s[%zu], gradient %s reduced as %s, group %d, unit %d, %s gradient)", p.name.c_str(),
                name(p.type).c_str(), p.count, name(p.grad_type).c_str(), name(p.main_type).c_str(), p.group, p.unit,
                p.grad == nullptr ? "the layer's" : "the caller's");
}

std::string Options::describe(bool rates) const {
    std::string all = text(
        "mode %d, buckets of %zu and %zu bytes, rebuild %d, sum %d, micro-batches %d, unused %d, broadcast %d, "
        "server %d of %d, dedicated %d, staleness %d, on arrival %d, exact %d, compression %d (%g, %d), hook %d, clip "
        "%g, offload %d, elastic %d, NaN check %d, loss scale %g (%d), shard ranks %d, hierarchical %d, join %d, "
        "whole %d, prefetch %d, overlap %d, separate gathers %d, clip values %g, ",
        mode, firstBucketBytes, bucketBytes, rebuild, sum, microBatches, findUnusedParameters, broadcast, server,
        servers, dedicated, staleness, onArrival, exactDelay, compression, topK, powerRank, hook != nullptr, clipNorm,
        offload, elastic, nanCheck, lossScale, lossScaleWindow, shardRanks, hierarchical, join, wholeUpdates, prefetch,
        overlapParamGather, separateGathers, clipValue);
    all += text("optimizer %d (%g, %g, %g, %g, %g), %zu groups", optimizer.kind, optimizer.momentum, optimizer.beta1,
                optimizer.beta2, optimizer.epsilon, optimizer.weightDecay, own_groups.size());
    if (!rates) return all;
    all += text(", learning rate %g", optimizer.learningRate);
    for (const tuttiDpGroup_t& g : own_groups)
        all += text(", group (%g, %g, %d)", g.learningRateFactor, g.weightDecay, g.adamW);
    return all;
}

}  // namespace tutti::dp
