// Gloo in the loop. peer_gloo DIRECTORY ALGORITHM poll|sleep COLLECTIVE SIZES SECONDS BATCHES, started by tutti-run.
// DIRECTORY: an empty one, where the ranks find each other. ALGORITHM: function (gloo::allreduce and the like, which
// sleep), or one of its classes, which can poll: ring_chunked or halving_doubling of all_reduce, ring of all_gather,
// halving_doubling of reduce_scatter, one_to_all of broadcast.
#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loop.h"

namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
std::string algorithm;
// Gloo's classes are bound to buffers and a count.
std::map<float*, std::unique_ptr<gloo::Algorithm>> bound;

template <typename Class, typename... Arguments>
void run_bound_to(float* key, const Arguments&... arguments) {
    auto& made = bound[key];
    if (!made) made = std::make_unique<Class>(context, arguments...);
    made->run();
}

void all_reduce(const float* in, float* out, std::size_t count) {
    if (algorithm == "function") {
        gloo::AllreduceOptions options(context);
        options.setInput(const_cast<float*>(in), count);
        options.setOutput(out, count);
        options.setReduceFunction(
            [](void* to, const void* a, const void* b, std::size_t n) { gloo::sum<float>(to, a, b, n); });
        gloo::allreduce(options);
        return;
    }
    std::memcpy(out, in, count * sizeof(float));  // the classes work in place
    const std::vector<float*> place{out};
    if (algorithm == "ring_chunked")
        run_bound_to<gloo::AllreduceRingChunked<float>>(out, place, static_cast<int>(count));
    else
        run_bound_to<gloo::AllreduceHalvingDoubling<float>>(out, place, static_cast<int>(count));
}

void all_gather(const float* in, float* out, std::size_t count) {
    if (algorithm == "ring") {
        run_bound_to<gloo::AllgatherRing<float>>(out, std::vector<const float*>{in}, out, static_cast<int>(count));
        return;
    }
    gloo::AllgatherOptions options(context);
    options.setInput(const_cast<float*>(in), count);
    options.setOutput(out, count * context->size);
    gloo::allgather(options);
}

void reduce_scatter(const float* in, float* out, std::size_t count) {
    static std::map<float*, std::vector<float>> places;  // of outputs: it works in place
    auto& place = places[out];
    place.assign(in, in + count * context->size);
    run_bound_to<gloo::ReduceScatterHalvingDoubling<float>>(out, std::vector<float*>{place.data()},
                                                            static_cast<int>(place.size()),
                                                            std::vector<int>(context->size, static_cast<int>(count)));
    std::memcpy(out, place.data(), count * sizeof(float));
}

void broadcast(const float*, float* out, std::size_t count) {
    if (algorithm == "one_to_all") {
        run_bound_to<gloo::BroadcastOneToAll<float>>(out, std::vector<float*>{out}, count);
        return;
    }
    gloo::BroadcastOptions options(context);
    options.setOutput(out, count);
    options.setRoot(0);
    gloo::broadcast(options);
}

void all_to_all(const float* in, float* out, std::size_t count) {
    gloo::AlltoallOptions options(context);
    options.setInput(const_cast<float*>(in), count * context->size);
    options.setOutput(out, count * context->size);
    gloo::alltoall(options);
}

constexpr call calls[] = {{"all_reduce", all_reduce}, {"all_gather", all_gather}, {"reduce_scatter", reduce_scatter},
                          {"broadcast", broadcast},   {"all_to_all", all_to_all}, {nullptr, nullptr}};

double largest(double mine) {
    static float all[64];  // polling pairs carry no functions; 64 floats hold every rank's microseconds
    std::memset(all, 0, sizeof all);
    all[context->rank % 64] = static_cast<float>(mine);
    static gloo::AllreduceHalvingDoubling<float> exchange(context, {all}, 64);
    if (algorithm == "function") {
        static float in[64];
        std::memcpy(in, all, sizeof in);
        all_reduce(in, all, 64);
    } else {
        exchange.run();
    }
    double most = 0;
    for (const float time : all) most = std::max(most, static_cast<double>(time));
    return most;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 8 || !std::getenv("RANK") || !std::getenv("WORLD_SIZE")) {
        std::fprintf(
            stderr,
            "usage: tutti-run -n N peer_gloo DIRECTORY ALGORITHM poll|sleep COLLECTIVE SIZES SECONDS BATCHES\n");
        return 2;
    }
    const int rank = std::atoi(std::getenv("RANK")), ranks = std::atoi(std::getenv("WORLD_SIZE"));
    pin_to_core(rank);
    algorithm = argv[2];
    gloo::transport::tcp::attr address;
    const char* interface = std::getenv("COMPARE_INTERFACE");
    address.iface = interface ? interface : "lo";
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore store(argv[1]);
    context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    const bool poll = std::strcmp(argv[3], "poll") == 0;
    if (algorithm != "function")
        for (int peer = 0; peer < ranks; ++peer)
            if (peer != rank) context->getPair(peer)->setSync(true, poll);
    const library gloo_library{rank, ranks, calls, largest, nullptr};
    const effort effort = effort_of(argv[6], argv[7]);
    time_sizes(&gloo_library, argv[4], argv[5], &effort);
    largest(0);     // nobody leaves while another still listens
    std::_Exit(0);  // its threads outlive main otherwise
}
