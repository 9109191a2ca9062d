// What the verifier says about passing by reference, against executions that do: where it says safe, no order of
// execution may change a result; where it says unsafe, some order does.

#include "algorithms/prove.hpp"
#include "execute.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "mutants.hpp"

using namespace tutti;

namespace {

// Did all of `seeds` orders of execution give the right result?
bool survives(const Programs& programs, bool pull, bool push, int seeds) {
    for (int seed = 1; seed <= seeds; ++seed)
        for (const bool in_place : {false, true}) {
            Conditions how;
            how.seed = seed;
            how.depth = 1000;  // no credit of a connection may be needed
            how.in_place = in_place;
            how.pull = pull;
            how.push = push;
            if (!execute(programs, how).empty()) return false;
        }
    return true;
}

void check_hazards(const Programs& programs, bool pull_safe, bool push_safe) {
    const Report r = verify(programs);
    REQUIRE(r.error.empty());
    INFO(r.pull_hazard << "\n" << r.push_hazard);
    CHECK(r.pull_safe == pull_safe);
    CHECK(r.push_safe == push_safe);
    CHECK(survives(programs, true, false, 300) == pull_safe);
    CHECK(survives(programs, pull_safe, true, 300) == push_safe);
}

// Three ranks' all-gather in which rank 0 has not said anything yet; everybody has written its own row.
Programs gather_of_three() {
    Programs p;
    for (Rank r = 0; r < 3; ++r) {
        p.push_back(program_for({Collective::all_gather, r, 3}));
        p.back().scratch_chunks = 1;
    }
    return p;
}

}  // namespace

TEST_CASE("in place, flat overwrites what its peers may still read") {
    for (int n = 2; n <= 4; ++n)
        check_hazards(all_programs(*find_algorithm("flat"), Collective::all_reduce, n), false, true);
    const Report r = verify(all_programs(*find_algorithm("flat"), Collective::all_reduce, 2));
    CHECK(r.pull_hazard ==
          "in place, out[0] of rank 1 is written by rank 1, step 1 `{recv 0, in[0]} -> {out[0]}  completes`, perhaps "
          "before "
          "rank 0, step 1 `{in[0], recv 1} -> {out[0]}  completes` (pulling) has read it");
}

TEST_CASE("scratch that is used again cannot be pushed into") {
    Programs p = gather_of_three();
    p[0].step({input(0)}, {output(0), send(1), send(2)});
    p[0].step({recv(1)}, {output(1), send(2)});
    p[0].step({recv(2)}, {output(2), send(1)});
    for (const Rank r : {1, 2}) {
        p[r].step({input(0)}, {output(r), send(0)});
        p[r].step({recv(0)}, {scratch(0)});
        p[r].step({scratch(0)}, {output(0)});
        p[r].step({recv(0)}, {scratch(0)});
        p[r].step({scratch(0)}, {output(3 - r)});
    }
    check_hazards(p, true, false);
}

TEST_CASE("scratch that is used again cannot be pulled from") {
    Programs p = gather_of_three();
    p[0].step({input(0)}, {output(0), send(1), send(2)});
    p[0].step({recv(1)}, {scratch(0)});
    p[0].step({scratch(0)}, {output(1), send(2)});
    p[0].step({recv(2)}, {scratch(0)});
    p[0].step({scratch(0)}, {output(2), send(1)});
    for (const Rank r : {1, 2}) {
        p[r].step({input(0)}, {output(r), send(0)});
        p[r].step({recv(0)}, {output(0)});
        p[r].step({recv(0)}, {output(3 - r)});
    }
    check_hazards(p, false, false);
}

TEST_CASE("scratch cannot be pulled from in one tile and written in the next") {
    Programs p = gather_of_three();
    for (const Rank r : {0, 1, 2}) {
        p[r].step({input(0)}, {output(r), scratch(0)});
        p[r].step({scratch(0)}, {send((r + 1) % 3), send((r + 2) % 3)});
        for (const Rank other : {(r + 1) % 3, (r + 2) % 3}) p[r].step({recv(other)}, {output(other)});
    }
    CHECK(
        verify(p).pull_hazard ==  // execute() has one tile only
        "tmp[0] of rank 2 is written in the next tile, perhaps before rank 0, step 3 `{recv 2} -> {out[2]}` (pulling) "
        "has read it");
    CHECK(verify(p).push_safe);
    // Rank 0 is the last to end: it hears from the others what it has sent.
    Programs q = gather_of_three();
    q[0].step({input(0)}, {output(0), scratch(0)});
    q[0].step({scratch(0)}, {send(1)});
    q[1].step({recv(0)}, {output(0)});
    q[1].step({input(0)}, {output(1), send(2)});
    q[2].step({recv(1)}, {output(1)});
    q[2].step({input(0)}, {output(2), send(1), send(0)});
    q[1].step({recv(2)}, {output(2)});
    q[0].step({recv(2)}, {output(2)});
    q[1].step({output(1)}, {send(0)});
    q[0].step({recv(1)}, {output(1)});
    q[0].step({output(0)}, {send(2)});
    q[2].step({recv(0)}, {output(0)});
    check_hazards(q, true, true);
}

TEST_CASE("pulling and pushing may each be safe and not go together") {
    // Rank 1 pulls rank 0's scratch, into which rank 2 pushes. Rank 0 has heard that rank 1 has read it, rank 2 has
    // not.
    Programs p = gather_of_three();
    p[0].step({input(0)}, {output(0), scratch(0)});
    p[0].step({scratch(0)}, {send(1)});
    p[0].step({input(0)}, {send(2)});
    p[0].step({recv(1)}, {output(1)});
    p[0].step({recv(2)}, {scratch(0)});
    p[0].step({scratch(0)}, {output(2)});
    p[1].step({recv(0)}, {output(0)});
    p[1].step({input(0)}, {output(1), send(0), send(2)});
    p[1].step({recv(2)}, {output(2)});
    p[2].step({recv(0)}, {output(0)});
    p[2].step({input(0)}, {output(2), send(0), send(1)});
    p[2].step({recv(1)}, {output(1)});
    check_hazards(p, true, false);
    CHECK(survives(p, true, false, 300));
    CHECK(survives(p, false, true, 300));
    CHECK_FALSE(survives(p, true, true, 300));

    // With rank 1's message before it pushes, rank 2 has heard it as well.
    std::swap(p[2].steps[1], p[2].steps[2]);
    check_hazards(p, true, true);
}

TEST_CASE("what is said to be safe is") {
    for (const Algorithm& a : algorithms())
        for (int c = 0; c < collectives; ++c)
            for (int n = least_ranks(static_cast<Collective>(c)); n <= (harness::sanitized ? 4 : 6); ++n) {
                const auto op = static_cast<Collective>(c);
                if (!a.supports(op)) continue;
                INFO(a.name << " " << name_of(op) << " of " << n);
                const Programs programs = all_programs(a, op, n, n / 2);
                const Report r = verify(programs);
                REQUIRE(r.ok);
                if (r.pull_safe) CHECK(survives(programs, true, false, 50));
                if (r.push_safe) CHECK(survives(programs, r.pull_safe, true, 50));
            }
}

TEST_CASE("mutants that are said to be safe are") {
    int safe = 0, unsafe = 0;
    for (const char* name : {"ring", "direct", "flat"})
        for (int n = 2; n <= 4; ++n)
            for_each_mutant(all_programs(*find_algorithm(name), Collective::all_reduce, n),
                            [&](const std::string& what, const Programs& mutant) {
                                const Report r = verify(mutant);
                                if (!r.ok || !different_order(mutant, r).empty()) return;
                                INFO(name << " of " << n << ", " << what);
                                if (r.pull_safe && !survives(mutant, true, false, 10)) FAIL("pull");
                                if (r.push_safe && !survives(mutant, r.pull_safe, true, 10)) FAIL("push");
                                ++(r.pull_safe && r.push_safe ? safe : unsafe);
                            });
    INFO(safe << " safe, " << unsafe << " unsafe");
    CHECK(safe > 100);
    CHECK(unsafe > 20);
}
