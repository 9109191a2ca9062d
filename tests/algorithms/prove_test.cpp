// Every row of the table is proven for every number of ranks up to 64, and for a few larger ones.
#include "algorithms/prove.hpp"

#include <algorithm>
#include <random>
#include <set>

#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;

namespace {

std::set<Rank> roots(Collective c, int n) {
    if (!has_root(c)) return {0};
    std::set<Rank> some{0, 1 % n, n / 2, n - 1};
    for (Rank r = 0; n <= 9 && r < n; ++r) some.insert(r);
    return some;
}

template <class Visit>
void for_each_row(Visit visit) {
    for (const Algorithm& a : algorithms())
        for (int c = 0; c < collectives; ++c)
            if (a.supports(static_cast<Collective>(c))) visit(a, static_cast<Collective>(c));
}

}  // namespace

TEST_CASE("the table holds for 1 to 64 ranks") {
    for_each_row([](const Algorithm& a, Collective c) {
        for (int n = least_ranks(c); n <= (harness::sanitized ? 24 : 64); ++n)
            for (const Rank root : roots(c, n)) {
                const Report r = prove(a, c, n, root);
                INFO(a.name << " " << name_of(c) << ", " << n << " ranks, root " << root);
                REQUIRE(r.error == "");
            }
    });
}

TEST_CASE("the table holds for many ranks", "[long]") {
    const auto proven = [](const char* name, Collective c, int n) {
        INFO(name << " " << name_of(c) << ", " << n << " ranks");
        CHECK(prove(*find_algorithm(name), c, n, n / 3).error == "");
    };
    for (const int n : {100, 1000, 4096}) {
        if (harness::sanitized && n > 100) continue;
        for (const char* name : {"ring", "flat"})
            for (const Collective c : {Collective::broadcast, Collective::reduce}) proven(name, c, n);
        proven("pair", Collective::send, n);
    }
    for (const int n : {100, 255, 256, 1000}) {
        if (harness::sanitized && n > 100) continue;
        for (const char* name : {"halving_doubling", "bruck", "pat"}) proven(name, Collective::all_gather, n);
        for (const char* name : {"tree", "double_tree", "doubling", "server2"}) proven(name, Collective::all_reduce, n);
        for (const Collective c : {Collective::gather, Collective::scatter}) proven("binomial", c, n);
        proven("dissemination", Collective::barrier, n);
    }
    for (const int n : {97, 128})
        for (const char* name : {"ring", "direct"})
            for (const Collective c : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather})
                proven(name, c, n);
}

// Programs of all ranks grow with n squared for many rows: those are proven as far as the memory of a laptop goes.
TEST_CASE("every row holds for a sample of up to 4096 ranks", "[.full]") {
    constexpr long long most_chunks = 3'000'000;  // sent by all ranks
    std::mt19937 random(harness::seed());
    std::set<int> sample{65,  100, 127,  128,  129,  255,  256,  257,  500, 511,
                         512, 513, 1000, 1023, 1024, 1025, 2048, 4095, 4096};
    for (int i = 0; i < 12; ++i) sample.insert(65 + static_cast<int>(random() % 4032));
    long long programs = 0;
    for_each_row([&](const Algorithm& a, Collective c) {
        int largest = 0;
        for (const int n : sample) {
            if (n * a.closed_form(c, n).busiest_rank > most_chunks) continue;
            const Rank root = has_root(c) ? static_cast<Rank>(random() % static_cast<unsigned>(n)) : 0;
            INFO(a.name << " " << name_of(c) << ", " << n << " ranks, root " << root);
            const Report r = prove(a, c, n, root);
            REQUIRE(r.error == "");
            programs += n;
            largest = n;
        }
        INFO(a.name << " " << name_of(c) << " was proven up to " << largest);
        CHECK(largest >= 500);
    });
    WARN(programs << " programs proven");
}

TEST_CASE("the table asks for no more than is needed") {
    for (const Algorithm& a : algorithms()) {
        int depth = 0;
        bool pull_safe = true, push_safe = true;
        for (int c = 0; c < collectives; ++c) {
            if (!a.supports(static_cast<Collective>(c))) continue;
            for (int n = 2; n <= 6; ++n) {
                const Report r = prove(a, static_cast<Collective>(c), n);
                depth = std::max(depth, r.fifo_depth);
                pull_safe = pull_safe && r.pull_safe;
                push_safe = push_safe && r.push_safe;
            }
        }
        INFO(a.name);
        CHECK(a.fifo_depth == depth);
        CHECK(a.pull_safe == pull_safe);
        CHECK(a.push_safe == push_safe);
    }
}

TEST_CASE("rows may differ where the table says so, and only there") {
    for_each_row([](const Algorithm& a, Collective c) {
        bool safe = true;
        for (int n = std::max(3, least_ranks(c)); n <= 6; ++n) safe = safe && prove(a, c, n, n / 2).uneven_safe;
        INFO(a.name << " " << name_of(c));
        CHECK(a.uneven_safe(c) == safe);
    });
    const auto why = [](const char* name, Collective c) { return prove(*find_algorithm(name), c, 5, 1).uneven_hazard; };
    CHECK(why("bruck", Collective::all_to_all).find("several parts") != std::string::npos);
    CHECK(why("binomial", Collective::gather).find("several parts") != std::string::npos);
    CHECK(why("direct", Collective::all_reduce) == "all_reduce has no row for each rank");
}

TEST_CASE("direct and flat add in rank order, in one step") {
    for (const char* name : {"direct", "flat"}) {
        const Report r = prove(*find_algorithm(name), Collective::all_reduce, 5);
        REQUIRE(r.ok);
        for (const auto& rank : r.order)
            for (const std::uint32_t chunk : rank) CHECK(r.expressions.text(chunk) == "(0+1+2+3+4)");
    }
}

TEST_CASE("ring adds along the ring") {
    const Algorithm& ring = *find_algorithm("ring");
    const Report all_reduce = prove(ring, Collective::all_reduce, 4);
    CHECK(all_reduce.expressions.text(all_reduce.order[2][1]) == "(((1+2)+3)+0)");
    const Report reduce_scatter = prove(ring, Collective::reduce_scatter, 4);
    CHECK(reduce_scatter.expressions.text(reduce_scatter.order[1][0]) == "(((2+3)+0)+1)");
    const Report reduce = prove(ring, Collective::reduce, 4, 2);
    CHECK(reduce.expressions.text(reduce.order[2][0]) == "(((3+0)+1)+2)");
}

TEST_CASE("alone, a rank copies its input") {
    for_each_row([](const Algorithm& a, Collective c) {
        if (least_ranks(c) > 1) return;
        const Program p = a.make({c, 0, 1});
        INFO(a.name << " " << name_of(c));
        REQUIRE(p.steps.size() == 1);
        CHECK(p.sources(p.steps[0])[0] == input(0));
        CHECK(p.sinks(p.steps[0])[0] == output(0));
        CHECK(p.steps[0].completes == reduces(c));
    });
}

TEST_CASE("broken promises are found") {
    Algorithm a = *find_algorithm("ring");
    a.fifo_depth = 1;
    CHECK(prove(a, Collective::all_reduce, 3).error == "needs 2 slots per connection, the table says 1");
    a = *find_algorithm("ring");
    a.form = find_algorithm("direct")->form;
    CHECK(prove(a, Collective::all_reduce, 3).error == "rounds: 4, the closed form says 2");
    a = *find_algorithm("flat");
    a.pull_safe = true;
    CHECK(prove(a, Collective::all_reduce, 3).error.starts_with("is not pull safe: in place, "));
    a = *find_algorithm("bruck");
    for (Way& way : a.ways) way.promises.uneven_safe = true;
    CHECK(prove(a, Collective::all_to_all, 4).error.starts_with("is not uneven safe: its messages have several parts"));
    a = *find_algorithm("flat");
    a.ways.front().make = [](const Request& q) {
        Program p = flat().make(q);
        if (q.rank == 1) std::swap(p.operands[p.steps[1].first], p.operands[p.steps[1].first + 1]);
        return p;
    };
    CHECK(prove(a, Collective::all_reduce, 3).error == "rank 1 adds out[0] as (1+0+2), rank 0 as (0+1+2)");
}
