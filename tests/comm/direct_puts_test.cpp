// Puts over adapters: which of them these write into the window themselves, and that it can't be told from the data.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "adapters.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr size_t room = 1'500'000;

/// Two ranks that this thread drives. Rank 0 puts into rank 1's window, of memory that adapters take.
struct PutPair {
    const Adapters adapters{"verbs"};
    std::vector<tuttiComm_t> comms;
    unsigned char *memory = nullptr, *source = nullptr;
    tuttiWindow_t windows[2] = {};
    std::vector<unsigned char> expected = std::vector<unsigned char>(room);

    explicit PutPair(int timeout_ms = 0) : comms(make_comms(2, "verbs", timeout_ms)) {
        must_succeed(tuttiMemAlloc(reinterpret_cast<void**>(&memory), room), "memory");
        must_succeed(tuttiMemAlloc(reinterpret_cast<void**>(&source), room), "memory");
        std::fill_n(memory, room, 0);
        open();
    }
    ~PutPair() {
        for (tuttiComm_t comm : comms) tuttiCommDestroy(comm);
        for (size_t r = 0; r < 2; ++r) tuttiCommWindowDeregister(comms[r], windows[r]);
        tuttiMemFree(memory);
        tuttiMemFree(source);
    }
    void open() {
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        for (size_t r = 0; r < 2; ++r)
            REQUIRE(tuttiCommWindowRegister(comms[r], r == 1 ? memory : nullptr, r == 1 ? room : 0, &windows[r], 0) ==
                    tuttiSuccess);
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    }
    void close() {
        for (size_t r = 0; r < 2; ++r) REQUIRE(tuttiCommWindowDeregister(comms[r], windows[r]) == tuttiSuccess);
    }
    void put(const unsigned char* from, size_t bytes, size_t offset) {
        std::copy_n(from, bytes, expected.begin() + static_cast<std::ptrdiff_t>(offset));
        const tuttiResult_t result =
            tuttiPutSignal(from, bytes, tuttiUint8, 1, windows[0], offset, 0, 0, 0, comms[0], nullptr);
        INFO(tuttiGetLastError(comms[0]));
        REQUIRE(result == tuttiSuccess);
    }
    tuttiResult_t get(unsigned char* to, size_t bytes, size_t offset) {
        return tuttiGet(to, bytes, tuttiUint8, 1, windows[0], offset, 0, 0, comms[0], nullptr);
    }
    tuttiResult_t wait(int count, tuttiStream_t stream = nullptr) {
        const tuttiWaitSignalDesc_t signals{count, 0, 0, 0};
        return tuttiWaitSignal(1, &signals, comms[1], stream);
    }
    bool is_right() const { return std::equal(expected.begin(), expected.end(), memory); }
    /// Puts until the adapter has written to the window. Returns the bytes.
    size_t introduce() {
        for (int puts = 0; written_by_peers(memory) == 0; ++puts) {
            REQUIRE(puts < 1000);
            put(source, 1000, 0);
            REQUIRE(wait(1) == tuttiSuccess);
        }
        return written_by_peers(memory);
    }
};

/// Puts of all lengths to places that overlap, from memory that adapters know and from other memory. Both are written
/// to as soon as a put has ended.
void put_at_random(PutPair& pair, int batches) {
    std::mt19937 random(seed());
    const auto any = [&](size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random); };
    std::vector<unsigned char> other(room);
    constexpr size_t lengths[] = {20, 60, 5000, 70'000, 70'000, room};
    for (int batch = 0; batch < batches; ++batch) {
        const int puts = static_cast<int>(any(8)) + 1;
        for (int i = 0; i < puts; ++i) {
            unsigned char* const from = any(2) == 0 ? pair.source : other.data();
            const size_t bytes = any(lengths[any(std::size(lengths))]) + 1;
            const size_t offset = any(std::min(room - bytes, size_t{3000}) + 1);
            std::fill_n(from, bytes, static_cast<unsigned char>(random()));
            pair.put(from, bytes, offset);
            std::fill_n(from, bytes, static_cast<unsigned char>(random()));
        }
        if (any(2) == 0) {  // a get sees them all, whether their signals have come or not
            const size_t bytes = any(lengths[any(std::size(lengths))]) + 1, offset = any(room - bytes + 1);
            REQUIRE(pair.get(other.data(), bytes, offset) == tuttiSuccess);
            REQUIRE(std::equal(other.data(), other.data() + bytes, pair.expected.data() + offset));
        }
        REQUIRE(pair.wait(puts) == tuttiSuccess);
        REQUIRE(pair.is_right());
    }
}

}  // namespace

TEST_CASE("puts that overlap take place in their order, whoever writes them, and before their signals") {
    PutPair pair;
    fake_verbs().inline_bytes = GENERATE(256U, 0U);
    const int refused = fake_verbs_tally().refused;
    put_at_random(pair, 60);
    CHECK(written_by_peers(pair.memory) > room);
    CHECK(read_by_peers(pair.memory) > 0);
    CHECK(fake_verbs_tally().refused == refused);
}

TEST_CASE("puts that overlap take place in their order although connections break") {
    PutPair pair;
    pair.introduce();
    const int refused = fake_verbs_tally().refused;
    fake_verbs().cut_every = 9;
    fake_verbs().cuts = 12;
    put_at_random(pair, 60);
    CHECK(fake_verbs().cuts == 0);
    CHECK(written_by_peers(pair.memory) > room);
    CHECK(fake_verbs_tally().refused == refused);  // no key of an adapter that is not used any more
}

TEST_CASE("a window that no adapter takes gets its puts all the same, and so does one that it took later") {
    PutPair pair;
    pair.close();
    fake_verbs().registrations = 0;
    pair.open();
    fake_verbs().registrations = 1'000'000;
    put_at_random(pair, 10);
    CHECK_FALSE(peers_can_write(pair.memory, 1));
    pair.close();
    pair.open();
    put_at_random(pair, 10);
    CHECK(peers_can_write(pair.memory, room));
    CHECK_FALSE(relaxed(pair.memory));  // a later put replaces what an earlier one has put
    CHECK(written_by_peers(pair.memory) > 0);
}

TEST_CASE("an adapter refuses a put that comes too late, and its communicator is told why") {
    PutPair pair;
    const size_t before = pair.introduce();
    const std::vector<unsigned char> late(5000, 9);
    pair.put(late.data(), 5000, 77);
    REQUIRE(pair.wait(1) == tuttiSuccess);
    CHECK(written_by_peers(pair.memory) == before + 5000);
    REQUIRE(tuttiCommWindowDeregister(pair.comms[1], pair.windows[1]) == tuttiSuccess);
    CHECK_FALSE(peers_can_write(pair.memory, 1));
    const int refused = fake_verbs_tally().refused;
    REQUIRE(tuttiPutSignal(late.data(), 5000, tuttiUint8, 1, pair.windows[0], 10'000, 0, 0, 0, pair.comms[0],
                           nullptr) == tuttiSuccess);
    const tuttiWaitSignalDesc_t never{1, 1, 7, 0};
    CHECK(tuttiWaitSignal(1, &never, pair.comms[0], nullptr) == tuttiInvalidUsage);
    CHECK(mentions(pair.comms[0], {"rank 0 puts into a window that rank 1 has deregistered"}));
    CHECK(fake_verbs_tally().refused > refused);  // the adapter has tried
    CHECK(pair.is_right());
    CHECK(pair.wait(1) == tuttiInvalidUsage);  // no signal has come
}

TEST_CASE("an adapter reads what a get asks for") {
    PutPair pair;
    pair.introduce();
    std::vector<unsigned char> got(5000);
    for (int i = 0; i < 200; ++i) {
        pair.memory[i * 7] = static_cast<unsigned char>(i);  // its owner writes it itself
        REQUIRE(pair.get(got.data(), 1 + static_cast<size_t>(i) * 20, static_cast<size_t>(i) * 7) == tuttiSuccess);
        REQUIRE(got[0] == static_cast<unsigned char>(i));
    }
    CHECK(read_by_peers(pair.memory) > 100'000);
}

TEST_CASE("an adapter refuses a get that comes too late, and its communicator is told why") {
    // The owner's engine answers a get, without the adapter, if it has not yet acknowledged the ones before.
    bool refused = false;
    for (int tries = 0; tries < 50 && !refused; ++tries) {
        PutPair pair;
        pair.introduce();
        std::vector<unsigned char> got(5000);
        for (size_t before = read_by_peers(pair.memory); read_by_peers(pair.memory) == before;)
            REQUIRE(pair.get(got.data(), 5000, 0) == tuttiSuccess);
        REQUIRE(tuttiCommWindowDeregister(pair.comms[1], pair.windows[1]) == tuttiSuccess);
        const int before = fake_verbs_tally().refused;
        CHECK(pair.get(got.data(), 5000, 0) == tuttiInvalidUsage);
        CHECK(mentions(pair.comms[0], {"rank 0 gets from a window that rank 1 has deregistered"}));
        refused = fake_verbs_tally().refused > before;
    }
    CHECK(refused);
}

// Not on slow links, where requests pass on one by one while all gets of a group are awaited: then engines answer.
TEST_CASE("an adapter reads long gets a piece at a time, alone and in groups, and puts between them in their turn",
          "[at once]") {
    PutPair pair;
    pair.introduce();
    std::vector<unsigned char> all(room), half(room / 2), few(100), later(1000);
    const std::vector<unsigned char> fresh(1000, 99);
    for (size_t i = 0; i < room; ++i) pair.memory[i] = pair.expected[i] = static_cast<unsigned char>(i * 31 + i / 253);
    const std::vector<unsigned char> before = pair.expected;
    const auto read_at_last = [&](size_t wanted, const std::function<void()>& get) {
        for (int tries = 0; tries < 1000; ++tries) {  // rank 0 may not know the window yet, or be between two gets
            const size_t read = read_by_peers(pair.memory);
            get();
            if (read_by_peers(pair.memory) - read >= wanted) return true;
        }
        return false;
    };
    CHECK(read_at_last(room, [&] {
        REQUIRE(pair.get(all.data(), room, 0) == tuttiSuccess);
        REQUIRE(all == before);
    }));
    const auto get_three = [&] {
        REQUIRE(pair.get(half.data(), half.size(), 12) == tuttiSuccess);
        REQUIRE(pair.get(all.data(), room, 0) == tuttiSuccess);
        REQUIRE(pair.get(few.data(), few.size(), 5) == tuttiSuccess);
    };
    const auto are_right = [&] {
        return all == before && std::equal(half.begin(), half.end(), before.data() + 12) &&
               std::equal(few.begin(), few.end(), before.data() + 5);
    };
    CHECK(read_at_last(room + half.size(), [&] {
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        get_three();
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
        REQUIRE(are_right());
    }));
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    get_three();
    pair.put(fresh.data(), fresh.size(), 0);
    REQUIRE(pair.get(later.data(), later.size(), 0) == tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    CHECK(are_right());
    CHECK(later == fresh);
    CHECK(pair.wait(1) == tuttiSuccess);
}

TEST_CASE("an adapter reads straight to memory that it knows, alone and in groups, also while connections break",
          "[at once]") {
    PutPair pair;
    pair.introduce();
    const bool breaks = GENERATE(false, true);
    fake_verbs().cut_every = 7;
    fake_verbs().cuts = breaks ? 12 : 0;
    for (size_t i = 0; i < room; ++i) pair.memory[i] = pair.expected[i] = static_cast<unsigned char>(i * 31 + i / 253);
    size_t wanted = 2 * room;
    for (int tries = 0; (read_from_peers(pair.source) < wanted || fake_verbs().cuts > 0) && tries < 2000; ++tries) {
        std::fill_n(pair.source, room, 0);
        if (tries % 2 == 0) {
            REQUIRE(pair.get(pair.source + 3, room - 5, 2) == tuttiSuccess);
            REQUIRE(std::equal(pair.source + 3, pair.source + room - 2, pair.memory + 2));
            continue;
        }
        constexpr size_t part = room / 3;
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        for (const size_t at : {2 * part, size_t{0}, part})
            REQUIRE(pair.get(pair.source + at, part, at) == tuttiSuccess);
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
        REQUIRE(std::equal(pair.source, pair.source + 3 * part, pair.memory));
    }
    CHECK(read_from_peers(pair.source) >= wanted);
    CHECK(fake_verbs().cuts == 0);
}

TEST_CASE("a long put is written by all adapters of a link") {
    PutPair pair;
    pair.introduce();
    const auto sent = [] { return std::array{fake_verbs_tally().writes[0], fake_verbs_tally().writes[1]}; };
    std::array<int, 2> before{}, after{};
    for (int tries = 0; tries < 100 && (after[0] - before[0] < 3 || after[1] - before[1] < 3); ++tries) {
        before = sent();
        std::fill_n(pair.source, room, static_cast<unsigned char>(tries));
        pair.put(pair.source, room, 0);  // six pieces
        REQUIRE(pair.wait(1) == tuttiSuccess);
        REQUIRE(pair.is_right());
        after = sent();
    }
    CHECK((after[0] - before[0] >= 3 && after[1] - before[1] >= 3));
    CHECK(written_by_peers(pair.memory) > room);
}

TEST_CASE("long puts by several adapters come whole although connections break") {
    PutPair pair;
    pair.introduce();
    fake_verbs().cut_every = 5;
    fake_verbs().cuts = 50;
    // A sender that has nothing to do any more would otherwise wait 7.5 s each time, for a look at silent hosts.
    const Deadline limit = Clock::now() + std::chrono::seconds(30);
    for (int round = 0; round < 80; ++round) {
        for (size_t i = 0; i < room; i += 1000) pair.source[i] = static_cast<unsigned char>(i / 1000 + round);
        pair.put(pair.source, room, 0);
        REQUIRE(pair.wait(1) == tuttiSuccess);
        REQUIRE(pair.is_right());
    }
    CHECK(fake_verbs().cuts == 0);
    CHECK(Clock::now() < limit);
}

TEST_CASE("a get that ends in time leaves no adapter that would still write to its memory") {
    PutPair pair(500);
    pair.introduce();
    fake_verbs().reads_wait = true;
    tuttiStream_t stream;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    REQUIRE(tuttiGet(pair.source, room, tuttiUint8, 1, pair.windows[0], 0, 0, 0, pair.comms[0], stream) ==
            tuttiSuccess);
    CHECK(tuttiStreamSynchronize(stream) != tuttiSuccess);
    const std::string error = tuttiGetLastError(pair.comms[0]);
    INFO(error);
    CHECK((waited(error, 0, 0.5, "for ") && has(error, " of the 1500000 bytes that it gets from rank 1")));
    CHECK(reads_under_way() == 0);
    fake_verbs().reads_wait = false;
    REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
}

TEST_CASE("a rank that has given up lets no adapter write to its windows any more") {
    PutPair pair;
    pair.introduce();
    REQUIRE(peers_can_write(pair.memory, room));
    REQUIRE(tuttiCommAbort(pair.comms[1]) == tuttiSuccess);
    CHECK_FALSE(peers_can_write(pair.memory, 1));
}

// Not on slow links, where all threads also sleep while a message is on its way.
TEST_CASE("a connection that breaks while both ranks sleep is replaced at once", "[at once]") {
    PutPair pair;
    pair.introduce();
    tuttiStream_t streams[2];
    for (tuttiStream_t& stream : streams) REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    const std::vector<unsigned char> own(5000, 3);
    fake_verbs().cut_every = fake_verbs().cuts = 1;
    const tuttiWaitSignalDesc_t back{1, 1, 0, 0};
    REQUIRE(pair.wait(1, streams[1]) == tuttiSuccess);
    std::copy(own.begin(), own.end(), pair.expected.begin());
    REQUIRE(tuttiPutSignal(own.data(), own.size(), tuttiUint8, 1, pair.windows[0], 0, 0, 0, 0, pair.comms[0],
                           streams[0]) == tuttiSuccess);
    REQUIRE(tuttiWaitSignal(1, &back, pair.comms[0], streams[0]) == tuttiSuccess);
    until_all_sleep();
    REQUIRE(fake_verbs().cuts == 0);
    CHECK(tuttiStreamQuery(streams[1]) == tuttiSuccess);
    CHECK(pair.is_right());
    REQUIRE(tuttiSignal(0, 0, 0, 0, pair.comms[1], nullptr) == tuttiSuccess);
    REQUIRE(tuttiStreamSynchronize(streams[0]) == tuttiSuccess);
    for (tuttiStream_t stream : streams) REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
}

TEST_CASE("a put that waits for an earlier one goes on in the background") {
    PutPair pair;
    const size_t before = pair.introduce();
    tuttiStream_t stream;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    std::vector<unsigned char> own(5000, 3);
    const Deadline limit = Clock::now() + std::chrono::seconds(20);  // each would wait 2 s for a look at silent hosts
    for (int round = 1; round <= 20; ++round) {
        std::ranges::fill(own, static_cast<unsigned char>(round));
        pair.put(own.data(), 10, 50);  // which the peer's engine writes
        pair.put(own.data(), 5000, 0);
        REQUIRE(pair.wait(2, stream) == tuttiSuccess);
        while (tuttiStreamQuery(stream) != tuttiSuccess && Clock::now() < limit) std::this_thread::yield();
        REQUIRE(tuttiStreamQuery(stream) == tuttiSuccess);
        REQUIRE(pair.is_right());
    }
    CHECK(written_by_peers(pair.memory) == before + 20 * 5000);
    REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
}
