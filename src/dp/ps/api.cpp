// The C functions of tutti/ps.h.
#include <algorithm>
#include <cstring>

#include "dp/handles.hpp"
#include "dp/ps/node.hpp"

using namespace tutti;
using namespace tutti::dp;

struct tuttiPs : Handle<ps::Node, 0x54755053> {};

namespace {

ps::Node& node(tuttiPs_t ps, const char* function) {
    return held_by(ps, function, "ps");
}

/// Returns the request; waits for it if `request` is nullptr.
void begin_or_wait(ps::Client& client, tuttiPsRequest_t begun, tuttiPsRequest_t* request) {
    if (request != nullptr)
        *request = begun;
    else
        client.wait(begun);
}

}  // namespace

extern "C" {

tuttiResult_t tuttiPsCreate(tuttiPs_t* ps, const tuttiPsKey_t* keys, size_t count, const tuttiPsConfig_t* config,
                            tuttiComm_t comm) {
    return guarded([&] {
        int ranks = 0;
        must(tuttiCommCount(comm, &ranks));
        ps::Node::Request request;
        try {  // an error here must reach all ranks, so the Node throws it
            required(ps, "tuttiPsCreate", "ps");
            if (count == 0) fail(tuttiInvalidArgument, "tuttiPsCreate: count is 0; at least one key was expected");
            required(keys, "tuttiPsCreate", "keys");
            request.settings = ps::read_settings(config, ranks);
            request.keys = ps::read_keys(keys, count, request.settings);
        } catch (...) {
            request.refusal = caught();
        }
        auto made = std::make_unique<ps::Node>(std::move(request), comm);
        *ps = keep_handle<tuttiPs>(std::move(made));
    });
}

tuttiResult_t tuttiPsPush(tuttiPs_t ps, size_t key, const void* gradient, tuttiPsRequest_t* request) {
    return guarded([&] {
        ps::Client& client = node(ps, "tuttiPsPush").client("tuttiPsPush", key);
        if (gradient == nullptr) fail(tuttiInvalidArgument, "tuttiPsPush: gradient is NULL");
        begin_or_wait(client, client.request("tuttiPsPush", key, gradient, nullptr), request);
    });
}

tuttiResult_t tuttiPsPull(tuttiPs_t ps, size_t key, void* values, tuttiPsRequest_t* request) {
    return guarded([&] {
        ps::Client& client = node(ps, "tuttiPsPull").client("tuttiPsPull", key);
        if (values == nullptr) fail(tuttiInvalidArgument, "tuttiPsPull: values is NULL");
        begin_or_wait(client, client.request("tuttiPsPull", key, nullptr, values), request);
    });
}

tuttiResult_t tuttiPsPushPull(tuttiPs_t ps, size_t key, const void* gradient, void* values, tuttiPsRequest_t* request) {
    return guarded([&] {
        ps::Client& client = node(ps, "tuttiPsPushPull").client("tuttiPsPushPull", key);
        if (gradient == nullptr || values == nullptr)
            fail(tuttiInvalidArgument, "tuttiPsPushPull: %s is NULL", gradient == nullptr ? "gradient" : "values");
        begin_or_wait(client, client.request("tuttiPsPushPull", key, gradient, values), request);
    });
}

tuttiResult_t tuttiPsWait(tuttiPs_t ps, tuttiPsRequest_t request) {
    return guarded([&] { node(ps, "tuttiPsWait").client("tuttiPsWait").wait(request); });
}

tuttiResult_t tuttiPsClock(tuttiPs_t ps) {
    return guarded([&] { node(ps, "tuttiPsClock").client("tuttiPsClock").clock(); });
}

tuttiResult_t tuttiPsSetLearningRate(tuttiPs_t ps, double learningRate) {
    return guarded([&] {
        ps::Client& client = node(ps, "tuttiPsSetLearningRate").client("tuttiPsSetLearningRate");
        if (!(learningRate >= 0))
            fail(tuttiInvalidArgument, "tuttiPsSetLearningRate: learningRate is %g", learningRate);
        client.set_learning_rate(learningRate);
    });
}

tuttiResult_t tuttiPsServe(tuttiPs_t ps) {
    return guarded([&] { node(ps, "tuttiPsServe").serve(); });
}

tuttiResult_t tuttiPsGetStatistics(tuttiPs_t ps, tuttiPsStatistics_t* statistics) {
    return guarded([&] {
        const ps::Node& its = node(ps, "tuttiPsGetStatistics");
        tuttiPsStatistics_t& out = required(statistics, "tuttiPsGetStatistics", "statistics");
        if (out.magic != TUTTI_PS_CONFIG_MAGIC || out.size < offsetof(tuttiPsStatistics_t, clock))
            fail(tuttiInvalidArgument,
                 "tuttiPsGetStatistics: statistics was not initialized with TUTTI_PS_STATISTICS_INITIALIZER");
        tuttiPsStatistics_t all = its.statistics();
        all.size = out.size;
        all.version = out.version;
        std::memcpy(&out, &all, std::min(out.size, sizeof all));
    });
}

tuttiResult_t tuttiPsAbort(tuttiPs_t ps) {
    return guarded([&] { node(ps, "tuttiPsAbort").abort(); });
}

tuttiResult_t tuttiPsDestroy(tuttiPs_t ps) {
    return guarded([&] { take_from(ps, "tuttiPsDestroy", "ps")->leave(); });
}

}  // extern "C"
