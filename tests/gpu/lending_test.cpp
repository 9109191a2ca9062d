// Memory lent between processes: here both ends are in one, with GPUs of their own.
#include <cstring>

#include "base/result.hpp"
#include "gpu/lending.hpp"
#include "harness/catch.hpp"
#include "harness/emulated_gpus.hpp"

using namespace tutti;
using namespace tutti::gpu;
using harness::EmulatedGpus;

namespace {

struct Pair {
    EmulatedGpus ours, theirs;
    Lender lender{ours, 0};
    std::vector<std::byte> table{max_regions * sizeof(std::byte*)};
    std::vector<Borrower> borrower;

    Pair() {
        lender.expect(3);
        borrower.emplace_back(theirs, 0, lender.fd(), 1, 3, table.data());
    }
    std::uint32_t find(const std::byte* memory) { return lender.find(ours.pointee(memory)); }
    const std::byte* seen(std::uint32_t number) const {
        const std::byte* at;
        std::memcpy(&at, table.data() + number * sizeof at, sizeof at);
        return at;
    }
};

}  // namespace

TEST_CASE("lending: memory has a number once the borrower has opened it") {
    Pair pair;
    std::byte* const memory = pair.ours.allocate(0, 4096);
    memory[5] = std::byte{17};
    CHECK(pair.find(memory) == 0);
    CHECK(!pair.borrower[0].has_any());
    pair.borrower[0].look();
    const std::uint32_t number = pair.find(memory + 100);
    REQUIRE(number != 0);
    CHECK(pair.borrower[0].has_any());
    CHECK(pair.seen(number)[5] == std::byte{17});
    CHECK(pair.find(memory) == number);

    std::byte* const other = pair.ours.allocate(0, 4096);
    CHECK(pair.find(other) == 0);
    pair.borrower[0].look();
    CHECK(pair.find(other) != number);
    CHECK(pair.find(memory) == number);
}

TEST_CASE("lending: all borrowers must have opened it") {
    Pair pair;
    pair.lender.expect(4);
    std::byte* const memory = pair.ours.allocate(0, 4096);
    CHECK(pair.find(memory) == 0);
    pair.borrower[0].look();
    CHECK(pair.find(memory) == 0);
    pair.borrower.emplace_back(pair.theirs, 0, pair.lender.fd(), 1, 4, pair.table.data());
    pair.borrower[1].look();
    CHECK(pair.find(memory) != 0);
}

TEST_CASE("lending: what was freed is another memory, also at the same address") {
    Pair pair;
    std::byte* const before = pair.ours.allocate(0, 4096);
    pair.find(before);
    pair.borrower[0].look();
    REQUIRE(pair.find(before) != 0);
    pair.ours.free(0, before);
    std::byte* const after = pair.ours.allocate(0, 4096);
    REQUIRE(after == before);  // the kernel gives the last hole again
    after[0] = std::byte{99};
    CHECK(pair.find(after) == 0);
    pair.borrower[0].look();
    const std::uint32_t number = pair.find(after);
    REQUIRE(number != 0);
    CHECK(pair.seen(number)[0] == std::byte{99});
}

TEST_CASE("lending: memory that is gone before it is opened, or can't be shared, has no number") {
    Pair pair;
    std::byte* const early = pair.ours.allocate(0, 4096);
    pair.find(early);
    pair.ours.free(0, early);
    pair.borrower[0].look();
    CHECK(!pair.borrower[0].has_any());

    std::byte* const pool = pair.ours.allocate_from_pool(0, 64 * 1024);
    for (int i = 0; i < 3; ++i) {
        CHECK(pair.find(pool) == 0);
        pair.borrower[0].look();
    }
    CHECK(pair.ours.refused_shares() == 1);  // it is not tried again

    CHECK(pair.find(pair.ours.allocate_pinned(4096)) == 0);
}

TEST_CASE("lending: of more allocations than there are numbers, those that live keep theirs") {
    Pair pair;
    std::vector<std::byte*> all;
    const auto add = [&] {
        all.push_back(pair.ours.allocate(0, 4096));
        pair.find(all.back());
        pair.borrower[0].look();
        return pair.find(all.back());
    };
    for (int i = 1; i < max_regions; ++i) REQUIRE(add() != 0);
    CHECK(add() == 0);
    CHECK(add() == 0);
    CHECK(pair.find(all.front()) != 0);
    // Memory elsewhere, so that nothing shows that the old one is gone but a look at it.
    std::byte* const larger = pair.ours.allocate(0, 64 * 1024);
    pair.ours.free(0, all[7]);
    pair.ours.free(0, all[8]);
    CHECK(pair.find(larger) == 0);  // it has just looked whether anything was freed
    std::uint32_t number = 0;
    for (int calls = 0; number == 0; ++calls) {  // now and then it does
        REQUIRE(calls < 2000);
        number = pair.find(larger);
        pair.borrower[0].look();
    }
    CHECK(pair.find(all.front()) != 0);
}
