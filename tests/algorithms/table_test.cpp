#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "algorithms/prove.hpp"
#include "base/result.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "schedule/compose.hpp"

using namespace tutti;

TEST_CASE("names are found and are unique") {
    std::set<std::string_view> names;
    for (const Algorithm& a : algorithms()) {
        CHECK(names.insert(a.name).second);
        CHECK(find_algorithm(a.name) == &a);
        CHECK_FALSE(a.summary.empty());
    }
    CHECK(find_algorithm("") == nullptr);
    CHECK(find_algorithm("Ring") == nullptr);
}

TEST_CASE("every collective has an algorithm") {
    for (int c = 0; c < collectives; ++c) {
        INFO(name_of(static_cast<Collective>(c)));
        CHECK(std::ranges::any_of(algorithms(),
                                  [&](const Algorithm& a) { return a.supports(static_cast<Collective>(c)); }));
    }
}

TEST_CASE("an algorithm refuses what it does not support") {
    for (const Algorithm& a : algorithms())
        for (int c = 0; c < collectives; ++c) {
            const auto op = static_cast<Collective>(c);
            INFO(a.name << " " << name_of(op));
            if (!a.supports(op)) CHECK_THROWS_AS(a.make({op, 0, 2, 1}), Error);
        }
}

// Any rank makes its own program, however many there are: these need O(n) steps at most. All-to-all's rows are passed
// on log n / 2 times each.
TEST_CASE("programs for very many ranks are small", "[long]") {
    for (const Algorithm& a : algorithms())
        for (int c = 0; c < collectives; ++c) {
            const auto op = static_cast<Collective>(c);
            if (!a.supports(op) || op == Collective::all_to_all) continue;
            constexpr int n = 131072;
            for (const Rank rank : {0, 1, n - 1}) {
                if (harness::sanitized && rank != 1) continue;
                const Program p = a.make({op, rank, n, rank == 1 && least_ranks(op) == 2 ? 0 : 1});
                INFO(a.name << " " << name_of(op) << " rank " << rank);
                CHECK(p.steps.size() * sizeof(Step) + p.operands.size() * sizeof(Operand) < 32u << 20);
            }
        }
}

TEST_CASE("closed forms are the literature's") {
    // Patarasuk & Yuan: 2(n-1)/n of the size per link, of chunks that are 1/n each; direct the same per rank.
    const ClosedForm ring = find_algorithm("ring")->closed_form(Collective::all_reduce, 8);
    CHECK(ring.busiest_link == 14);
    CHECK(ring.busiest_rank == 14);
    CHECK(ring.rounds == 14);
    const ClosedForm direct = find_algorithm("direct")->closed_form(Collective::all_reduce, 8);
    CHECK(direct.busiest_link == 2);
    CHECK(direct.busiest_rank == 14);
    CHECK(direct.rounds == 2);
}

TEST_CASE("a central server sends n/2 times what a rank of the ring sends, and servers on all ranks as much as it") {
    for (const int n : {2, 4, 7, 8, 64}) {
        CAPTURE(n);
        // In units of the data. Columns: into how many chunks it is cut.
        const auto sent = [&](const char* name) {
            const Algorithm& algorithm = *find_algorithm(name);
            const int columns = algorithm.make({Collective::all_reduce, 0, n}).columns;
            return static_cast<double>(algorithm.closed_form(Collective::all_reduce, n).busiest_rank) / columns;
        };
        CHECK(sent("server") == Approx(n - 1));
        CHECK(sent("ring") == Approx(2.0 * (n - 1) / n));
        CHECK(sent("server") / sent("ring") == Approx(n / 2.0));
        CHECK(sent("direct") == Approx(sent("ring")));
    }
}

TEST_CASE("every algorithm is as right with its parts dealt in another order") {
    std::mt19937 random(harness::seed());
    for (const Algorithm& a : algorithms())
        for (int c = 0; c < collectives; ++c) {
            const auto op = static_cast<Collective>(c);
            if (!a.supports(op) || least_ranks(op) == 2) continue;
            for (const int ranks : {2, 3, 4, 6, 8, 13}) {
                std::vector<Rank> order(static_cast<std::size_t>(ranks));
                std::iota(order.begin(), order.end(), 0);
                std::shuffle(order.begin(), order.end(), random);
                Algorithm other = a;
                other.ways = {{op, [&](const Request& request) { return reordered(a.way(op)->make, request, order); }}};
                const Rank root = static_cast<Rank>(random() % static_cast<unsigned>(ranks));
                const Report report = prove(other, op, ranks, root);
                INFO(a.name << " " << name_of(op) << " ranks " << ranks << ": " << report.error);
                CHECK(report.ok);
            }
        }
}
