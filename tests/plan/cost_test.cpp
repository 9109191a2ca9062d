#include "schedule/cost.hpp"

#include <algorithm>

#include "algorithms/prove.hpp"
#include "harness/catch.hpp"
#include "schedule/oversubscription.hpp"

using namespace tutti;

namespace {

Rates nothing() {
    Rates r;
    r.step = r.message = r.load = r.store = r.memory = r.switching = r.cold = 0;
    return r;
}

Line still(Rank, Rank) {
    return {0, 0};
}

Price price(const Rehearsal& rehearsal, const Tiling& tiling, const Rates& rates,
            const std::function<Line(Rank, Rank)>& line, Cached cached = {}) {
    Price p = price_of_tile(rehearsal, tiling, rates, line, cached);
    add_tiles(p, tiling.tiles, tiling.channels, static_cast<int>(rehearsal.programs.size()), rates);
    return p;
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

TEST_CASE("where only the handling of messages takes time, both ends of each take it") {
    for_all_rehearsals([](const Algorithm&, Collective, const Rehearsal& r) {
        const Price p = price(r, {64, 1, 1}, nothing(), [](Rank, Rank) { return Line{0, 0, 1}; });
        CHECK(p.work == 2 * static_cast<double>(r.matching.messages.size()));
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

TEST_CASE("further tiles follow as fast as the busiest rank, the chain over the channels, and the cores allow") {
    Rates rates = nothing();
    const Price tile{.chain = 10, .busiest = 3, .work = 12};
    const auto time = [&](std::uint32_t tiles, int channels, double lost = 0) {
        Price p = tile;
        p.lost = lost;
        add_tiles(p, tiles, channels, 4, rates);
        return p.time;
    };
    CHECK(time(5, 1) == 10 + 4 * 10);
    CHECK(time(5, 2) == 10 + 4 * 5);
    CHECK(time(5, 8) == 10 + 4 * 3);
    rates.cores = 1;
    CHECK(time(5, 8) == 12 + 4 * 12);
    CHECK(time(5, 8, 16) == (12 + 16) + 4 * (12 + 2));  // while one channel waits, another one goes on
}

TEST_CASE("threads of a rank divide the work of its channels, never a message's way, nor what the memory takes") {
    Rates rates = nothing();
    rates.threads = 4;
    const Price tile{.chain = 10, .busiest = 8, .work = 16, .far = 6};
    const auto priced = [&](std::uint32_t tiles, int channels) {
        Price p = tile;
        add_tiles(p, tiles, channels, 2, rates);
        return p;
    };
    CHECK(priced(5, 1).threads == 1);  // there is nothing to share out
    CHECK(priced(5, 1).time == 10 + 4 * 10);
    CHECK(priced(5, 2).threads == 2);
    CHECK(priced(5, 2).time == 10 + 4 * 5);
    CHECK(priced(5, 8).threads == 4);
    CHECK(priced(5, 8).time == 10 + 4 * 2);
    CHECK(priced(1, 8).threads == 1);
    rates.streams = 2;
    CHECK(priced(5, 8).time == 10 + 4 * 3);
    rates.sharing = 7;
    CHECK(priced(5, 8).time == 7 + 10 + 4 * 3);
    CHECK(priced(2, 8).threads == 1);  // it would save 5
    rates.sharing = 3;
    rates.cores = 2;
    CHECK(priced(5, 8).threads == 1);  // both are in use
    CHECK(priced(5, 8).time == 10 + 4 * 8);
    rates.insists = true;
    CHECK(priced(5, 8).threads == 4);
    CHECK(priced(5, 8).time == 3 + 10 + 4 * 8);
}

TEST_CASE("ranks that share cores lose time by waiting and switching") {
    Rates rates = nothing();
    rates.switching = 1;
    const auto lost = [&](const char* algorithm, int ranks, int cores, double alpha = 0) {
        rates.cores = cores;
        return lost_by_sharing(Rehearsal::of(all_programs(*find_algorithm(algorithm), Collective::all_reduce, ranks)),
                               rates, [&](Rank, Rank) {
                                   return Line{alpha, 0};
                               });
    };
    const auto about = [](double expected) { return Catch::Matchers::WithinRel(expected, 0.3); };
    // All wait for all: the last of a core finds everything there, and goes on with the next one.
    CHECK_THAT(lost("flat", 2, 1), about(1));
    CHECK_THAT(lost("flat", 4, 1), about(3));
    CHECK_THAT(lost("flat", 4, 2), about(1.5));  // that a rank looks on is not simulated
    CHECK_THAT(lost("flat", 8, 2), about(3));
    // All wait for the server, and it for them: a round over everybody.
    CHECK_THAT(lost("server", 2, 1), about(2));
    CHECK_THAT(lost("server", 4, 1), about(4));
    // The same on all ranks, and more where messages take long.
    for_all_rehearsals([&](const Algorithm&, Collective c, const Rehearsal& r) {
        const double quick = lost_by_sharing(r, rates, still);
        CHECK(lost_by_sharing(r, rates, still) == quick);
        if (c != Collective::all_reduce) return;  // from one to all, tile follows tile
        const auto lost_at = [&](double alpha, std::size_t& played) {
            const auto line = [&](Rank, Rank) { return Line{alpha, 0}; };
            return lost_by_sharing(r, rates, line, {}, &played);
        };
        std::size_t slowly = 0, very_slowly = 0;
        CHECK(lost_at(1000, slowly) > std::max(quick, 100.0));
        CHECK(lost_at(50'000, very_slowly) > 5000);
        CHECK(very_slowly < 2 * slowly);  // nothing is played of the time in which all wait
    });
}

TEST_CASE("references save the copies of large messages only") {
    const Rehearsal direct = [] {
        Rehearsal r = Rehearsal::of(all_programs(*find_algorithm("direct"), Collective::all_gather, 2));
        r.pull_safe = r.push_safe = true;
        return r;
    }();
    Rates rates;
    const auto time = [&](std::size_t bytes) { return price(direct, {bytes, 1, 1, 0, true}, rates, still).time; };
    const double small = time(64), large = time(1 << 20);
    rates.references = true;
    CHECK(price(direct, {64, 1, 1}, rates, still).time == small);
    CHECK(time(1 << 20) < large / 1.5);
}

TEST_CASE("buffers and messages that no cache holds cost more") {
    const Rehearsal ring = Rehearsal::of(all_programs(*find_algorithm("ring"), Collective::all_reduce, 4));
    const Rates rates;
    const double cached = price(ring, {1 << 16, 4, 1}, rates, still).time;
    const double buffers = price(ring, {1 << 16, 4, 1}, rates, still, {.buffers = false}).time;
    CHECK(buffers > cached);
    CHECK(price(ring, {1 << 16, 4, 1}, rates, still, {false, false}).time > buffers);
}
