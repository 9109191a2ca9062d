// More than 2^32 bytes, and more than 2^31 elements: no length and no place is cut to 32 bits on its way.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/result.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "harness/skip.hpp"
#include "tutti/tutti.h"

using namespace tutti;

namespace {

constexpr int ranks = 2;
constexpr std::size_t many = (std::size_t{1} << 32) + 4093;  // bytes; odd, and no multiple of a tile

/// Numbers that come again after so many, which is prime: what lies elsewhere is seen to be another one.
template <class T>
class Numbers {
  public:
    static constexpr std::size_t period = 262'139;
    explicit Numbers(T (*number)(std::size_t)) : table_(2 * period) {
        for (std::size_t i = 0; i < table_.size(); ++i) table_[i] = number(i % period);
    }
    /// to[0] is number `first`.
    void fill(T* to, std::size_t count, std::size_t first = 0) const {
        pieces(count, first, [&](std::size_t at, const T* from, std::size_t n) {
            std::memcpy(to + at, from, n * sizeof(T));
            return true;
        });
    }
    void check(const T* there, std::size_t count, const char* what, std::size_t first = 0) const {
        pieces(count, first, [&](std::size_t at, const T* expected, std::size_t n) {
            if (std::memcmp(there + at, expected, n * sizeof(T)) == 0) return true;
            while (std::memcmp(there + at, expected, sizeof(T)) == 0) ++at, ++expected;
            harness::check(false, text("%s: element %zu is wrong", what, at));
            return false;
        });
    }

  private:
    template <class Act>
    void pieces(std::size_t count, std::size_t first, Act act) const {
        for (std::size_t at = 0; at < count;) {
            const std::size_t n = std::min(count - at, period);
            if (!act(at, &table_[(first + at) % period], n)) return;
            at += n;
        }
    }
    std::vector<T> table_;
};

std::int8_t small(std::size_t i) {
    return static_cast<std::int8_t>((i * 7 + i / 101) % 42);
}
template <int factor>
std::int8_t bytes_times(std::size_t i) {
    return static_cast<std::int8_t>(factor * small(i));
}
template <int factor>
std::uint16_t bfloats_times(std::size_t i) {
    const auto number = static_cast<float>(factor * small(i));
    std::uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return static_cast<std::uint16_t>(bits >> 16);
}

enum class Way { local, shm, tcp };

void on_ranks(Way way, const std::function<void(int, tuttiComm_t, std::byte*)>& body) {
    const long long available = static_cast<long long>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    if (available < (12ll << 30)) return harness::skip("12 GiB of free memory");
    std::vector<tuttiComm_t> comms(ranks);
    if (way == Way::local) {
        comms = harness::make_comms(ranks);
    } else {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = way == Way::shm ? "shm" : "tcp";
        const tuttiUniqueId id = harness::new_id();
        tuttiGroupStart();
        for (int r = 0; r < ranks; ++r)
            tuttiCommInitRankConfig(&comms[static_cast<std::size_t>(r)], ranks, id, r, &config);
        harness::must_succeed(tuttiGroupEnd(), "tuttiCommInitRankConfig");
    }
    harness::run(ranks, [&](int r) {
        const tuttiComm_t comm = comms[static_cast<std::size_t>(r)];
        void* memory = nullptr;
        harness::must_succeed(tuttiMemAlloc(&memory, many + 64), "tuttiMemAlloc");
        body(r, comm, static_cast<std::byte*>(memory));
        harness::must_succeed(tuttiCommDestroy(comm), "tuttiCommDestroy");
        harness::must_succeed(tuttiMemFree(memory), "tuttiMemFree");
    });
}

void collectives(int r, tuttiComm_t comm, std::byte* memory) {
    const Numbers<std::int8_t> first(bytes_times<1>), second(bytes_times<2>), sum(bytes_times<3>);
    const Numbers<std::int8_t>& mine = r == 0 ? first : second;
    auto* const at = reinterpret_cast<std::int8_t*>(memory);
    const auto rank = static_cast<std::size_t>(r);

    mine.fill(at, many);
    harness::must_succeed(tuttiAllReduce(at, at, many, tuttiInt8, tuttiSum, comm, nullptr), "all-reduce");
    sum.check(at, many, "all-reduce");

    mine.fill(at, many);
    harness::must_succeed(tuttiBroadcast(at, at, many, tuttiInt8, 1, comm, nullptr), "broadcast");
    second.check(at, many, "broadcast");

    constexpr std::size_t row = many / ranks;
    std::fill_n(at, many, std::int8_t{-1});
    mine.fill(at + rank * row, row);
    harness::must_succeed(tuttiAllGather(at + rank * row, at, row, tuttiInt8, comm, nullptr), "all-gather");
    first.check(at, row, "all-gather, row 0");
    second.check(at + row, row, "all-gather, row 1");

    mine.fill(at, many);
    harness::must_succeed(tuttiReduceScatter(at, at + rank * row, row, tuttiInt8, tuttiSum, comm, nullptr),
                          "reduce-scatter");
    sum.check(at + rank * row, row, "reduce-scatter", rank * row);

    mine.fill(at, many);
    if (r == 0) harness::must_succeed(tuttiSend(at, many, tuttiInt8, 1, comm, nullptr), "send");
    if (r == 1) harness::must_succeed(tuttiRecv(at, many, tuttiInt8, 0, comm, nullptr), "recv");
    first.check(at, many, "send and recv");
}

void elements(int r, tuttiComm_t comm, std::byte* memory) {
    constexpr std::size_t count = many / 2;
    static_assert(count > std::size_t{1} << 31);
    auto* const at = reinterpret_cast<std::uint16_t*>(memory);
    Numbers<std::uint16_t>(r == 0 ? bfloats_times<1> : bfloats_times<2>).fill(at, count);
    harness::must_succeed(tuttiAllReduce(at, at, count, tuttiBfloat16, tuttiSum, comm, nullptr), "all-reduce");
    Numbers<std::uint16_t>(bfloats_times<3>).check(at, count, "all-reduce");
}

/// Rank 0 puts all, then a few bytes to the very end.
void put_all(int r, tuttiComm_t comm, std::byte* memory) {
    const Numbers<std::int8_t> first(bytes_times<1>), second(bytes_times<2>);
    auto* const at = reinterpret_cast<std::int8_t*>(memory);
    (r == 0 ? first : second).fill(at, many);
    tuttiWindow_t window = nullptr;
    harness::must_succeed(tuttiCommWindowRegister(comm, memory, many + 64, &window, TUTTI_WIN_DEFAULT), "window");
    if (r == 0) {
        harness::must_succeed(tuttiPutSignal(at, many, tuttiInt8, 1, window, 0, 0, 0, 0, comm, nullptr), "put");
        harness::must_succeed(tuttiPutSignal(at + 1, 8, tuttiInt8, 1, window, many, 0, 0, 0, comm, nullptr), "put");
    } else {
        const tuttiWaitSignalDesc_t both = {2, 0, 0, 0};
        harness::must_succeed(tuttiWaitSignal(1, &both, comm, nullptr), "wait");
        first.check(at, many, "put");
        first.check(at + many, 8, "put to the end", 1);
    }
    harness::must_succeed(tuttiCommWindowDeregister(comm, window), "deregister");
}

}  // namespace

TEST_CASE("more than 2^32 bytes within a process", "[.][full]") {
    on_ranks(Way::local, collectives);
}
TEST_CASE("more than 2^32 bytes over shared memory", "[.][full]") {
    on_ranks(Way::shm, collectives);
}
TEST_CASE("more than 2^32 bytes over sockets", "[.][full]") {
    on_ranks(Way::tcp, collectives);
}
TEST_CASE("more than 2^31 elements", "[.][full]") {
    for (const Way way : {Way::shm, Way::tcp}) on_ranks(way, elements);
}
TEST_CASE("a put of more than 2^32 bytes, and one behind them", "[.][full]") {
    on_ranks(Way::shm, put_all);
}
