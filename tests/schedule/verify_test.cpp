#include "schedule/verify.hpp"

#include <functional>
#include <random>

#include "algorithms/prove.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "mutants.hpp"

using namespace tutti;

namespace {

Programs ring_of(int n) {
    return all_programs(*find_algorithm("ring"), Collective::all_reduce, n);
}
Programs empty(Collective c, int n, int columns = 1) {
    Programs programs;
    for (Rank r = 0; r < n; ++r) programs.push_back(program_for({c, r, n}, columns));
    return programs;
}

void check_error(const Programs& programs, const std::string& expected) {
    const Report report = verify(programs);
    CHECK_FALSE(report.ok);
    CHECK(report.error == expected);
}

// What is said about a ring of 3 after a change of rank 1's program.
void check_broken(const std::function<void(Program&)>& change, const std::string& expected) {
    Programs programs = ring_of(3);
    change(programs[1]);
    check_error(programs, expected);
}

Operand& operand(Program& p, int step, int number) {
    return p.operands[p.steps[step].first + number];
}

}  // namespace

TEST_CASE("a report of a correct ring") {
    const Report r = verify(ring_of(4));
    REQUIRE(r.error.empty());
    CHECK(r.ok);
    CHECK(r.fifo_depth == 2);
    CHECK(r.rounds == 6);
    CHECK(r.steps == 7);
    CHECK(r.busiest_link == 6);
    CHECK(r.busiest_rank == 6);
    CHECK(r.pull_safe);
    CHECK(r.push_safe);
    REQUIRE(r.order.size() == 4);
    CHECK(r.expressions.text(r.order[0][0]) == "(((0+1)+2)+3)");
    CHECK(r.expressions.text(r.order[0][2]) == "(((2+3)+0)+1)");
    CHECK(r.order[3] == r.order[0]);
}

TEST_CASE("one step's reduction is another expression than two steps'") {
    const Algorithm& a = *find_algorithm("flat");
    const Report r = verify(all_programs(a, Collective::reduce, 3, 1));
    REQUIRE(r.ok);
    CHECK(r.expressions.text(r.order[1][0]) == "(0+1+2)");
    CHECK(r.expressions.text(r.order[0][0]) == "none");
}

TEST_CASE("errors name rank, step and operand") {
    check_broken([](Program& p) { operand(p, 1, 0).index = 7; },
                 "rank 1, step 1 `{recv 7, in[0]} -> {send 2}`: source 0, recv 7: there are 3 ranks");
    check_broken([](Program& p) { operand(p, 1, 2).index = 1; },
                 "rank 1, step 1 `{recv 0, in[0]} -> {send 1}`: sink 0, send 1: is the rank itself");
    check_broken([](Program& p) { operand(p, 1, 1).index = 3; },
                 "rank 1, step 1 `{recv 0, in[3]} -> {send 2}`: source 1, in[3]: there are 3 such chunks");
    check_broken(
        [](Program& p) { operand(p, 1, 1).index = 1; },
        "rank 1, step 1 `{recv 0, in[1]} -> {send 2}`: source 1, in[1]: is of column 1, the step is of column 0");
    check_broken([](Program& p) { operand(p, 4, 1).place = Place::input; },
                 "rank 1, step 4 `{recv 0} -> {in[0]}`: sink 0, in[0]: the input is the user's and is not written to");
    check_broken(
        [](Program& p) { operand(p, 1, 1) = recv(0); },
        "rank 1, step 1 `{recv 0, recv 0} -> {send 2}  column 0`: receives from rank 0 twice: a step takes one "
        "message, or part of one, from a rank");
    check_broken(
        [](Program& p) { operand(p, 2, 2) = send_part(2); },
        "rank 1, step 2 `{recv 0, in[2]} -> {send 2.., send 2}  completes`: sends to rank 2 twice: a step makes "
        "one message, or part of one, for a rank");
    check_broken([](Program& p) { p.steps[1].sources = 0; },
                 "rank 1, step 1 `{} -> {send 0}  column 0`: it has no source");
    check_broken([](Program& p) { p.steps[1].sinks = 0; }, "rank 1, step 1 `{recv 0, in[0]} -> {}`: it has no sink");
    check_broken([](Program& p) { p.steps[1].sinks = 1000; },
                 "rank 1, step 1 `operands out of range`: the program has only 14 operands");
    check_broken([](Program& p) { p.steps[0].column = 5; }, "rank 1, step 0 `{in[1]} -> {send 2}`: column 5 of 3");
    check_broken([](Program& p) { p.input_rows = 2; }, "rank 1: there are 2 rows of input, 1 were expected");
    check_broken([](Program& p) { p.columns = 0; }, "rank 1: there are 0 columns, at least 1 was expected");
    check_broken([](Program& p) { p.columns = 2000000000; },
                 "rank 1: there are 2000000000 chunks, but only 14 operands to use them");
    check_broken([](Program& p) { p.rank = -1; }, "rank -1: the rank is not in 0..2");
    check_broken([](Program& p) { p.ranks = 4; }, "rank 1: is of 4 ranks, others of 3");
    check_broken([](Program& p) { p.collective = static_cast<Collective>(50); }, "rank 1: there is no collective 50");
    check_error({}, "there are no programs");
    Programs programs = ring_of(3);
    std::swap(programs[1], programs[2]);
    check_error(programs, "program 1 is of rank 2: each rank's was expected in order");
    programs.pop_back();
    programs[1] = programs[0];
    check_error(programs, "there are 2 programs for 3 ranks");
}

TEST_CASE("values that are not what the collective is") {
    check_broken([](Program& p) { operand(p, 2, 2) = scratch(2), p.scratch_chunks = 3; },
                 "rank 1: out[2] is never written, every rank's in[2] was expected");
    check_broken(
        [](Program& p) { p.steps.pop_back(); },
        "rank 0, step 3 `{recv 2} -> {out[0], send 1}`: sends message 4 to rank 1, which receives 3 of this rank");
    check_broken([](Program& p) { p.steps[2].completes = 0; },
                 "rank 1, step 2 `{recv 0, in[2]} -> {out[2], send 2}`: has every rank's contribution now, but is not "
                 "said to complete");
    check_broken([](Program& p) { p.steps[1].completes = 1; },
                 "rank 1, step 1 `{recv 0, in[0]} -> {send 2}  completes`: is said to complete, but has in[0] of 2 "
                 "ranks, without rank 2's");

    Programs twice = empty(Collective::all_reduce, 2);
    for (Program& p : twice) {
        p.step({input(0)}, {send(1 - p.rank)});
        p.step({recv(1 - p.rank), input(0), input(0)}, {output(0)});
    }
    check_error(twice,
                "rank 0: out[0] has the contribution of a rank more than once, every rank's in[0] was expected; last "
                "written by "
                "rank 0, step 1 `{recv 1, in[0], in[0]} -> {out[0]}`");

    Programs unread = empty(Collective::broadcast, 2);
    unread[0].step({input(0)}, {output(0)});
    check_error(unread, "rank 1: out[0] is never written, rank 0's in[0] was expected");
    unread[1].step({output(0)}, {output(0)});
    check_error(unread, "rank 1, step 0 `{out[0]} -> {out[0]}`: reads out[0] before anything is written there");

    Programs wrong_row = all_programs(*find_algorithm("direct"), Collective::all_gather, 3);
    operand(wrong_row[0], 1, 1).index = 1;
    check_error(wrong_row, "rank 0: out[2] is never written, rank 2's in[0] was expected");
}

TEST_CASE("roots only have what roots have") {
    const Algorithm& a = *find_algorithm("flat");
    Programs p = all_programs(a, Collective::broadcast, 3, 1);
    p[0].step({input(0)}, {output(0)});
    check_error(p, "rank 0, step 1 `{in[0]} -> {out[0]}`: source 0, in[0]: only the root, rank 1, has an input");
    p = all_programs(a, Collective::reduce, 3, 1);
    p[2].step({input(0)}, {output(0)});
    check_error(p, "rank 2, step 1 `{in[0]} -> {out[0]}`: sink 0, out[0]: only the root, rank 1, has an output");
    p = all_programs(a, Collective::reduce, 3, 1);
    p[2].root = 0;
    check_error(p, "rank 2: has root 0, others have 1");
}

TEST_CASE("deadlock names who waits for what") {
    Programs p = empty(Collective::all_gather, 2);
    for (Program& q : p) {
        q.step({recv(1 - q.rank)}, {output(1 - q.rank)});
        q.step({input(0)}, {output(q.rank), send(1 - q.rank)});
    }
    check_error(p,
                "deadlock: rank 0, step 0 `{recv 1} -> {out[1]}` waits for a message that is sent in "
                "rank 1, step 1 `{in[0]} -> {out[1], send 0}`; "
                "rank 1, step 0 `{recv 0} -> {out[0]}` waits for a message that is sent in "
                "rank 0, step 1 `{in[0]} -> {out[0], send 1}`");
}

TEST_CASE("as many contributions as ranks are not all ranks' contributions") {
    // Rank 0 adds 0+1 and 1+2: four, of which one is twice and one is missing.
    Programs p = empty(Collective::reduce, 4);
    p[0].scratch_chunks = 2;
    p[1].step({input(0)}, {send(0), send(2)});
    p[2].step({recv(1), input(0)}, {send(0)});
    p[3].step({input(0)}, {send(0)});
    p[0].step({recv(1), input(0)}, {scratch(0)});
    p[0].step({recv(3)}, {scratch(1)});
    p[0].step({scratch(0), recv(2)}, {output(0)});
    check_error(p,
                "rank 0: out[0] has the contribution of a rank more than once, every rank's in[0] was expected; last "
                "written by "
                "rank 0, step 2 `{tmp[0], recv 2} -> {out[0]}`");
    Programs mixed = empty(Collective::reduce_scatter, 2);
    for (Program& q : mixed) {
        q.step({input(q.rank)}, {send(1 - q.rank)});
        q.step({recv(1 - q.rank), input(q.rank)}, {output(0)});
    }
    check_error(mixed,
                "rank 0: out[0] has a mixture of different chunks, every rank's in[0] was expected; last written by "
                "rank 0, step 1 `{recv 1, in[0]} -> {out[0]}`");
}

TEST_CASE("one slot carries any number of messages to who takes them") {
    Programs p = empty(Collective::broadcast, 2, 5);
    for (int c = 0; c < 5; ++c) {
        p[0].step({input(c)}, {output(c), send(1)});
        p[1].step({recv(0)}, {output(c)});
    }
    const Report r = verify(p);
    REQUIRE(r.error.empty());
    CHECK(r.fifo_depth == 1);
    CHECK(r.busiest_link == 5);
    CHECK(r.rounds == 1);
}

TEST_CASE("the least depth is found where it is large") {
    for (const int columns : {1, 2, 3, 7, 12}) {
        Programs p = empty(Collective::all_gather, 2, columns);
        for (Program& q : p) {
            for (int c = 0; c < columns; ++c) q.step({input(c)}, {output(q.rank * columns + c), send(1 - q.rank)});
            for (int c = 0; c < columns; ++c) q.step({recv(1 - q.rank)}, {output((1 - q.rank) * columns + c)});
        }
        const Report r = verify(p);
        REQUIRE(r.error.empty());
        CHECK(r.fifo_depth == columns);
        CHECK(r.rounds == 1);
    }
}

TEST_CASE("messages of another length are no match") {
    Programs p = empty(Collective::broadcast, 2, 2);
    for (const int c : {0, 1}) p[0].step({input(c)}, {output(c), send(1)});
    for (const int c : {1, 0}) p[1].step({recv(0)}, {output(c)});
    check_error(p,
                "rank 0, step 0 `{in[0]} -> {out[0], send 1}`: sends column 0 to rank 1, which takes it as column 1 in "
                "rank 1, step 0 `{recv 0} -> {out[1]}`");
}

TEST_CASE("messages of several chunks meet part by part") {
    // Rank 0 sends both columns in one message.
    Programs right = empty(Collective::broadcast, 2, 2);
    for (Program& p : right) p.message_chunks = 2;
    right[0].step({input(0)}, {output(0), send_part(1)});
    right[0].step({input(1)}, {output(1), send(1)});
    right[1].step({recv_part(0)}, {output(0)});
    right[1].step({recv(0)}, {output(1)});
    const Report r = verify(right);
    REQUIRE(r.error.empty());
    CHECK(r.fifo_depth == 1);
    CHECK(r.rounds == 1);
    CHECK(r.busiest_link == 2);

    const auto check_wrong = [&](Rank rank, const std::function<void(Program&)>& change, const std::string& expected) {
        Programs programs = right;
        change(programs[static_cast<std::size_t>(rank)]);
        check_error(programs, expected);
    };
    check_wrong(
        1, [](Program& p) { operand(p, 0, 0).more = false; },
        "rank 0, step 0 `{in[0]} -> {out[0], send 1..}`: sends a part that is not the last one to rank 1, which "
        "takes it as the last one in rank 1, step 0 `{recv 0} -> {out[0]}`");
    check_wrong(
        0, [](Program& p) { operand(p, 0, 2).more = false; },
        "rank 0, step 0 `{in[0]} -> {out[0], send 1}`: completes a message to rank 1, which expects more parts "
        "of it in rank 1, step 0 `{recv 0..} -> {out[0]}`");
    check_wrong(
        0, [](Program& p) { p.message_chunks = 1; }, "rank 1: has messages of up to 2 chunks, others of up to 1");
    check_wrong(
        0, [](Program& p) { operand(p, 1, 0).more = true; },
        "rank 0, step 1 `{in[1]} -> {out[1], send 1}`: source 0, in[1]: is a slice, and only messages have "
        "parts");
    Programs programs = right;
    for (Program& p : programs) p.message_chunks = 1;
    check_error(programs,
                "rank 0, step 1 `{in[1]} -> {out[1], send 1}`: is part 2 of a message, the program says 1 at most");
    programs = right;
    operand(programs[0], 1, 2).more = operand(programs[1], 1, 0).more = true;
    check_error(programs, "rank 0, step 1 `{in[1]} -> {out[1], send 1..}`: the message to rank 1 is never completed");
}

TEST_CASE("no part can be received before its message is complete") {
    Programs p = empty(Collective::all_gather, 2, 2);
    for (Program& q : p) {
        const Rank other = 1 - q.rank;
        q.message_chunks = 2;
        q.step({input(0)}, {output(2 * q.rank), send_part(other)});
        q.step({recv_part(other)}, {output(2 * other)});
        q.step({input(1)}, {output(2 * q.rank + 1), send(other)});
        q.step({recv(other)}, {output(2 * other + 1)});
    }
    const Report r = verify(p);
    CHECK(
        r.error.starts_with("deadlock: rank 0, step 1 `{recv 1..} -> {out[2]}` waits for a message that is sent in "
                            "rank 1, step 2 "));
}

TEST_CASE("a barrier that does not wait for all") {
    Programs p = empty(Collective::barrier, 3);
    for (Program& q : p) {
        q.step({input(0)}, {send((q.rank + 1) % 3)});
        q.step({recv((q.rank + 2) % 3)}, {output(0)});
    }
    check_error(p, "rank 0: leaves the barrier perhaps before rank 1 has come to it");
}

TEST_CASE("sends and receives are verified as a set") {
    const auto make = [](Collective c, Rank rank, Rank peer) { return pair().make({c, rank, 5, peer}); };
    Programs p{make(Collective::send, 0, 3), make(Collective::recv, 3, 0), make(Collective::send, 3, 0),
               make(Collective::recv, 0, 3), make(Collective::send, 0, 4), make(Collective::recv, 4, 0)};
    const Report r = verify(p);
    REQUIRE(r.error.empty());
    CHECK(r.fifo_depth == 1);
    CHECK(r.rounds == 1);
    CHECK(r.expressions.text(r.order[1][0]) == "0");
    CHECK(r.expressions.text(r.order[3][0]) == "3");

    Programs q = p;
    q.pop_back();
    check_error(q, "rank 0 has a send with rank 4, which has none with it");
    q = p;
    q.push_back(p.back());
    check_error(q, "rank 4: has a second recv with rank 0");
    q = p;
    q.push_back(ring().make({Collective::all_gather, 0, 5}));
    check_error(q, "rank 0: all_gather among sends and receives");
    q = p;
    q[0].root = 0;
    check_error(q, "rank 0: the peer is 0, but should be another rank in 0..4");
}

TEST_CASE("any input gets an answer") {
    std::mt19937 random(harness::seed());
    const auto dice = [&](int n) { return static_cast<int>(random() % n); };
    int found_fine = 0;
    for (int round = 0; round < 20000; ++round) {
        Programs programs;
        const int n = 1 + dice(3);
        const auto c = static_cast<Collective>(dice(collectives));
        for (Rank r = 0; r < n; ++r) {
            Program p = program_for({c, r, n, dice(n)}, 1 + dice(2));
            p.scratch_chunks = dice(3);
            for (int s = dice(4); s > 0; --s) {
                std::vector<Operand> operands;
                for (int i = 2 + dice(2); i > 0; --i)
                    operands.push_back({static_cast<Place>(dice(5)), dice(4) == 0, false, dice(4) - 1});
                p.step(std::span(operands).first(1), std::span(operands).subspan(1), dice(8) == 0);
                if (dice(16) == 0) p.steps.back().first = random();
                if (dice(16) == 0) p.steps.back().sources = random();
                if (dice(16) == 0) p.operands.back().index = static_cast<int>(random());
            }
            for (int* field :
                 {&p.rank, &p.ranks, &p.root, &p.columns, &p.input_rows, &p.output_rows, &p.scratch_chunks})
                if (dice(128) == 0) *field = static_cast<int>(random()) >> dice(32);
            programs.push_back(std::move(p));
        }
        const Report report = verify(programs);
        if (report.ok == !report.error.empty()) FAIL("ok with an error, or neither");
        found_fine += report.ok;
    }
    CHECK(found_fine > 0);
}
