// Memory lent between processes: here both ends are in one, with GPUs of their own. These end the process if memory is
// freed that the other ones have open.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <tuple>

#include "base/result.hpp"
#include "gpu/borrowing.hpp"
#include "gpu/lending.hpp"
#include "gpu/memory.hpp"
#include "harness/catch.hpp"
#include "harness/emulated_gpus.hpp"

using namespace tutti;
using namespace tutti::gpu;
using harness::EmulatedGpus;

namespace {

constexpr int seat = 3;

struct Pair {
    EmulatedGpus ours, theirs;
    std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
    Ledger own;  // of the borrower
    std::shared_ptr<const PageMapping> page = std::make_shared<PageMapping>(ledger->fd());
    Lender lender{ours, 0, ledger};
    std::vector<std::byte> table{max_regions * sizeof(std::byte*)};
    std::vector<Borrower> borrower;

    Pair() {
        ledger->expect(seat, std::make_shared<PageMapping>(own.fd()));
        borrower.push_back(another(seat));
        ledger->open();
        use_gpus(&ours);  // for memory of the library's
    }
    ~Pair() { use_gpus(nullptr); }
    Pair(const Pair&) = delete;
    Borrower another(int its_seat) { return {theirs, 0, page, 1, its_seat, table.data(), nullptr}; }

    /// It stays registered.
    std::byte* registered_memory(std::size_t bytes = 4096) {
        std::byte* const memory = ours.allocate(0, bytes);
        permit(memory);
        return memory;
    }
    void permit(const std::byte* memory) { lender.permit(ours.pointee(memory), memory, 1); }
    /// The loan that must come back.
    Loan forbid(const std::byte* memory) {
        const std::vector<Loan> loans = lender.forbid(ours.pointee(memory));
        REQUIRE(loans.size() <= 1);
        return loans.empty() ? Loan{} : loans.front();
    }
    std::uint32_t find(const std::byte* memory) { return lender.find(ours.pointee(memory), memory, 1, false).number; }
    /// Its number, when all see it.
    std::uint32_t lent(const std::byte* memory) {
        if (const std::uint32_t number = find(memory); number != 0) return number;
        borrower[0].look();
        return find(memory);
    }
    const std::byte* seen(std::uint32_t number) const {
        const std::byte* at;
        std::memcpy(&at, table.data() + number * sizeof at, sizeof at);
        return at;
    }
};

}  // namespace

TEST_CASE("lending: memory has a number once the borrower has opened it") {
    Pair pair;
    std::byte* const memory = pair.registered_memory();
    memory[5] = std::byte{17};
    CHECK(pair.find(memory) == 0);
    CHECK(!pair.borrower[0].has_any());
    pair.borrower[0].look();
    const std::uint32_t number = pair.find(memory + 100);
    REQUIRE(number != 0);
    CHECK(pair.borrower[0].has_any());
    CHECK(pair.seen(number)[5] == std::byte{17});
    CHECK(pair.find(memory) == number);

    std::byte* const other = pair.registered_memory();
    CHECK(pair.find(other) == 0);
    pair.borrower[0].look();
    CHECK(pair.find(other) != number);
    CHECK(pair.find(memory) == number);
}

TEST_CASE("lending: all borrowers must have opened it") {
    Pair pair;
    pair.ledger->expect(4, std::make_shared<PageMapping>(pair.own.fd()));
    std::byte* const memory = pair.registered_memory();
    CHECK(pair.lent(memory) == 0);
    pair.borrower.push_back(pair.another(4));
    pair.borrower[1].look();
    CHECK(pair.find(memory) != 0);
}

TEST_CASE("lending: memory whose end nobody tells the library of is not lent") {
    Pair pair;
    std::byte* const memory = pair.ours.allocate(0, 4096);
    CHECK(pair.lent(memory) == 0);
    CHECK(!pair.borrower[0].has_any());
    pair.ours.free(0, memory);
}

TEST_CASE("lending: registered memory is back, and may be freed, once the borrower has closed it") {
    Pair pair;
    std::byte* const memory = pair.registered_memory();
    pair.permit(memory);
    REQUIRE(pair.lent(memory) != 0);
    CHECK(pair.forbid(memory).number == 0);  // it was registered twice
    CHECK(pair.lent(memory) != 0);
    const Loan loan = pair.forbid(memory);
    REQUIRE(loan.number != 0);
    CHECK(pair.ledger->holder(loan.number, loan.turn) == seat);
    CHECK(pair.lent(memory) == 0);
    pair.borrower[0].give_back();
    CHECK(pair.ledger->holder(loan.number) == -1);
    CHECK(!pair.borrower[0].has_any());
    pair.ours.free(0, memory);

    std::byte* const after = pair.registered_memory();
    after[0] = std::byte{99};
    CHECK(pair.find(after) == 0);
    const std::uint32_t number = pair.lent(after);
    REQUIRE(number != 0);
    CHECK(pair.seen(number)[0] == std::byte{99});
}

TEST_CASE("lending: a borrower's thread closes what is wanted back, while its rank does something else") {
    Pair pair;
    Borrowers borrowers(pair.own.page());
    borrowers.add(std::move(pair.borrower[0]));
    std::byte* const memory = pair.registered_memory();
    pair.find(memory);
    borrowers.look();
    REQUIRE(pair.find(memory) != 0);
    const Loan loan = pair.forbid(memory);
    for (std::uint32_t bell = pair.ledger->page().bell; pair.ledger->holder(loan.number, loan.turn) >= 0;
         bell = pair.ledger->page().bell)
        futex_wait(pair.ledger->page().bell, bell, std::chrono::milliseconds(20));
    CHECK(!borrowers.have_any());
    pair.ours.free(0, memory);
}

TEST_CASE("lending: what tuttiMemFree frees goes to the GPU once the borrower has closed it") {
    Pair pair;
    void* const memory = allocate_for_user(0, 4096);
    REQUIRE(pair.lent(static_cast<std::byte*>(memory)) != 0);
    const std::size_t before = pair.ours.allocations();
    CHECK(free_for_user(memory));
    CHECK(!free_for_user(memory));
    free_what_is_back();
    CHECK(pair.ours.allocations() == before);
    pair.borrower[0].give_back();
    free_what_is_back();
    CHECK(pair.ours.allocations() == before - 1);

    void* const alone = allocate_for_user(0, 4096);
    CHECK(free_for_user(alone));
    CHECK(pair.ours.allocations() == before - 1);
}

TEST_CASE("lending: memory of tuttiMemAllocDevice keeps nothing of communicators that have ended") {
    Pair pair;
    auto* const memory = static_cast<std::byte*>(allocate_for_user(0, 4096));
    REQUIRE(pair.lent(memory) != 0);
    const std::size_t before = pair.ours.allocations();
    std::weak_ptr<Ledger> last;
    for (int communicators = 0; communicators < 3; ++communicators) {
        const auto ledger = std::make_shared<Ledger>();
        ledger->expect(seat, std::make_shared<PageMapping>(pair.own.fd()));
        Lender lender(pair.ours, 0, ledger);
        CHECK(lender.find(pair.ours.pointee(memory), memory, 1, false).number == 0);
        CHECK(last.expired());
        last = ledger;
    }
    CHECK(free_for_user(memory));
    CHECK(pair.ours.allocations() == before);  // the first one's borrower still has it
    pair.borrower[0].give_back();
    free_what_is_back();
    CHECK(pair.ours.allocations() == before - 1);
    CHECK(last.expired());
}

TEST_CASE("lending: memory outlives its communicator's arena, and that its lease, while others have them open") {
    Pair pair;
    auto ledger = std::make_shared<Ledger>();
    ledger->open();
    std::byte* const arena = pair.ours.allocate(0, 4096);
    const std::size_t before = pair.ours.allocations();
    Fd lease(dup(ledger->lease().get()));  // what a borrower fetches
    std::byte* const opened = pair.theirs.open(0, pair.ours.share(0, arena));
    ledger->close();
    const Claim claim{ledger};
    free_when_back(pair.ours, 0, arena, {&claim, 1});
    CHECK(pair.ours.allocations() == before);
    pair.theirs.close(0, opened);
    lease.reset();
    free_what_is_back();
    CHECK(pair.ours.allocations() == before - 1);
}

TEST_CASE("lending: a forked child that lives on keeps no memory allocated") {
    int wire[2];  // the child says that it has begun, and lives until this end is closed
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wire) == 0);
    Ledger ledger;
    ledger.open();
    const pid_t child = fork();
    char byte = 0;
    if (child == 0) {
        close(wire[0]);
        _exit(write(wire[1], &byte, 1) == 1 && read(wire[1], &byte, 1) == 0 ? 0 : 1);
    }
    close(wire[1]);
    CHECK(read(wire[0], &byte, 1) == 1);
    CHECK(ledger.is_leased());
    ledger.close();
    CHECK_FALSE(ledger.is_leased());
    close(wire[0]);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("lending: a borrower that comes too late opens nothing, and one that has died holds nothing") {
    Pair pair;
    std::byte* const early = pair.registered_memory();
    pair.find(early);
    const Loan loan = pair.forbid(early);
    CHECK(loan.number != 0);
    pair.ours.free(0, early);
    pair.borrower[0].look();
    CHECK(!pair.borrower[0].has_any());
    CHECK_THROWS_AS(pair.borrower[0].open_now(loan), Error);
    CHECK(pair.ledger->holder(loan.number) == -1);

    std::byte* const memory = pair.registered_memory();
    const std::uint32_t number = pair.lent(memory);
    REQUIRE(number != 0);
    CHECK(pair.ledger->holder(number) == seat);
    pair.ledger->bury(seat);
    CHECK(pair.ledger->holder(number) == -1);
}

TEST_CASE("lending: memory that can't be shared has no number") {
    Pair pair;
    std::byte* const pool = pair.ours.allocate_from_pool(0, 64 * 1024);
    pair.permit(pool);
    for (int i = 0; i < 3; ++i) CHECK(pair.lent(pool) == 0);
    CHECK(pair.ours.refused_shares() == 1);  // it is not tried again
    CHECK(pair.forbid(pool).number == 0);

    CHECK(pair.find(pair.ours.allocate_pinned(4096)) == 0);
}

TEST_CASE("lending: for windows there are more numbers, which messages do not use") {
    Pair pair;
    std::vector<std::byte*> all;
    for (int i = 1; i < max_regions; ++i) {
        all.push_back(pair.registered_memory());
        REQUIRE(pair.lent(all.back()) != 0);
    }
    std::byte* const more = pair.registered_memory();
    CHECK(pair.lent(more) == 0);
    more[7] = std::byte{5};
    const Loan loan = pair.lender.lend_now(pair.ours.pointee(more));
    CHECK(loan.number >= max_regions);
    CHECK(pair.borrower[0].open_now(loan)[7] == std::byte{5});
    CHECK(pair.lent(more) == 0);

    const Loan old = pair.forbid(all[7]);
    std::byte* const next = pair.registered_memory();
    CHECK(pair.find(next) == 0);  // it is not back yet
    pair.borrower[0].give_back();
    CHECK(pair.lent(next) == old.number);
    CHECK(pair.lent(all.front()) != 0);
}

namespace {

/// Notes what is mapped, and maps nothing.
struct Noting : EmulatedGpus {
    std::size_t bytes = 0, end = 0;
    void map(int, std::byte*, std::size_t offset, const SharedAllocation& allocation) override {
        bytes += allocation.bytes;
        end = std::max(end, offset + allocation.bytes);
    }
};

/// What rank 0 maps, 8 bytes behind the first address, where rank 1 offers this list and tells this.
std::size_t mapped_by(const std::vector<std::uint64_t>& sizes, std::uint64_t segments, std::uint64_t bytes) {
    const auto sessions = Session::in_process({{}, {}});
    const Fd list = make_memfd("list", sizes.size() * sizeof(std::uint64_t) + 3);  // not empty
    const Mapping mapping = Mapping::of(list);
    std::ranges::copy(std::as_bytes(std::span(sizes)), mapping.base());
    for (std::uint64_t key = 1; key <= 1 + sizes.size(); ++key) sessions[1]->offer(key, list);
    Noting gpus;
    map_offered(gpus, 0, nullptr, 8, *sessions[0], 1, {1, segments, bytes}, Clock::now() + std::chrono::seconds(10));
    CHECK(gpus.end == 8 + gpus.bytes);
    return gpus.bytes;
}

}  // namespace

TEST_CASE("lending: descriptors are mapped only as the peer has told before") {
    const std::uint64_t most = ~std::uint64_t{0};
    CHECK(mapped_by({4096, 8192, 4096}, 3, 16384) == 16384);
    using Sizes = std::vector<std::uint64_t>;
    for (const auto& [sizes, segments, bytes] :
         {std::tuple{Sizes{4096, 8192}, 2, 8192}, std::tuple{Sizes{4096}, 1, 8192}, std::tuple{Sizes{4096}, 2, 4096},
          std::tuple{Sizes{4096, 4096}, 1, 4096}, std::tuple{Sizes{0, 4096}, 2, 4096}, std::tuple{Sizes{}, 0, 0},
          std::tuple{Sizes{most, 4097}, 2, 4096}})
        CHECK_THROWS_WITH(mapped_by(sizes, static_cast<std::uint64_t>(segments), static_cast<std::uint64_t>(bytes)),
                          Catch::Contains("rank 1 offers"));
}
