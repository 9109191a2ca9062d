// Calls whose buffers or messages bypass the caches have the results of those that do not.
#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "algorithms/prove.hpp"
#include "harness/catch.hpp"
#include "kernels/host/executor.hpp"
#include "links.hpp"
#include "transport/regions.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr CacheShare none_in_cache{1, false}, apart{SIZE_MAX, true}, none_and_apart{1, true};

/// One of two ranks, with a buffer of all ranks' rows in memory that peers can name, behind the one that it reads.
struct Side {
    Side(LinkedPair& pair, Rank rank, Program program, CacheShare caches, const Job& job)
        : bytes(2 * job.count * sizeof(float)),
          memory(static_cast<float*>(allocate_region(2 * bytes)), &free_region),
          sender(pair.link[rank]->outlet(0)),
          receiver(pair.link[rank]->inlet(0)),
          execution(BoundProgram::bind(std::move(program), job.by_reference, job.by_reference),
                    pair.arenas[rank]->page(), 1, caches, [&pair, rank, this](BoundProgram::Peer peer, int, bool) {
                        return Connection{peer.rank, pair.link[rank].get(), &sender, &receiver};
                    }) {
        std::memset(memory.get(), 0, 2 * bytes);
        for (std::size_t i = 0; i < 2 * job.count; ++i) memory.get()[i] = static_cast<float>(i % 1000 + 1 + 7 * rank);
        Job mine = job;
        mine.input = reinterpret_cast<std::byte*>(memory.get());
        mine.output = reinterpret_cast<std::byte*>(memory.get()) + bytes;
        execution.start(mine);
    }
    std::vector<float> result() const {
        const float* const output = memory.get() + bytes / sizeof(float);
        return {output, output + bytes / sizeof(float)};
    }

    const std::size_t bytes;
    const std::unique_ptr<float, void (*)(void*)> memory;
    Sender sender;
    Receiver receiver;
    HostExecution execution;
};

using Results = std::array<std::vector<float>, 2>;

Results results_of(const char* algorithm, Collective collective, CacheShare caches, const Job& job) {
    LinkedPair pair = join(shm_transport());
    const std::vector<Program> programs = all_programs(*find_algorithm(algorithm), collective, 2);
    Side first(pair, 0, programs[0], caches, job), second(pair, 1, programs[1], caches, job);
    for (const Deadline end = Clock::now() + std::chrono::seconds(20); Clock::now() < end;) {
        if (!first.execution.finished()) first.execution.progress();
        if (!second.execution.finished()) second.execution.progress();
        if (first.execution.finished() && second.execution.finished()) return {first.result(), second.result()};
    }
    FAIL("the ranks wait for each other");
    return {};
}

}  // namespace

TEST_CASE("what bypasses the caches arrives") {
    struct Call {
        const char* algorithm;
        Collective collective;
        int columns;
    };
    for (const Call& call : {Call{"flat", Collective::all_reduce, 1},
                             {"flat", Collective::broadcast, 1},
                             {"direct", Collective::all_to_all, 1},
                             {"ring", Collective::all_reduce, 2}})
        for (const std::size_t count : {std::size_t{13}, std::size_t{5000}, std::size_t{100'003}})
            for (const bool by_reference : {false, true}) {
                CAPTURE(call.algorithm, name_of(call.collective), count, by_reference);
                Job job;
                job.type = DataType::float32;
                job.op = ReduceOp::sum;
                job.count = count;
                job.block =
                    (count + static_cast<std::size_t>(call.columns) - 1) / static_cast<std::size_t>(call.columns);
                job.tile = std::min<std::size_t>(job.block, 4097);
                job.tiles = static_cast<std::uint32_t>((job.block + job.tile - 1) / job.tile);
                job.by_reference = by_reference;
                job.call.signature = 7;
                const Results expected = results_of(call.algorithm, call.collective, CacheShare(), job);
                CHECK(std::ranges::count(expected[1], 0.0F) < static_cast<std::ptrdiff_t>(2 * count));
                for (const CacheShare caches : {none_in_cache, apart, none_and_apart})
                    CHECK(results_of(call.algorithm, call.collective, caches, job) == expected);
            }
}

TEST_CASE("size, share of the cache and direction decide what bypasses the caches") {
    constexpr std::size_t mib = 1 << 20;
    const auto of_buffers = [](CacheShare caches, std::size_t all, std::size_t output) {
        Bypass bypass;
        bypass.decide_on_buffers(caches, all, output);
        return std::array{bypass.sinks, bypass.sources, bypass.references, bypass.slots};
    };
    using Which = std::array<bool, 4>;
    const CacheShare together{4 * mib, false}, far{4 * mib, true}, vast{1024 * mib, false};
    CHECK(of_buffers(together, 4 * mib - 1, 2 * mib) == Which{false, false, false, false});
    CHECK(of_buffers(together, 4 * mib, 2 * mib) == Which{true, false, false, false});
    CHECK(of_buffers(together, 8 * mib, 4 * mib) == Which{true, true, false, false});
    CHECK(of_buffers(together, 16 * mib, 7 * mib) == Which{true, true, true, false});
    CHECK(of_buffers(far, 8 * mib, 4 * mib) == Which{true, false, false, false});
    CHECK(of_buffers(far, 12 * mib, 6 * mib) == Which{true, true, false, false});
    CHECK(of_buffers(vast, 16 * mib, 8 * mib) == Which{true, false, false, false});
    const auto slots = [](CacheShare caches, std::size_t longest, bool one_way) {
        Bypass bypass;
        bypass.decide_on_slots(caches, longest, one_way);
        return bypass.slots;
    };
    CHECK(slots(far, 8192, true));
    CHECK(!slots(far, 8191, true));
    CHECK(!slots(far, 8192, false));
    CHECK(!slots(together, 8192, true));
}

TEST_CASE("messages in an exchange stay in the caches") {
    LinkedPair pair = join(shm_transport());
    Sender sender(pair.link[0]->outlet(0));
    Bypass bypass;
    bypass.slots = bypass.references = true;
    CHECK(bypass.stores(Kind::slot, sender));
    CHECK(!bypass.stores(Kind::inlined, sender));
    CHECK(!bypass.stores(Kind::landed, sender));  // that is a buffer
    CHECK(bypass.reads(Kind::slot));
    CHECK(bypass.reads(Kind::placed));
    CHECK(bypass.reads(Kind::reference));
    CHECK(!bypass.reads(Kind::exchanged));
    CHECK(!bypass.reads(Kind::inlined));
    alignas(64) static std::byte sides[2][Exchange::bytes_for(4096)];
    Exchange exchange(sides[0], sides[1], 4096);
    sender.exchange_by(&exchange);
    sender.place(1000);
    REQUIRE(sender.exchanges());
    CHECK(!bypass.stores(Kind::slot, sender));
}
