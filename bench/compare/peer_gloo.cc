// Gloo in the loop. peer_gloo DIRECTORY ALGORITHM poll|sleep SIZES SECONDS BATCHES, started by tutti-run.
// DIRECTORY: an empty one, where the ranks find each other. ALGORITHM: ring_chunked, halving_doubling (its classes,
// which can poll), or function (gloo::allreduce, which sleeps).
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "loop.h"

namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
std::string algorithm;
// Gloo's classes are bound to a buffer and a count, and work in place.
std::map<float*, std::unique_ptr<gloo::Algorithm>> bound;

gloo::Algorithm& bound_to(float* out, std::size_t count) {
    auto& made = bound[out];
    if (!made && algorithm == "ring_chunked")
        made = std::make_unique<gloo::AllreduceRingChunked<float>>(context, std::vector<float*>{out},
                                                                   static_cast<int>(count));
    else if (!made)
        made = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context, std::vector<float*>{out},
                                                                       static_cast<int>(count));
    return *made;
}

void sum(const float* in, float* out, std::size_t count) {
    if (algorithm == "function") {
        gloo::AllreduceOptions options(context);
        options.setInput(const_cast<float*>(in), count);
        options.setOutput(out, count);
        options.setReduceFunction(
            [](void* to, const void* a, const void* b, std::size_t n) { gloo::sum<float>(to, a, b, n); });
        gloo::allreduce(options);
        return;
    }
    std::memcpy(out, in, count * sizeof(float));
    bound_to(out, count).run();
}

double largest(double mine) {
    static float all[64];  // polling pairs carry no functions; 64 floats hold every rank's microseconds
    std::memset(all, 0, sizeof all);
    all[context->rank % 64] = static_cast<float>(mine);
    static gloo::AllreduceHalvingDoubling<float> exchange(context, {all}, 64);
    if (algorithm == "function") {
        static float in[64];
        std::memcpy(in, all, sizeof in);
        sum(in, all, 64);
    } else {
        exchange.run();
    }
    double most = 0;
    for (const float time : all) most = std::max(most, static_cast<double>(time));
    return most;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 7 || !std::getenv("RANK") || !std::getenv("WORLD_SIZE")) {
        std::fprintf(stderr, "usage: tutti-run -n N peer_gloo DIRECTORY ALGORITHM poll|sleep SIZES SECONDS BATCHES\n");
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
    const library gloo_library{rank, ranks, sum, largest, nullptr};
    const effort effort = effort_of(argv[5], argv[6]);
    time_sizes(&gloo_library, argv[4], &effort);
    largest(0);     // nobody leaves while another still listens
    std::_Exit(0);  // its threads outlive main otherwise
}
