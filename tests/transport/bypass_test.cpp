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

constexpr CacheShare none_in_cache{1, false}, apart{SIZE_MAX, true}, none_and_apart{1, true},
    several{SIZE_MAX, false, true};

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
        mine = job;
        mine.input = reinterpret_cast<std::byte*>(memory.get());
        mine.output = reinterpret_cast<std::byte*>(memory.get()) + bytes;
    }
    void spoil() { std::memset(mine.output, 0, bytes); }
    std::vector<float> result() const {
        const float* const output = memory.get() + bytes / sizeof(float);
        return {output, output + bytes / sizeof(float)};
    }

    Job mine;
    const std::size_t bytes;
    const std::unique_ptr<float, void (*)(void*)> memory;
    Sender sender;
    Receiver receiver;
    HostExecution execution;
};

void run_both(Side& first, Side& second) {
    first.execution.start(first.mine);
    second.execution.start(second.mine);
    for (const Deadline end = Clock::now() + std::chrono::seconds(20);
         !first.execution.finished() || !second.execution.finished();) {
        if (Clock::now() > end) FAIL("the ranks wait for each other");
        if (!first.execution.finished()) first.execution.progress();
        if (!second.execution.finished()) second.execution.progress();
    }
}

constexpr int calls_that_try = 18;  // eight each way, and two more

using Results = std::array<std::vector<float>, 2>;

/// calls: each has the results of the first, or the test fails.
Results results_of(const char* algorithm, Collective collective, CacheShare caches, const Job& job, int calls = 1) {
    LinkedPair pair = join(shm_transport());
    const std::vector<Program> programs = all_programs(*find_algorithm(algorithm), collective, 2);
    Side first(pair, 0, programs[0], caches, job), second(pair, 1, programs[1], caches, job);
    Results results;
    for (int call = 0; call < calls; ++call) {
        run_both(first, second);
        const Results its{first.result(), second.result()};
        if (call == 0) results = its;
        CHECK((its == results));
        first.spoil();
        second.spoil();
    }
    return results;
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
                const auto in_tiles_of = [&job](std::size_t most) {
                    job.tile = std::min(job.block, most);
                    job.tiles = static_cast<std::uint32_t>((job.block + job.tile - 1) / job.tile);
                };
                in_tiles_of(4097);
                job.by_reference = by_reference;
                job.call.signature = 7;
                const Results expected = results_of(call.algorithm, call.collective, CacheShare(), job);
                CHECK(std::ranges::count(expected[1], 0.0F) < static_cast<std::ptrdiff_t>(2 * count));
                for (const CacheShare caches : {none_in_cache, apart, none_and_apart})
                    CHECK((results_of(call.algorithm, call.collective, caches, job) == expected));
                job.mappable = by_reference;
                for (const std::size_t tile : {std::size_t{4097}, slot_bytes / sizeof(float)}) {
                    in_tiles_of(tile);
                    CHECK((results_of(call.algorithm, call.collective, several, job, calls_that_try) == expected));
                }
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
    const WakeUp& own = pair.arenas[0]->page().wake_up;
    CHECK(bypass.stores(Kind::slot, sender, own));
    CHECK(!bypass.stores(Kind::inlined, sender, own));
    CHECK(!bypass.stores(Kind::landed, sender, own));  // that is a buffer
    const auto reads = [&](Kind kind) {
        LinkedPair other = join(shm_transport());
        Sender its(other.link[1]->outlet(0));
        Receiver receiver(other.link[0]->inlet(0));
        its.cell().kind = kind;
        return bypass.reads(receiver, own);
    };
    CHECK(reads(Kind::slot));
    CHECK(reads(Kind::placed));
    CHECK(reads(Kind::reference));
    CHECK(!reads(Kind::exchanged));
    CHECK(!reads(Kind::inlined));
    alignas(64) static std::byte sides[2][Exchange::bytes_for(4096)];
    Exchange exchange(sides[0], sides[1], 4096);
    sender.exchange_by(&exchange);
    sender.place(1000);
    REQUIRE(sender.exchanges());
    CHECK(!bypass.stores(Kind::slot, sender, own));
}

TEST_CASE("messages to a rank on the same core stay in its caches") {
    LinkedPair pair = join(shm_transport());
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[0]->inlet(0));
    Bypass bypass;
    bypass.slots = true;
    WakeUp &own = pair.arenas[0]->page().wake_up, &others = pair.arenas[1]->page().wake_up;
    Sender(pair.link[1]->outlet(0)).cell().kind = Kind::slot;
    const auto bypasses = [&](int own_core, int others_core) {
        own.core = own_core, others.core = others_core;
        const bool stores = bypass.stores(Kind::slot, sender, own);
        CHECK(bypass.reads(receiver, own) == stores);
        return stores;
    };
    CHECK(bypasses(0, 0));  // unknown
    CHECK(bypasses(1, 0));
    CHECK(bypasses(1, 2));
    CHECK(!bypasses(2, 2));
}

TEST_CASE("what goes by reference is copied now and then if several ranks share a host") {
    for (const CacheShare caches : {several, CacheShare{}, CacheShare{4096, false, true}}) {
        Job job;
        job.type = DataType::float32;
        job.count = job.block = job.tile = 8192;
        job.tiles = 1;
        job.by_reference = job.mappable = true;
        job.call.signature = 7;
        const std::vector<Program> programs = all_programs(*find_algorithm("direct"), Collective::all_to_all, 2);
        LinkedPair pair = join(shm_transport());
        Side first(pair, 0, programs[0], caches, job), second(pair, 1, programs[1], caches, job);
        std::string ways;
        for (std::uint32_t call = 0; call < 16; ++call) {
            run_both(first, second);
            const Cell& sent = pair.link[0]->outlet(0).ring[call % fifo_depth];
            REQUIRE(sent.turn == call + 1);
            ways += sent.kind == Kind::reference ? 'r' : in_slot(sent.kind) ? 'c' : '?';
        }
        CHECK(ways == (caches.several && caches.bytes > 4096 ? "rrrrrrrrcccccccc" : "rrrrrrrrrrrrrrrr"));
    }
}

TEST_CASE("calls tell which of two ways is shorter, again and again") {
    Clock::time_point now{};
    const auto others_of = [&now](Trial& trial, int calls, int one, int other) {
        std::string ways;
        for (int i = 0; i < calls; ++i) {
            ways += trial.other(now) ? 'o' : '.';
            now += std::chrono::microseconds((ways.back() == 'o' ? other : one) + i % 3);
        }
        return ways;
    };
    const auto times = [](int calls, char way) { return std::string(static_cast<std::size_t>(calls), way); };
    const std::string unclear = times(8, '.') + times(8, 'o') + times(8, '.') + times(8, 'o');
    Trial trial;
    CHECK(others_of(trial, 512, 2000, 1000) == unclear + times(480, 'o'));
    CHECK(others_of(trial, 512, 1000, 2000) == times(8, '.') + times(8, 'o') + times(496, '.'));
    CHECK(others_of(trial, 512, 1000, 900) == unclear + times(480, 'o'));
    CHECK(others_of(trial, 512, 1000, 960) == unclear + times(480, '.'));  // too little to tell
    Trial brief(4);
    CHECK(others_of(brief, 20, 1000, 2000) == times(4, '.') + times(4, 'o') + times(12, '.'));
    // A pause decides nothing.
    CHECK(others_of(trial, 4, 900, 1000) == times(4, '.'));
    now += std::chrono::seconds(1);
    CHECK(others_of(trial, 508, 900, 1000) == unclear.substr(4) + times(480, '.'));
    CHECK(others_of(trial, 12, 1000, 900) == unclear.substr(0, 12));
    now += std::chrono::seconds(1);
    CHECK(others_of(trial, 500, 1000, 900) == times(4, 'o') + times(496, '.'));
}

TEST_CASE("several ranks of one host try whether long messages bypass the caches, and short calls are copied") {
    CHECK(Bypass::tries_slots({SIZE_MAX, false, true}, 65536, 524'288));
    CHECK(!Bypass::tries_slots({SIZE_MAX, false, true}, 65536, 524'287));
    CHECK(!Bypass::tries_slots({SIZE_MAX, false, true}, 65535, 524'288));
    CHECK(!Bypass::tries_slots({SIZE_MAX, true, false}, 65536, 524'288));
    CHECK(Bypass::tries_copies({1 << 20, false, true}, (2 << 20) - 1));
    CHECK(!Bypass::tries_copies({1 << 20, false, true}, 2 << 20));
    CHECK(!Bypass::tries_copies({SIZE_MAX, true, false}, 1));
}
