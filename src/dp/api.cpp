// The C functions: they check handles and arguments, and turn errors into codes.
#include "base/caught.hpp"
#include "dp/engine.hpp"
#include "dp/handles.hpp"
#include "dp/sized.hpp"
#include "tutti/dp.h"

using namespace tutti;
using namespace tutti::dp;

struct tuttiDp : Handle<Engine, 0x54754431> {};

namespace {

Engine& engine(tuttiDp_t dp, const char* function) {
    return held_by(dp, function, "dp");
}

}  // namespace

extern "C" {

tuttiResult_t tuttiDpCreateSized(size_t parameterSize, tuttiDp_t* dp, const tuttiDpParameter_t* parameters,
                                 size_t count, const tuttiDpConfig_t* config, tuttiComm_t comm) {
    return guarded([&] {
        int ranks = 0;
        must(tuttiCommCount(comm, &ranks));
        Engine::Request request;
        Options& options = request.registration.options;
        try {  // the others have to hear what is wrong here
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
        auto engine = std::make_unique<Engine>(std::move(request), comm);
        *dp = keep_handle<tuttiDp>(std::move(engine));
    });
}

tuttiResult_t tuttiDpDestroy(tuttiDp_t dp) {
    return guarded([&] { take_from(dp, "tuttiDpDestroy", "dp").reset(); });
}

tuttiResult_t tuttiDpGradient(tuttiDp_t dp, size_t parameter, void** grad) {
    return guarded([&] {
        Engine& e = engine(dp, "tuttiDpGradient");
        required(grad, "tuttiDpGradient", "grad") = e.gradient(e.checked(parameter, "tuttiDpGradient"));
    });
}

tuttiResult_t tuttiDpData(tuttiDp_t dp, size_t parameter, void** data) {
    return guarded([&] {
        Engine& e = engine(dp, "tuttiDpData");
        required(data, "tuttiDpData", "data") = e.data(e.checked(parameter, "tuttiDpData"));
    });
}

tuttiResult_t tuttiDpBegin(tuttiDp_t dp) {
    return guarded([&] { engine(dp, "tuttiDpBegin").begin(); });
}

tuttiResult_t tuttiDpNoSync(tuttiDp_t dp, int on) {
    return guarded([&] {
        if (on != 0 && on != 1) fail(tuttiInvalidArgument, "tuttiDpNoSync: on is %d; 0 or 1 was expected", on);
        engine(dp, "tuttiDpNoSync").no_sync(on == 1);
    });
}

tuttiResult_t tuttiDpGradReady(tuttiDp_t dp, size_t parameter) {
    return guarded([&] {
        Engine& e = engine(dp, "tuttiDpGradReady");
        e.grad_ready(e.checked(parameter, "tuttiDpGradReady"));
    });
}

tuttiResult_t tuttiDpSynchronize(tuttiDp_t dp) {
    return guarded([&] { engine(dp, "tuttiDpSynchronize").synchronize(); });
}

tuttiResult_t tuttiDpClipNorm(tuttiDp_t dp, double maxNorm, double* norm) {
    return guarded([&] {
        const double found = engine(dp, "tuttiDpClipNorm").clip(maxNorm);
        if (norm != nullptr) *norm = found;
    });
}

tuttiResult_t tuttiDpUnscale(tuttiDp_t dp, int* finite) {
    return guarded([&] {
        if (finite == nullptr) fail(tuttiInvalidArgument, "tuttiDpUnscale: finite is NULL");
        *finite = engine(dp, "tuttiDpUnscale").unscale();
    });
}

tuttiResult_t tuttiDpGetLossScale(tuttiDp_t dp, double* scale, long long* skipped) {
    return guarded([&] {
        const LossScale& its = engine(dp, "tuttiDpGetLossScale").loss_scale();
        if (scale != nullptr) *scale = its.is_on() ? its.state().scale : 1;
        if (skipped != nullptr) *skipped = its.skipped();
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
    return guarded([&] { engine(dp, "tuttiDpStep").step(); });
}

tuttiResult_t tuttiDpWait(tuttiDp_t dp) {
    return guarded([&] { engine(dp, "tuttiDpWait").wait(); });
}

tuttiResult_t tuttiDpSetLearningRate(tuttiDp_t dp, double learningRate) {
    return guarded([&] {
        Engine& e = engine(dp, "tuttiDpSetLearningRate");
        if (!(learningRate >= 0))
            fail(tuttiInvalidArgument, "tuttiDpSetLearningRate: learningRate is %g", learningRate);
        e.set_learning_rate(learningRate);
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
        const Engine& e = engine(dp, "tuttiDpGetMemory");
        fill_sized("tuttiDpGetMemory", &required(memory, "tuttiDpGetMemory", "memory"), memorySize, e.memory());
    });
}

tuttiResult_t tuttiDpGetStatisticsSized(size_t statisticsSize, tuttiDp_t dp, tuttiDpStatistics_t* statistics) {
    return guarded([&] {
        Engine& e = engine(dp, "tuttiDpGetStatistics");
        fill_sized("tuttiDpGetStatistics", &required(statistics, "tuttiDpGetStatistics", "statistics"), statisticsSize,
                   e.statistics());
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
    return guarded([&] { engine(dp, "tuttiDpSave").save(path, false); });
}

tuttiResult_t tuttiDpSaveAsync(tuttiDp_t dp, const char* path) {
    return guarded([&] { engine(dp, "tuttiDpSaveAsync").save(path, true); });
}

tuttiResult_t tuttiDpSaveWait(tuttiDp_t dp) {
    return guarded([&] { engine(dp, "tuttiDpSaveWait").save_wait(); });
}

tuttiResult_t tuttiDpSetNote(tuttiDp_t dp, const char* key, const char* text) {
    return guarded([&] {
        Notes& notes = engine(dp, "tuttiDpSetNote").notes();
        required(key, "tuttiDpSetNote", "key");
        text != nullptr ? void(notes[key] = text) : void(notes.erase(key));
    });
}

tuttiResult_t tuttiDpGetNote(tuttiDp_t dp, const char* key, char* text, size_t size) {
    return guarded([&] {
        const Notes& notes = engine(dp, "tuttiDpGetNote").notes();
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
    return guarded([&] { engine(dp, "tuttiDpLoad").load(path); });
}

tuttiResult_t tuttiDpMove(tuttiDp_t dp, tuttiComm_t comm) {
    return guarded([&] { engine(dp, "tuttiDpMove").move(comm); });
}

tuttiResult_t tuttiDpAbandon(tuttiDp_t dp) {
    return guarded([&] { engine(dp, "tuttiDpAbandon").abandon(); });
}

}  // extern "C"
