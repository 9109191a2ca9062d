#include "schedule/cost.hpp"

#include <algorithm>

#include "algorithms/prove.hpp"
#include "harness/catch.hpp"

using namespace tutti;

namespace {

Rates nothing() {
    Rates r;
    r.step = r.message = r.load = r.store = r.memory = r.switching = 0;
    return r;
}

Line still(Rank, Rank) {
    return {0, 0};
}

template <class Check>
void for_all_rehearsals(Check&& check) {
    for (const Algorithm& a : algorithms())
        for (int c = 0; c < collectives; ++c)
            for (const int n : {2, 3, 5, 8}) {
                const auto collective = static_cast<Collective>(c);
                if (!a.supports(collective)) continue;
                INFO(a.name << " " << name_of(collective) << " " << n);
                check(a, collective, Rehearsal::of(all_programs(a, collective, n)));
            }
}

}  // namespace

TEST_CASE("where only hand-overs take time, a tile takes as many as the algorithm has rounds") {
    for_all_rehearsals([](const Algorithm& a, Collective c, const Rehearsal& r) {
        const Price p = price(r, {64, 1, 1}, nothing(), [](Rank, Rank) { return Line{1, 0}; });
        // Receiving the last message ends no further hand-over, but a rank waits for every one.
        if (c == Collective::send) return;
        CHECK(p.chain == a.closed_form(c, static_cast<int>(r.programs.size())).rounds);
        CHECK(p.work == 0);
    });
}

TEST_CASE("where only stored bytes take time, the work is the sinks'") {
    for_all_rehearsals([](const Algorithm&, Collective, const Rehearsal& r) {
        double all = 0, most = 0;
        for (const Program& p : r.programs) {
            double here = 0;
            for (const Step& s : p.steps) here += s.sinks;
            all += here;
            most = std::max(most, here);
        }
        Rates rates = nothing();
        rates.store = 1;
        const Price p = price(r, {1, 1, 1}, rates, still);
        CHECK(p.work == all);
        CHECK(p.busiest == most);
        CHECK(p.chain >= most);
        CHECK(p.chain <= all);
    });
}

TEST_CASE("further tiles follow as fast as the busiest rank, the chain over the lanes, and the cores allow") {
    Rates rates = nothing();
    Price p{0, 10, 3, 12, 0};
    add_tiles(p, 5, 1, 4, rates);
    CHECK(p.time == 10 + 4 * 10);
    p = {0, 10, 3, 12, 0};
    add_tiles(p, 5, 2, 4, rates);
    CHECK(p.time == 10 + 4 * 5);
    p = {0, 10, 3, 12, 0};
    add_tiles(p, 5, 8, 4, rates);
    CHECK(p.time == 10 + 4 * 3);
    rates.cores = 1;
    p = {0, 10, 3, 12, 0};
    add_tiles(p, 5, 8, 4, rates);
    CHECK(p.time == 12 + 4 * 12);
    rates.switching = 1;  // 4 ranks on one core: each is switched to once, and after each of its waits
    p = {0, 10, 3, 12, 8};
    add_tiles(p, 5, 8, 4, rates);
    CHECK(p.time == (12 + 8 + 4) + 4 * (12 + 1));
}

TEST_CASE("references save the copies of large messages only") {
    const Rehearsal direct = [] {
        Rehearsal r = Rehearsal::of(all_programs(*find_algorithm("direct"), Collective::all_gather, 2));
        r.pull_safe = r.push_safe = true;
        return r;
    }();
    Rates rates;
    const auto time = [&](std::size_t bytes) { return price(direct, {bytes, 1, 1}, rates, still).time; };
    const double small = time(64), large = time(1 << 20);
    rates.references = true;
    CHECK(time(64) == small);
    CHECK(time(1 << 20) < large / 1.5);
}

TEST_CASE("buffers and messages that no cache holds cost more") {
    const Rehearsal ring = Rehearsal::of(all_programs(*find_algorithm("ring"), Collective::all_reduce, 4));
    const Rates rates;
    const double cached = price(ring, {1 << 16, 4, 1, true, true}, rates, still).time;
    const double buffers = price(ring, {1 << 16, 4, 1, false, true}, rates, still).time;
    CHECK(buffers > cached);
    CHECK(price(ring, {1 << 16, 4, 1, false, false}, rates, still).time > buffers);
}
