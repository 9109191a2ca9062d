// What is sent first and kept then is what was proven.
#include "schedule/sends_first.hpp"

#include <algorithm>

#include "algorithms/prove.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;

TEST_CASE("programs that send first and keep then are right, and have the same messages") {
    std::size_t split = 0;
    for (const Algorithm& a : algorithms())
        for (int c = 0; c < collectives; ++c) {
            const auto collective = static_cast<Collective>(c);
            if (!a.supports(collective) || least_ranks(collective) > 1) continue;
            for (int n = 2; n <= (harness::sanitized ? 5 : 17); ++n) {
                INFO(a.name << " " << name_of(collective) << ", " << n << " ranks");
                std::vector<Program> programs = all_programs(a, collective, n, n / 3);
                const Report before = verify(programs);
                for (Program& p : programs) {
                    const std::size_t steps = p.steps.size();
                    p = sends_first(p);
                    split += p.steps.size() - steps;
                }
                const Report after = verify(programs);
                REQUIRE(after.error == "");
                CHECK(after.rounds == before.rounds);
                CHECK(after.busiest_rank == before.busiest_rank);
                CHECK(after.fifo_depth == before.fifo_depth);
                CHECK(after.pull_safe >= before.pull_safe);
                CHECK(after.push_safe >= before.push_safe);
                CHECK(after.uneven_safe >= before.uneven_safe);
            }
        }
    CHECK(split > 100);
}

TEST_CASE("what a rank keeps of what it sends is a step of its own") {
    Program p{.collective = Collective::all_gather, .rank = 0, .ranks = 2, .output_rows = 2};
    p.step({input(0)}, {output(0), send(1)});
    p.step({recv(1)}, {output(1)});
    Program wanted{.collective = Collective::all_gather, .rank = 0, .ranks = 2, .output_rows = 2};
    wanted.step({input(0)}, {send(1)});
    wanted.step({input(0)}, {output(0)});
    wanted.step({recv(1)}, {output(1)});
    CHECK(sends_first(p) == wanted);
    Program sum{.collective = Collective::all_reduce, .rank = 0, .ranks = 2};
    sum.step({input(0)}, {output(0), send(1)});
    CHECK(sends_first(sum) == sum);
}
