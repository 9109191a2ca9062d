#include "schedule/program.hpp"

#include "harness/catch.hpp"

using namespace tutti;

TEST_CASE("a program has the rows of its collective") {
    struct Case {
        Collective collective;
        int input_rows, output_rows;
    };
    const Case cases[] = {
        {Collective::all_reduce, 1, 1}, {Collective::reduce_scatter, 5, 1}, {Collective::all_gather, 1, 5},
        {Collective::broadcast, 1, 1},  {Collective::reduce, 1, 1},         {Collective::send, 1, 0},
        {Collective::recv, 0, 1},       {Collective::all_to_all, 5, 5},     {Collective::gather, 1, 0},
        {Collective::scatter, 0, 1},    {Collective::barrier, 1, 1}};
    for (const Case& c : cases) {
        INFO(name_of(c.collective));
        const Program p = program_for({c.collective, 2, 5, 3}, 4);
        CHECK(p.collective == c.collective);
        CHECK(p.rank == 2);
        CHECK(p.ranks == 5);
        CHECK(p.root == 3);
        CHECK(p.columns == 4);
        CHECK(p.input_rows == c.input_rows);
        CHECK(p.output_rows == c.output_rows);
        CHECK(p.steps.empty());
    }
}

TEST_CASE("a step has the column of its first slice") {
    Program p = program_for({Collective::all_gather, 0, 3}, 4);
    p.step({recv(1)}, {send(2)});
    p.step({recv(1)}, {send(2)}, false, 3);
    p.step({recv(1)}, {output(6), send(2)});
    p.step({input(1)}, {output(1), scratch(5)}, true);
    REQUIRE(p.steps.size() == 4);
    CHECK(p.steps[0].column == 0);
    CHECK(p.steps[1].column == 3);
    CHECK(p.steps[2].column == 2);
    CHECK(p.steps[3].column == 1);
    CHECK(p.steps[3].completes == 1);
    CHECK(p.steps[2].completes == 0);
}

TEST_CASE("sources and sinks are what was put in, in order") {
    Program p = program_for({Collective::all_reduce, 0, 3});
    p.step({input(0)}, {send(1), send(2)});
    p.step({recv(2), input(0), recv(1)}, {output(0)}, true);
    CHECK(p.sources(p.steps[0]).size() == 1);
    CHECK(p.sinks(p.steps[0])[1] == send(2));
    CHECK(p.sources(p.steps[1])[0] == recv(2));
    CHECK(p.sources(p.steps[1])[1] == input(0));
    CHECK(p.sources(p.steps[1])[2] == recv(1));
    CHECK(p.sinks(p.steps[1])[0] == output(0));
    CHECK(p.operands.size() == 7);
}
