// Which programs bear rows of different lengths: each reason why not, by a program that is right for even ones.
#include <string>
#include <vector>

#include "harness/catch.hpp"
#include "schedule/verify.hpp"

using namespace tutti;

namespace {

std::vector<Program> empty(Collective c, int ranks, int columns = 1) {
    std::vector<Program> programs;
    for (Rank r = 0; r < ranks; ++r) programs.push_back(program_for({c, r, ranks}, columns));
    return programs;
}

std::string hazard(const std::vector<Program>& programs) {
    const Report report = verify(programs);
    REQUIRE(report.error == "");
    CHECK(report.uneven_safe == report.uneven_hazard.empty());
    return report.uneven_hazard;
}

}  // namespace

TEST_CASE("uneven: a plain exchange bears it") {
    std::vector<Program> p = empty(Collective::all_to_all, 2);
    for (Rank r = 0; r < 2; ++r) {
        p[r].step({input(1 - r)}, {send(1 - r)});
        p[r].step({input(r)}, {output(r)});
        p[r].step({recv(1 - r)}, {output(1 - r)});
    }
    CHECK(hazard(p) == "");
}

TEST_CASE("uneven: who passes on what is others' does not know its length") {
    std::vector<Program> p = empty(Collective::gather, 3);  // to rank 0: 2's row by way of 1
    p[2].step({input(0)}, {send(1)});
    p[1].step({input(0)}, {send(0)});
    p[1].step({recv(2)}, {send(0)});
    p[0].step({input(0)}, {output(0)});
    p[0].step({recv(1)}, {output(1)});
    p[0].step({recv(1)}, {output(2)});
    CHECK(hazard(p) == "rank 1, step 1 `{recv 2} -> {send 0}`: has no slice that could say how long its messages are");
}

TEST_CASE("uneven: a step with slices of two rows") {
    // Rank 0 also sends its row from where it puts rank 1's later.
    std::vector<Program> p = empty(Collective::all_gather, 2);
    p[0].step({input(0)}, {output(0), output(1), send(1)});
    p[0].step({recv(1)}, {output(1)});
    p[1].step({input(0)}, {output(1), send(0)});
    p[1].step({recv(0)}, {output(0)});
    CHECK(hazard(p) == "rank 0, step 0 `{in[0]} -> {out[0], out[1], send 1}`: has slices of several rows");
}

TEST_CASE("uneven: the two ends of a message take it for different rows") {
    std::vector<Program> p = empty(Collective::all_gather, 2);
    p[0].step({input(0)}, {output(0), send(1)});
    p[0].step({recv(1)}, {output(1)});
    p[1].step({input(0)}, {output(1), send(0)});
    p[1].step({recv(0)}, {output(0)});
    p[0].step({input(0)}, {send(1)});  // as if it were rank 1's, which rank 1 then puts right
    p[1].step({recv(0)}, {output(1)}, false);
    p[0].step({output(1)}, {send(1)});
    p[1].step({recv(0)}, {output(1)});
    CHECK(hazard(p) == "rank 1, step 2 `{recv 0} -> {out[1]}`: takes what rank 0 sends of another row for its own");
}

TEST_CASE("uneven: what was sent is written again") {
    std::vector<Program> p = empty(Collective::all_gather, 2);
    for (Rank r = 0; r < 2; ++r) p[r].step({input(0)}, {output(r), send(1 - r)});
    p[0].step({recv(1)}, {output(1), send(1)});
    p[1].step({recv(0)}, {output(0)});
    p[1].step({recv(0)}, {output(1)});
    p[1].step({input(0)}, {send(0)});
    p[0].step({recv(1)}, {output(1)});
    CHECK(hazard(p) == "rank 0, step 2 `{recv 1} -> {out[1]}`: writes out[1] after it was sent from there");
}

TEST_CASE("uneven: what was sent is kept where it lies") {
    std::vector<Program> p = empty(Collective::all_gather, 2);
    for (Rank r = 0; r < 2; ++r) {
        p[r].step({input(0)}, {send(1 - r)});
        p[r].step({input(0)}, {output(r)});
        p[r].step({recv(1 - r)}, {output(1 - r)});
    }
    CHECK(hazard(p) == "");
}

TEST_CASE("uneven: columns") {
    std::vector<Program> p = empty(Collective::all_gather, 2, 2);
    for (Rank r = 0; r < 2; ++r)
        for (int c = 0; c < 2; ++c) {
            p[r].step({input(c)}, {output(2 * r + c), send(1 - r)});
            p[r].step({recv(1 - r)}, {output(2 * (1 - r) + c)});
        }
    CHECK(hazard(p) == "its rows are cut into 2 columns");
}
