// The kernel of small messages, on emulated GPUs: when it runs, and that it computes what the interpreter does.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "base/types.hpp"
#include "gpu/world.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

tuttiConfig_t with_algorithm(const char* name) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.algorithm = name;
    return config;
}

/// A call of all ranks.
struct Asked {
    Collective collective;
    tuttiDataType_t type;
    tuttiRedOp_t op;
    std::size_t count, shift;  // in elements
};

tuttiResult_t call(const Asked& c, const void* in, void* out, tuttiComm_t comm, void* stream) {
    switch (c.collective) {
        case Collective::all_reduce:
            return tuttiAllReduce(in, out, c.count, c.type, c.op, comm, stream);
        case Collective::reduce_scatter:
            return tuttiReduceScatter(in, out, c.count, c.type, c.op, comm, stream);
        case Collective::all_gather:
            return tuttiAllGather(in, out, c.count, c.type, comm, stream);
        case Collective::broadcast:
            return tuttiBroadcast(in, out, c.count, c.type, 0, comm, stream);
        case Collective::reduce:
            return tuttiReduce(in, out, c.count, c.type, c.op, 0, comm, stream);
        case Collective::all_to_all:
            return tuttiAlltoAll(in, out, c.count, c.type, comm, stream);
        case Collective::gather:
            return tuttiGather(in, out, c.count, c.type, 0, comm, stream);
        default:
            return tuttiScatter(in, out, c.count, c.type, 0, comm, stream);
    }
}

struct Outcome {
    std::vector<std::vector<std::byte>> memory;  // by rank, of all calls: what is sent, what is got, what lies around
    int launches, small;
};

/// What the calls, twice each, leave in the ranks' memory.
Outcome outcome_of(const std::vector<Asked>& calls, int ranks, const char* algorithm, bool small, std::uint64_t seed) {
    const tuttiConfig_t config = with_algorithm(algorithm);
    GpuWorld world(ranks, 2, &config);
    EmulatedGpus& gpus = world.gpus();
    gpus.small = small;
    std::vector<std::vector<std::byte>> memory(static_cast<std::size_t>(ranks));
    world.each([&](int rank, void* stream) {
        std::mt19937_64 random(seed + static_cast<std::uint64_t>(rank));
        for (const Asked& c : calls) {
            const std::size_t element = size_of(static_cast<DataType>(c.type)), shift = c.shift * element;
            const std::size_t bytes = c.count * element * static_cast<std::size_t>(ranks);
            std::byte* const buffers = gpus.allocate(world.device(rank), 2 * (bytes + 128));
            std::byte *const in = buffers, *const out = buffers + (bytes + 127) / 64 * 64;
            for (std::size_t i = 0; i + 8 <= 2 * (bytes + 128); i += 8) {
                // No NaNs: which of two a sum keeps is the compiler's choice on hosts.
                const std::uint64_t word = random() & 0xbfbfbfbfbfbfbfbf;
                std::memcpy(buffers + i, &word, sizeof word);
            }
            for (int round = 0; round < 2; ++round)
                harness::must_succeed(call(c, in + shift, out + shift, world.comm(rank), stream), "a call");
            gpus.synchronize_stream(stream);
            auto& its = memory[static_cast<std::size_t>(rank)];
            its.insert(its.end(), buffers, buffers + 2 * (bytes + 128));
            gpus.free(world.device(rank), buffers);
        }
    });
    return {memory, gpus.launches(), gpus.small_launches()};
}

/// Returns how many launches were small.
int compare(const std::vector<Asked>& calls, int ranks, const char* algorithm) {
    CAPTURE(algorithm, ranks);
    const std::uint64_t seed = harness::seed();
    const Outcome with = outcome_of(calls, ranks, algorithm, true, seed),
                  without = outcome_of(calls, ranks, algorithm, false, seed);
    CHECK((with.memory == without.memory));  // too much to print
    CHECK(with.launches == without.launches);
    CHECK(without.small == 0);
    return with.small;
}

}  // namespace

TEST_CASE("GPUs: small messages leave the bits that the interpreter does, of every type and operation", "[long]") {
    std::vector<Asked> calls;
    for (int type = 0; type < tuttiNumTypes; ++type)
        for (int op = 0; op < tuttiNumOps && EmulatedGpus::emulates(static_cast<tuttiDataType_t>(type)); ++op)
            for (const std::size_t count : {1u, 3u, 129u})
                calls.push_back({Collective::all_reduce, static_cast<tuttiDataType_t>(type),
                                 static_cast<tuttiRedOp_t>(op), count, count % 2});
    for (const char* const algorithm : {"flat", "doubling"})
        CHECK(compare(calls, 3, algorithm) == 2 * 3 * static_cast<int>(calls.size()));
}

TEST_CASE("GPUs: small messages leave the bits that the interpreter does, by every algorithm", "[long]") {
    int small = 0;
    for (const Algorithm& a : algorithms()) {
        std::vector<Asked> calls;
        for (const Collective c :
             {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast,
              Collective::reduce, Collective::all_to_all, Collective::gather, Collective::scatter})
            for (const std::size_t count : {1u, 75u, 900u})
                if (a.supports(c)) calls.push_back({c, tuttiFloat32, tuttiSum, count, count % 2});
        if (calls.empty() || a.name == "hierarchy") continue;
        for (const int ranks : {2, 4}) small += compare(calls, ranks, std::string(a.name).c_str()) > 0 ? 1 : 0;
    }
    CHECK(small > 10);
}

TEST_CASE("GPUs: all-reduces of small messages take the kernel of their own, others the interpreter") {
    const auto small = [](const char* algorithm, int ranks, std::size_t count) {
        const tuttiConfig_t config = with_algorithm(algorithm);
        GpuWorld world(ranks, 2, &config);
        world.run({{Case::What::all_reduce, count}});
        CHECK(world.gpus().launches() == ranks);
        return world.gpus().small_launches();
    };
    // Two ranks share a GPU of 16 blocks: 8 channels, each with 16 KiB in lines.
    for (const std::size_t count : {2u, 2048u, 32768u}) CHECK(small("flat", 3, count) == 3);
    CHECK(small("flat", 3, 32769) == 0);
    CHECK(small("direct", 4, 100) == 4);
    CHECK(small("ring", 3, 100) == 3);  // 4 messages to the next rank
    CHECK(small("ring", 4, 100) == 0);  // 6, more than lines of one connection
}

TEST_CASE("GPUs: ranks of one call may run small messages in either kernel, and messages of both follow each other") {
    GpuWorld world(3);
    std::vector<Case> cases;
    for (int i = 0; i < 40; ++i)
        cases.push_back({Case::What::all_reduce, static_cast<std::size_t>(i % 5 == 4 ? 30'000 : i * 13 + 1)});
    // Whether a launch is small is asked when it is made, so each rank has its own answer now and then.
    std::atomic<bool> done{false};
    std::thread changes([&] {
        while (!done) {
            world.gpus().small = !world.gpus().small;
            std::this_thread::yield();
        }
    });
    world.run(cases);
    done = true;
    changes.join();
}
