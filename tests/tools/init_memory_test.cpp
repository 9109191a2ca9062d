// The sizes that init_bench starts, depending on the available memory.
#include "init_memory.hpp"

#include "harness/catch.hpp"

using namespace init_bench;

namespace {

constexpr std::size_t gib = std::size_t{1} << 30;

Extent extent(int ranks, std::size_t available) {
    return affordable(ranks, known_small, known_large, available).extent;
}

}  // namespace

TEST_CASE("4,096 ranks only join on a machine of 23 GiB, and do all with 64 GiB") {
    CHECK(extent(1024, 23 * gib) == Extent::whole);
    CHECK(extent(4096, 23 * gib) == Extent::join_only);
    CHECK(extent(4096, 64 * gib) == Extent::whole);
    CHECK(extent(4096, 8 * gib) == Extent::nothing);
    CHECK(extent(2, 0) == Extent::nothing);
}

TEST_CASE("what a larger row takes is on the line through two measured ones, and a tenth of memory stays free") {
    const Held small{100, 100, 200}, large{200, 200, 400};  // a KiB, or two, for each rank there is
    const Affordable row = affordable(1000, small, large, 0);
    CHECK(row.joined == 1000.0 * 1000 * 1024);
    CHECK(row.called == 2 * row.joined);
    const auto by = [&](double bytes) {
        return affordable(1000, small, large, static_cast<std::size_t>(bytes)).extent;
    };
    CHECK(by(row.called / 0.9 + 1) == Extent::whole);
    CHECK(by(row.called) == Extent::join_only);
    CHECK(by(row.joined / 0.9 + 1) == Extent::join_only);
    CHECK(by(row.joined) == Extent::nothing);
}

TEST_CASE("a rank is not thought to take less in a larger row") {
    const Held small{100, 300, 500}, large{200, 200, 400};
    CHECK(affordable(1000, small, large, 0).joined == 1000.0 * 200 * 1024);
}
