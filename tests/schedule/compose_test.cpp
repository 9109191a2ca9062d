#include "schedule/compose.hpp"

#include "algorithms/prove.hpp"
#include "harness/catch.hpp"
#include "schedule/text.hpp"

using namespace tutti;

TEST_CASE("parts of a message keep together backwards") {
    Program p = program_for({Collective::all_gather, 0, 2}, 3);
    p.message_chunks = 2;
    p.step({input(0)}, {output(0), send_part(1)});
    p.step({input(1)}, {output(1), send(1)});
    p.step({input(2)}, {output(2), send(1)});
    for (const int c : {3, 4, 5}) p.step({c == 3 ? recv_part(1) : recv(1)}, {output(c)});
    const Program back = reversed(p, Collective::reduce_scatter);
    CHECK(text_of(back) ==
          "reduce_scatter, rank 0 of 2: 2 rows in, 1 row out, 3 columns, messages of up to 2 chunks\n"
          "  0  {in[5]} -> {send 1}\n"
          "  1  {in[4]} -> {send 1..}\n"
          "  2  {in[3]} -> {send 1}\n"
          "  3  {in[2], recv 1} -> {out[2]}  completes\n"
          "  4  {in[1], recv 1..} -> {out[1]}  completes\n"
          "  5  {in[0], recv 1} -> {out[0]}  completes\n");
    Program again = reversed(back, Collective::all_gather);
    for (Step& s : again.steps) s.completes = 0;
    CHECK(text_of(again) == text_of(p));
}

TEST_CASE("a reduction and what spreads it are joined where they meet") {
    CHECK(text_of(tree().make({Collective::all_reduce, 0, 3})) ==
          "all_reduce, rank 0 of 3: 1 row in, 1 row out, 1 column\n"
          "  0  {in[0], recv 2} -> {out[0], send 2}  completes\n");
    CHECK(text_of(double_tree().make({Collective::all_reduce, 0, 3})) ==
          "all_reduce, rank 0 of 3: 1 row in, 1 row out, 2 columns\n"
          "  0  {in[1], recv 1} -> {out[1]}  completes\n"
          "  1  {in[0], recv 2} -> {out[0], send 2}  completes\n"
          "  2  {out[1]} -> {send 1}\n");
}

TEST_CASE("what spreads is proven backwards, too") {
    for (const char* name : {"bruck", "pat", "halving_doubling", "direct", "ring"})
        for (const int n : {2, 3, 7, 12}) {
            std::vector<Program> programs = all_programs(*find_algorithm(name), Collective::all_gather, n);
            for (Program& p : programs) p = reversed(p, Collective::reduce_scatter);
            INFO(name << " of " << n);
            CHECK(verify(programs).error == "");
        }
}
