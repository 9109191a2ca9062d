#include "schedule/text.hpp"

#include "algorithms/algorithms.hpp"
#include "harness/catch.hpp"

using namespace tutti;

TEST_CASE("ring all-reduce as text") {
    CHECK(text_of(ring().make({Collective::all_reduce, 1, 4})) ==
          "all_reduce, rank 1 of 4: 1 row in, 1 row out, 4 columns\n"
          "  0  {in[1]} -> {send 2}\n"
          "  1  {recv 0, in[0]} -> {send 2}\n"
          "  2  {recv 0, in[3]} -> {send 2}\n"
          "  3  {recv 0, in[2]} -> {out[2], send 2}  completes\n"
          "  4  {recv 0} -> {out[1], send 2}\n"
          "  5  {recv 0} -> {out[0], send 2}\n"
          "  6  {recv 0} -> {out[3]}\n");
}

TEST_CASE("direct all-reduce as text") {
    CHECK(text_of(direct().make({Collective::all_reduce, 1, 4})) ==
          "all_reduce, rank 1 of 4: 1 row in, 1 row out, 4 columns\n"
          "  0  {in[2]} -> {send 2}\n"
          "  1  {in[3]} -> {send 3}\n"
          "  2  {in[0]} -> {send 0}\n"
          "  3  {recv 0, in[1], recv 2, recv 3} -> {out[1], send 2, send 3, send 0}  completes\n"
          "  4  {recv 0} -> {out[0]}\n"
          "  5  {recv 3} -> {out[3]}\n"
          "  6  {recv 2} -> {out[2]}\n");
}

TEST_CASE("roots, peers and rows as text") {
    CHECK(text_of(flat().make({Collective::broadcast, 2, 3, 2})) ==
          "broadcast, root 2, rank 2 of 3: 1 row in, 1 row out, 1 column\n"
          "  0  {in[0]} -> {out[0], send 0, send 1}\n");
    CHECK(text_of(pair().make({Collective::recv, 0, 2, 1})) ==
          "recv from 1, rank 0 of 2: 0 rows in, 1 row out, 1 column\n"
          "  0  {recv 1} -> {out[0]}\n");
    CHECK(text_of(ring().make({Collective::all_gather, 0, 1})) ==
          "all_gather, rank 0 of 1: 1 row in, 1 row out, 1 column\n"
          "  0  {in[0]} -> {out[0]}\n");
}

TEST_CASE("scratch, columns that do not show, and long sides as text") {
    Program p = program_for({Collective::all_reduce, 0, 9}, 2);
    p.scratch_chunks = 1;
    p.step({recv(1)}, {send(2)}, false, 1);
    p.step({recv(1), recv(2), recv(3), recv(4), scratch(0)}, {output(0)});
    CHECK(text_of(p) ==
          "all_reduce, rank 0 of 9: 1 row in, 1 row out, 2 columns, scratch of 1 chunk\n"
          "  0  {recv 1} -> {send 2}  column 1\n"
          "  1  {recv 1, recv 2, recv 3, recv 4, tmp[0]} -> {out[0]}\n");
    CHECK(text_of(p, p.steps[1], 3) == "{recv 1, recv 2, 3 more} -> {out[0]}");
    CHECK(place_of(p, 0) == "rank 0, step 0 `{recv 1} -> {send 2}  column 1`");
}

TEST_CASE("messages of several chunks as text") {
    CHECK(text_of(bruck().make({Collective::all_gather, 0, 4})) ==
          "all_gather, rank 0 of 4: 1 row in, 4 rows out, 1 column, messages of up to 2 chunks\n"
          "  0  {in[0]} -> {out[0], send 3, send 2..}\n"
          "  1  {recv 1} -> {out[1], send 2}\n"
          "  2  {recv 2..} -> {out[2]}\n"
          "  3  {recv 2} -> {out[3]}\n");
    CHECK(text_of(bruck().make({Collective::reduce_scatter, 0, 4})) ==
          "reduce_scatter, rank 0 of 4: 4 rows in, 1 row out, 1 column, messages of up to 2 chunks\n"
          "  0  {in[3]} -> {send 2..}\n"
          "  1  {in[2]} -> {send 2}\n"
          "  2  {in[1], recv 2..} -> {send 1}\n"
          "  3  {in[0], recv 3, recv 2} -> {out[0]}  completes\n");
}

TEST_CASE("a step that points nowhere is text, too") {
    Program p = program_for({Collective::all_reduce, 0, 1});
    p.steps.push_back({7, 0xffffffff, 0xffffffff, 0, 0});
    CHECK(text_of(p, p.steps[0]) == "operands out of range");
    CHECK(text_of(Operand{static_cast<Place>(9), false, false, 1}, true) == "place 9[1]");
}

TEST_CASE("an error names a step, or else a rank") {
    const auto named = [](const char* error) {
        const Named n = named_in(error);
        return std::pair(n.rank, n.step);
    };
    CHECK(named((place_of(ring().make({Collective::all_reduce, 1, 4}), 3) + ": is wrong").c_str()) == std::pair(1, 3));
    CHECK(named("rank 0: out[1] is wrong; last written by rank 2, step 5 `...`") == std::pair(2, 5));
    CHECK(named("rank 7: has root 0, others have 1; rank 8") == std::pair(7, -1));
    CHECK(named("there are 3 ranks; every rank's; the rank itself") == std::pair(-1, -1));
    CHECK(named("") == std::pair(-1, -1));
    CHECK(named("rank ") == std::pair(-1, -1));
}
