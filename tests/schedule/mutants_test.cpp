// Every mutant of a correct program is caught by the verifier, or computes the same all the same: exactly one of the
// two.
#include "mutants.hpp"

#include "algorithms/prove.hpp"
#include "base/result.hpp"
#include "execute.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "schedule/verify.hpp"

using namespace tutti;

namespace {

// Execution tells of a wrong program by an exception, and each costs the address sanitizer a sweep of its own stack.
constexpr int seeds = harness::sanitized ? 1 : 3;

struct Count {
    int caught = 0, equivalent = 0;
};

std::string verdict(const Programs& programs, int depth) {
    const Report report = verify(programs);
    if (!report.ok) return report.error;
    if (report.fifo_depth > depth) return "needs more slots than there are";
    return different_order(programs, report);
}

std::string execute_both(const Programs& programs, int depth) {
    for (int seed = 1; seed <= seeds; ++seed)
        for (const bool in_place : {false, true}) {
            Conditions how;
            how.seed = seed;
            how.depth = depth;
            how.in_place = in_place;
            if (std::string wrong = execute(programs, how); !wrong.empty()) return wrong;
        }
    return {};
}

void judge(const std::string& what, const Programs& programs, int depth, Count& count) {
    const std::string verifier = verdict(programs, depth);
    const std::string execution = execute_both(programs, depth);
    INFO(what << "\n  verifier:  " << verifier << "\n  execution: " << execution);
    if (verifier.empty() != execution.empty()) FAIL();
    ++(verifier.empty() ? count.equivalent : count.caught);
}

Count judge_mutants(const Algorithm& a, Collective c, int ranks, Rank root) {
    Count count;
    const Programs programs = all_programs(a, c, ranks, root);
    INFO(a.name << " " << name_of(c) << ", " << ranks << " ranks, root " << root);
    REQUIRE(verdict(programs, a.fifo_depth).empty());
    REQUIRE(execute_both(programs, a.fifo_depth).empty());
    for_each_mutant(programs,
                    [&](const std::string& what, const Programs& mutant) { judge(what, mutant, a.fifo_depth, count); });
    return count;
}

void for_each_case(int most_ranks, const std::function<void(const Algorithm&, Collective, int, Rank)>& visit) {
    for (const Algorithm& a : algorithms())
        for (int c = 0; c < collectives; ++c) {
            const auto op = static_cast<Collective>(c);
            if (!a.supports(op)) continue;
            for (int n = least_ranks(op); n <= most_ranks; ++n)
                for (Rank root = 0; root < (has_root(op) ? n : 1); ++root) visit(a, op, n, root);
        }
}

}  // namespace

TEST_CASE("every mutant is caught or equivalent") {
    Count all;
    for_each_case(harness::sanitized ? 3 : 5, [&](const Algorithm& a, Collective c, int n, Rank root) {
        const Count count = judge_mutants(a, c, n, root);
        all.caught += count.caught;
        all.equivalent += count.equivalent;
    });
    INFO(all.caught << " mutants caught, " << all.equivalent << " equivalent");
    CHECK(all.caught > (harness::sanitized ? 3000 : 15000));
    CHECK(all.equivalent > (harness::sanitized ? 200 : 1000));  // sends to different peers swapped, receives moved, ...
}

// A mutant of a mutant is often accepted only because it undoes the first mistake, or because nobody looks at the
// result. Two flips of `completes` may compute the same: they move it to a later step, which the verifier does not
// allow.
TEST_CASE("mutants of mutants are caught or equivalent", "[long]") {
    Count all;
    std::uint64_t state = 1;
    const auto one_in_eight = [&] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 61 == 0; };
    for_each_case(harness::sanitized ? 3 : 4, [&](const Algorithm& a, Collective c, int n, Rank root) {
        for_each_mutant(all_programs(a, c, n, root), [&](const std::string& first, const Programs& once) {
            if (!one_in_eight()) return;
            for_each_mutant(once, [&](const std::string& second, const Programs& twice) {
                const bool moved = first.ends_with("completes flipped") && second.ends_with("completes flipped");
                if (one_in_eight() && (!harness::sanitized || one_in_eight()) && !moved)
                    judge(first + "; " + second, twice, a.fifo_depth, all);
            });
        });
    });
    INFO(all.caught << " mutants caught, " << all.equivalent << " equivalent");
    CHECK(all.caught > (harness::sanitized ? 300 : 10000));
    CHECK(all.equivalent > (harness::sanitized ? 1 : 100));
}
