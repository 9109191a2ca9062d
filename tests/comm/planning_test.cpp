// Planning of calls, and the costs of communicators with many ranks.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/components.hpp"
#include "comm/driver.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using harness::Case;

namespace {

void all_to_all(int ranks, std::size_t count, std::vector<std::size_t>* memory = nullptr) {
    const auto comms = Communicator::in_process(ranks, Options::from(nullptr));
    const auto n = static_cast<std::size_t>(ranks);
    harness::run(ranks, [&](int rank) {
        std::vector<int> in(n * count), out(n * count, -1);
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = rank * 1000 + static_cast<int>(i / count);
        Operation o;
        o.collective = Collective::all_to_all;
        o.type = DataType::int32;
        o.count = count;
        o.input = in.data();
        o.output = out.data();
        run_one(*comms[static_cast<std::size_t>(rank)], o);
        for (std::size_t i = 0; i < out.size(); ++i)
            harness::check(out[i] == static_cast<int>(i / count) * 1000 + rank, "a row of all-to-all");
    });
    if (memory != nullptr)
        for (const auto& comm : comms) memory->push_back(comm->memory());
}

/// Rows of counts[i] elements, with a gap before each.
std::vector<Row> apart(const std::vector<std::size_t>& counts) {
    std::vector<Row> rows;
    std::size_t at = 0;
    for (const std::size_t count : counts) {
        rows.push_back({at + 3, count});
        at += count + 3;
    }
    return rows;
}

/// An all-to-all in which rank q has lengths[(q + r) % lengths.size()] elements for rank r; even: by the even call.
template <class T>
void exchange(Communicator& comm, DataType type, const std::vector<std::size_t>& lengths, bool even) {
    const auto rank = static_cast<std::size_t>(comm.rank()), ranks = static_cast<std::size_t>(comm.ranks());
    std::vector<std::size_t> counts;  // to each rank as many as from it
    for (std::size_t r = 0; r < ranks; ++r) counts.push_back(lengths[(rank + r) % lengths.size()]);
    Rows rows;
    rows.input = rows.output = apart(counts);
    if (even)
        for (std::size_t r = 0; r < ranks; ++r) rows.input[r].at = rows.output[r].at = r * counts[r];
    const std::size_t elements = rows.input.back().at + rows.input.back().count;
    std::vector<T> in(elements, T(-1)), out(elements, T(-1)), expected(elements, T(-1));
    for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < counts[r]; ++i) {
            in[rows.input[r].at + i] = static_cast<T>((rank * ranks + r) * 10 + i);
            expected[rows.output[r].at + i] = static_cast<T>((r * ranks + rank) * 10 + i);
        }
    Operation o;
    o.collective = Collective::all_to_all;
    o.type = type;
    o.count = rows.longest = *std::ranges::max_element(counts);
    o.input = in.data();
    o.output = out.data();
    if (!even) o.rows = &rows;
    run_one(comm, o);
    harness::check(out == expected, "the rows of an all-to-all");
}

}  // namespace

TEST_CASE("a program finds its slices anew when calls of other lengths, types and rows take turns") {
    for (const int ranks : {2, 3, 5}) {
        const auto comms = Communicator::in_process(ranks, Options::from(nullptr));
        harness::run(ranks, [&](int rank) {
            Communicator& comm = *comms[static_cast<std::size_t>(rank)];
            for (int round = 0; round < 3; ++round) {
                exchange<std::int32_t>(comm, DataType::int32, {5}, true);
                exchange<std::int32_t>(comm, DataType::int32, {5}, true);
                exchange<std::int64_t>(comm, DataType::int64, {5}, true);
                exchange<std::int64_t>(comm, DataType::int64, {5}, false);
                exchange<std::int64_t>(comm, DataType::int64, {5, 0, 2}, false);
                exchange<std::int64_t>(comm, DataType::int64, {1, 5}, false);
                exchange<std::int64_t>(comm, DataType::int64, {5}, true);
                exchange<std::int32_t>(comm, DataType::int32, {7}, true);
            }
        });
    }
}

TEST_CASE("calls that share a communicator or a stream, directly or through others, are one component") {
    const char things[8] = {};
    const auto key = [&](int comm, int stream) { return Component::Key{things + comm, things + stream}; };
    const auto members = [](const std::vector<Component>& all) {
        std::vector<std::vector<std::size_t>> numbers;
        for (const Component& c : all) numbers.push_back(c.members);
        return numbers;
    };
    using Numbers = std::vector<std::vector<std::size_t>>;
    CHECK(members(components_of({})).empty());
    const std::vector apart{key(0, 4), key(1, 5), key(0, 4)};
    CHECK(members(components_of(apart)) == Numbers{{0, 2}, {1}});
    const std::vector joined{key(0, 4), key(1, 5), key(2, 6), key(1, 4)};
    CHECK(members(components_of(joined)) == Numbers{{0, 1, 3}, {2}});
    // So many that anything quadratic would not end.
    std::vector<Component::Key> many;
    for (int i = 0; i < 1'000'000; ++i) many.push_back(key(i % 2, 4 + i % 2));
    CHECK(components_of(many).size() == 2);
}

TEST_CASE("what a rank sends itself meets what it receives from itself, in the order of the calls") {
    const char things[2] = {};
    using Kind = CallToSelf::Kind;
    const auto meet = [&](std::initializer_list<std::pair<int, Kind>> calls) {
        std::vector<CallToSelf> all;
        for (const auto& [comm, kind] : calls) all.push_back({things + comm, kind});
        return meetings_of(all);
    };
    using Numbers = std::vector<std::size_t>;
    CHECK(meet({}).empty());
    CHECK(meet({{0, Kind::send}, {0, Kind::none}, {0, Kind::receive}}) == Numbers{2, unmet, 0});
    CHECK(meet({{0, Kind::receive}, {0, Kind::receive}, {1, Kind::send}, {0, Kind::send}, {0, Kind::send}}) ==
          Numbers{3, 4, unmet, 0, 1});
    // So many that anything quadratic would not end.
    std::vector<CallToSelf> many(1'000'000, {things, Kind::send});
    for (std::size_t i = 500'000; i < many.size(); ++i) many[i].kind = Kind::receive;
    const Numbers meets = meetings_of(many);
    for (std::size_t i = 0; i < 500'000; ++i) REQUIRE(meets[i] == i + 500'000);
}

TEST_CASE("a communicator keeps a bounded number of plans, and makes anew what it has forgotten", "[exhaustive]") {
    constexpr int ranks = 24;
    const auto comms = Communicator::in_process(ranks, Options::from(nullptr));
    harness::run(ranks, [&](int rank) {
        Communicator& comm = *comms[static_cast<std::size_t>(rank)];
        std::vector<int> in(2 * ranks, rank), out(2 * ranks);
        for (const std::size_t count : {1, 2, 1})
            for (const Collective c :
                 {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter})
                for (Rank root = 0; root < ranks; ++root) {
                    Operation o;
                    o.collective = c;
                    o.type = DataType::int32;
                    o.root = root;
                    o.count = count;
                    o.input = in.data();
                    o.output = out.data();
                    run_one(comm, o);
                    const int expected = c == Collective::reduce ? ranks * (ranks - 1) / 2 : root;
                    if (c == Collective::reduce || c == Collective::gather ? rank == root : true)
                        harness::check(
                            out[c == Collective::gather ? static_cast<std::size_t>(root) * count : 0] == expected,
                            "a result");
                }
        harness::check(comm.planner().plans() == comm.planner().most_plans(), "more plans than are kept");
    });
}

TEST_CASE("of a group, what is under way keeps its plan while more sends are planned than plans are kept") {
    constexpr int ranks = 2;
    const auto made = Communicator::in_process(ranks, Options::from(nullptr));
    const std::size_t pairs = 4 * made.front()->planner().most_plans(), count = 1 << 20;
    std::vector<CommunicatorPtr> comms;
    for (const auto& comm : made) comms.emplace_back(comm.get(), [](Communicator*) {});
    harness::run(ranks, [&](int rank) {
        std::vector<int> in(count, rank + 1), out(count), sent(pairs, rank + 1), received(pairs);
        Batch batch{comms[static_cast<std::size_t>(rank)], {}};
        Operation o;
        o.type = DataType::int32;
        o.count = count;
        o.input = in.data();
        o.output = out.data();
        batch.operations.push_back(o);
        o.root = 1 - rank;
        for (o.count = 1; o.count <= pairs; ++o.count) {
            o.collective = Collective::send;
            o.input = sent.data();
            batch.operations.push_back(o);
            o.collective = Collective::recv;
            o.output = received.data();
            batch.operations.push_back(o);
        }
        batch.turn = Reservation(batch.comm->ticket_lock());
        harness::check(!run_batches(std::span(&batch, 1)), "no error");
        harness::check(out == std::vector(count, 3), "the sum");
        harness::check(received == std::vector(pairs, 2 - rank), "what was received");
        const Planner& planner = comms[static_cast<std::size_t>(rank)]->planner();
        harness::check(planner.plans() <= planner.most_plans() + 3, "what is under way at most is more");
    });
}

TEST_CASE("all-to-all among more ranks than a program's neighbours: small and large rows, in bounded memory",
          "[exhaustive]") {
    all_to_all(33, 1);
    all_to_all(33, 20'000);
    std::vector<std::size_t> memory;
    all_to_all(48, 5'000, &memory);
    for (const std::size_t bytes : memory) CHECK(bytes < 47 * (std::size_t{1} << 20));
}

TEST_CASE("a pair of ranks has less room the more ranks there are, but enough for half of all ranks' chunks") {
    const auto pair = [](int ranks) { return ArenaLayout{ranks}.size() / static_cast<std::size_t>(ranks); };
    constexpr std::size_t mebi = 1 << 20;
    CHECK(pair(8) > 9 * mebi);
    CHECK(pair(32) > 9 * mebi);
    for (const int ranks : {33, 1024}) CHECK(pair(ranks) < channels_per_link * std::size_t{300'000});
    for (const int ranks : {2, 32, 33, 64, 100, 1024, 2048, 4096, 8192}) {
        INFO(ranks);
        CHECK(slot_bytes_for(ranks) / 64 >= static_cast<std::size_t>(ranks) / 2);
        CHECK(slot_bytes_for(ranks) <= slot_bytes);
        CHECK(far_slot_bytes_for(ranks) >= slot_bytes_for(ranks));
        for (const ArenaLayout& layout : {ArenaLayout{ranks}, ArenaLayout{ranks, far_slot_bytes_for(ranks)}}) {
            const std::size_t slots = slot_depth * slot_stride_of(layout.slot);
            CHECK(layout.slots_offset(ranks - 1, channels_per_link - 1) + slots <= layout.size());
            CHECK(layout.slots_offset(0, 1) >= layout.slots_offset(0, 0) + slots);
        }
        if (ranks <= 64) CHECK(static_cast<std::size_t>(ranks) * slot_depth * far_slot_bytes_for(ranks) <= 64 * mebi);
    }
    CHECK(far_slot_bytes_for(8) == 2 * mebi);
}

TEST_CASE("an arena's slots are as long as its owner or a peer of its process says, if there is room") {
    const std::shared_ptr<Arena> arena = Arena::make({3, far_slot_bytes_for(3)}, true);
    for (const std::size_t slot : {slot_bytes_for(3), far_slot_bytes_for(3)}) {
        arena->use_slots_of(slot);
        const std::shared_ptr<Arena> peers = Arena::map(arena->layout(), arena->fd());
        const Wire mine = arena->wire(1, 2, nullptr), theirs = peers->wire(1, 2, nullptr);
        CHECK(mine.stride == slot_stride_of(slot));
        mine.slots[3 * mine.stride + slot - 1] = std::byte{7};
        CHECK(theirs.slots[3 * theirs.stride + slot - 1] == std::byte{7});
    }
    const std::shared_ptr<Arena> near = Arena::make(3, true);
    CHECK_THROWS_AS(near->use_slots_of(far_slot_bytes_for(3)), Error);
    CHECK_THROWS_AS(Arena::map(arena->layout(), near->fd()), Error);
}

TEST_CASE("another process maps an arena by its descriptor's number, and nothing else that has such a number") {
    const std::shared_ptr<Arena> arena = Arena::make(3, true);
    arena->page().freed.store(4711);
    const int descriptor = arena->fd().get();
    const auto in_child = [&](int number, std::uint64_t key) {
        const pid_t child = fork();
        if (child == 0) {
            const std::shared_ptr<Arena> mapped = Arena::map(arena->layout(), getppid(), number, key);
            _exit(mapped == nullptr ? 1 : mapped->page().freed.load() == 4711 ? 0 : 2);
        }
        int status = 0;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    };
    CHECK(in_child(descriptor, arena->key()) == 0);
    CHECK(in_child(descriptor, arena->key() + 1) == 1);
    int pipes[2] = {};
    REQUIRE(pipe2(pipes, O_CLOEXEC) == 0);
    const Fd reads(pipes[0]), writes(pipes[1]);
    CHECK(in_child(reads.get(), arena->key()) == 1);  // to open one for reading may wait
    CHECK(in_child(-1, arena->key()) == 1);
    CHECK(in_child(100'000, arena->key()) == 1);
}
