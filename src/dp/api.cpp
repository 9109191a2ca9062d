// The C functions: they check handles and arguments, and turn errors into codes.
#include <optional>

#include "base/caught.hpp"
#include "dp/backend.hpp"
#include "dp/engine.hpp"
#include "dp/handles.hpp"
#include "dp/on_arrival.hpp"
#include "dp/sized.hpp"
#include "tutti/dp.h"

using namespace tutti;
using namespace tutti::dp;

/// What a tuttiDp_t holds: one of the two, depending on config.onArrival.
struct Layer {
    std::unique_ptr<Engine> engine;
    std::unique_ptr<OnArrival> on_arrival;
    std::optional<tuttiStream_t> stream;  // config.stream of a rank on a GPU
};

struct tuttiDp : Handle<Layer, 0x54754431> {};

namespace {

const Layer& layer_of(tuttiDp_t dp, const char* function) {
    const Layer& layer = held_by(dp, function, "dp");
    if (layer.stream) refuse_capture(function, *layer.stream);
    return layer;
}

Engine& engine(tuttiDp_t dp, const char* function) {
    const Layer& layer = layer_of(dp, function);
    if (layer.on_arrival) fail(tuttiInvalidUsage, "%s is not there with config.onArrival", function);
    return *layer.engine;
}

/// Calls body with the Engine or the OnArrival, whichever the handle holds.
template <class Body>
decltype(auto) on_layer(tuttiDp_t dp, const char* function, Body body) {
    const Layer& layer = layer_of(dp, function);
    return layer.on_arrival ? body(*layer.on_arrival) : body(*layer.engine);
}

}  // namespace

extern "C" {

tuttiResult_t tuttiDpCreateSized(size_t parameterSize, tuttiDp_t* dp, const tuttiDpParameter_t* parameters,
                                 size_t count, const tuttiDpConfig_t* config, tuttiComm_t comm) {
    return guarded([&] {
        int ranks = 0, device = TUTTI_DEVICE_CPU;
        must(tuttiCommCount(comm, &ranks));
        must(tuttiCommDevice(comm, &device));
        Engine::Request request;
        Options& options = request.registration.options;
        try {  // an error here must reach all ranks, so the layer's constructor throws it
            required(dp, "tuttiDpCreate", "dp");
            if (count == 0)
                fail(tuttiInvalidArgument, "tuttiDpCreate: count is 0; at least one parameter was expected");
            required(parameters, "tuttiDpCreate", "parameters");
            const auto all = read_sized("tuttiDpCreate", parameters, count, parameterSize);
            options = read_options(config, all, ranks);
            request.registration.parameters = read_parameters("tuttiDpCreate", all, options);
            refuse_aliases(request.registration.parameters);
        } catch (...) {
            request.refusal = caught();
        }
        auto made = std::make_unique<Layer>();
        if (device != TUTTI_DEVICE_CPU) made->stream = options.stream;
        if (options.onArrival == 1)
            made->on_arrival = std::make_unique<OnArrival>(std::move(request), comm);
        else
            made->engine = std::make_unique<Engine>(std::move(request), comm);
        *dp = keep_handle<tuttiDp>(std::move(made));
    });
}

tuttiResult_t tuttiDpDestroy(tuttiDp_t dp) {
    return guarded([&] {
        const auto layer = take_from(dp, "tuttiDpDestroy", "dp");
        if (layer->on_arrival) layer->on_arrival->leave();
    });
}

tuttiResult_t tuttiDpGradient(tuttiDp_t dp, size_t parameter, void** grad) {
    return guarded([&] {
        required(grad, "tuttiDpGradient", "grad") = on_layer(dp, "tuttiDpGradient", [&](auto& layer) {
            return layer.gradient(layer.checked(parameter, "tuttiDpGradient"));
        });
    });
}

tuttiResult_t tuttiDpData(tuttiDp_t dp, size_t parameter, void** data) {
    return guarded([&] {
        required(data, "tuttiDpData", "data") = on_layer(
            dp, "tuttiDpData", [&](auto& layer) { return layer.data(layer.checked(parameter, "tuttiDpData")); });
    });
}

tuttiResult_t tuttiDpBegin(tuttiDp_t dp) {
    return guarded([&] { on_layer(dp, "tuttiDpBegin", [](auto& layer) { layer.begin(); }); });
}

tuttiResult_t tuttiDpJoin(tuttiDp_t dp) {
    return guarded([&] { engine(dp, "tuttiDpJoin").follow_the_others(); });
}

tuttiResult_t tuttiDpNoSync(tuttiDp_t dp, int on) {
    return guarded([&] {
        if (on != 0 && on != 1) fail(tuttiInvalidArgument, "tuttiDpNoSync: on is %d; 0 or 1 was expected", on);
        on_layer(dp, "tuttiDpNoSync", [&](auto& layer) { layer.no_sync(on == 1); });
    });
}

tuttiResult_t tuttiDpGradReady(tuttiDp_t dp, size_t parameter) {
    return guarded([&] {
        on_layer(dp, "tuttiDpGradReady",
                 [&](auto& layer) { layer.grad_ready(layer.checked(parameter, "tuttiDpGradReady")); });
    });
}

tuttiResult_t tuttiDpGradReadyAt(tuttiDp_t dp, size_t parameter, const void* grad) {
    return guarded([&] {
        constexpr const char* function = "tuttiDpGradReadyAt";
        if (grad == nullptr) fail(tuttiInvalidArgument, "%s: grad is NULL", function);
        on_layer(dp, function, [&](auto& layer) { layer.grad_ready(layer.checked(parameter, function), grad); });
    });
}

tuttiResult_t tuttiDpSynchronize(tuttiDp_t dp) {
    return guarded([&] { on_layer(dp, "tuttiDpSynchronize", [](auto& layer) { layer.synchronize(); }); });
}

tuttiResult_t tuttiDpClipNorm(tuttiDp_t dp, double maxNorm, double* norm) {
    return guarded([&] {
        const double found = engine(dp, "tuttiDpClipNorm").clip(maxNorm, false);
        if (norm != nullptr) *norm = found;
    });
}

tuttiResult_t tuttiDpClipValue(tuttiDp_t dp, double maxValue) {
    return guarded([&] { engine(dp, "tuttiDpClipValue").clip(maxValue, true); });
}

tuttiResult_t tuttiDpUnscale(tuttiDp_t dp, int* finite) {
    return guarded([&] {
        if (finite == nullptr) fail(tuttiInvalidArgument, "tuttiDpUnscale: finite is NULL");
        *finite = engine(dp, "tuttiDpUnscale").unscale();
    });
}

tuttiResult_t tuttiDpGetLossScale(tuttiDp_t dp, double* scale, long long* skipped) {
    return guarded([&] {
        on_layer(dp, "tuttiDpGetLossScale", [&](auto& layer) {
            const LossScale& its = layer.loss_scale();
            if (scale != nullptr) *scale = its.is_on() ? its.state().scale : 1;
            if (skipped != nullptr) *skipped = its.skipped();
        });
    });
}

tuttiResult_t tuttiDpSetGroupSized(size_t groupSize, tuttiDp_t dp, int group, const tuttiDpGroup_t* its) {
    return guarded([&] {
        if (its == nullptr || group < 0)
            fail(tuttiInvalidArgument, "tuttiDpSetGroup: %s", its == nullptr ? "its is NULL" : "group is negative");
        engine(dp, "tuttiDpSetGroup")
            .set_group(static_cast<std::size_t>(group), read_sized("tuttiDpSetGroup", its, 1, groupSize)[0]);
    });
}

tuttiResult_t tuttiDpResetErrorFeedback(tuttiDp_t dp) {
    return guarded([&] { engine(dp, "tuttiDpResetErrorFeedback").reset_error_feedback(); });
}

tuttiResult_t tuttiDpStep(tuttiDp_t dp) {
    return guarded([&] { on_layer(dp, "tuttiDpStep", [](auto& layer) { layer.step(); }); });
}

tuttiResult_t tuttiDpWait(tuttiDp_t dp) {
    return guarded([&] { on_layer(dp, "tuttiDpWait", [](auto& layer) { layer.wait(); }); });
}

tuttiResult_t tuttiDpSetLearningRate(tuttiDp_t dp, double learningRate) {
    return guarded([&] {
        on_layer(dp, "tuttiDpSetLearningRate", [&](auto& layer) {
            if (!(learningRate >= 0))
                fail(tuttiInvalidArgument, "tuttiDpSetLearningRate: learningRate is %g", learningRate);
            layer.set_learning_rate(learningRate);
        });
    });
}

tuttiResult_t tuttiDpGather(tuttiDp_t dp, int unit) {
    return guarded([&] { engine(dp, "tuttiDpGather").gather(unit); });
}

tuttiResult_t tuttiDpRelease(tuttiDp_t dp, int unit) {
    return guarded([&] { engine(dp, "tuttiDpRelease").release(unit); });
}

tuttiResult_t tuttiDpBroadcast(tuttiDp_t dp, int root) {
    return guarded([&] { engine(dp, "tuttiDpBroadcast").broadcast(root); });
}

tuttiResult_t tuttiDpCheckEqual(tuttiDp_t dp) {
    return guarded([&] { engine(dp, "tuttiDpCheckEqual").check_equal(); });
}

tuttiResult_t tuttiDpFindNan(tuttiDp_t dp, int* rank, size_t* parameter) {
    return guarded([&] { engine(dp, "tuttiDpFindNan").find_bad(rank, parameter); });
}

tuttiResult_t tuttiDpGetMemorySized(size_t memorySize, tuttiDp_t dp, tuttiDpMemory_t* memory) {
    return guarded([&] {
        const tuttiDpMemory_t its = on_layer(dp, "tuttiDpGetMemory", [](auto& layer) { return layer.memory(); });
        fill_sized("tuttiDpGetMemory", &required(memory, "tuttiDpGetMemory", "memory"), memorySize, its);
    });
}

tuttiResult_t tuttiDpGetStatisticsSized(size_t statisticsSize, tuttiDp_t dp, tuttiDpStatistics_t* statistics) {
    return guarded([&] {
        const tuttiDpStatistics_t its =
            on_layer(dp, "tuttiDpGetStatistics", [](auto& layer) { return layer.statistics(); });
        fill_sized("tuttiDpGetStatistics", &required(statistics, "tuttiDpGetStatistics", "statistics"), statisticsSize,
                   its);
    });
}

tuttiResult_t tuttiDpGetBucketStatisticsSized(size_t statisticsSize, tuttiDp_t dp, size_t bucket,
                                              tuttiDpBucketStatistics_t* statistics) {
    return guarded([&] {
        Engine& e = engine(dp, "tuttiDpGetBucketStatistics");
        fill_sized("tuttiDpGetBucketStatistics", &required(statistics, "tuttiDpGetBucketStatistics", "statistics"),
                   statisticsSize, e.bucket_statistics(bucket));
    });
}

tuttiResult_t tuttiDpWriteTrace(tuttiDp_t dp, const char* path) {
    return guarded([&] { engine(dp, "tuttiDpWriteTrace").write_trace(path); });
}

tuttiResult_t tuttiDpSave(tuttiDp_t dp, const char* path) {
    return guarded([&] { on_layer(dp, "tuttiDpSave", [&](auto& layer) { layer.save(path, false); }); });
}

tuttiResult_t tuttiDpSaveAsync(tuttiDp_t dp, const char* path) {
    return guarded([&] { on_layer(dp, "tuttiDpSaveAsync", [&](auto& layer) { layer.save(path, true); }); });
}

tuttiResult_t tuttiDpSaveWait(tuttiDp_t dp) {
    return guarded([&] { on_layer(dp, "tuttiDpSaveWait", [](auto& layer) { layer.save_wait(); }); });
}

tuttiResult_t tuttiDpSetNote(tuttiDp_t dp, const char* key, const char* text) {
    return guarded([&] {
        on_layer(dp, "tuttiDpSetNote",
                 [&](auto& layer) { layer.set_note(&required(key, "tuttiDpSetNote", "key"), text); });
    });
}

tuttiResult_t tuttiDpGetNote(tuttiDp_t dp, const char* key, char* text, size_t size) {
    return guarded([&] {
        const Notes& notes = on_layer(dp, "tuttiDpGetNote", [](auto& layer) -> const Notes& { return layer.notes(); });
        const auto found = notes.find(&required(key, "tuttiDpGetNote", "key"));
        if (found == notes.end()) fail(tuttiInvalidUsage, "tuttiDpGetNote: there is no note '%s'", key);
        const std::string& note = found->second;
        if (note.size() >= size)
            fail(tuttiInvalidArgument, "tuttiDpGetNote: '%s' needs %zu bytes, and there is room for %zu", key,
                 note.size() + 1, size);
        std::memcpy(&required(text, "tuttiDpGetNote", "text"), note.c_str(), note.size() + 1);
    });
}

tuttiResult_t tuttiDpLoad(tuttiDp_t dp, const char* path) {
    return guarded([&] { on_layer(dp, "tuttiDpLoad", [&](auto& layer) { layer.load(path); }); });
}

tuttiResult_t tuttiDpMove(tuttiDp_t dp, tuttiComm_t comm) {
    return guarded([&] { on_layer(dp, "tuttiDpMove", [&](auto& layer) { layer.move(comm); }); });
}

tuttiResult_t tuttiDpAbandon(tuttiDp_t dp) {
    return guarded([&] { on_layer(dp, "tuttiDpAbandon", [](auto& layer) { layer.abandon(); }); });
}

}  // extern "C"
