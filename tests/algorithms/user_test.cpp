// Rows made of files are as good as those of the table.
#include "algorithms/user.hpp"

#include "algorithms/prove.hpp"
#include "base/result.hpp"
#include "harness/catch.hpp"

using namespace tutti;

TEST_CASE("what is exported and read again is the same row") {
    constexpr int n = 5, slots = 4;
    for (const Algorithm& a : algorithms()) {
        ProgramFile file{"mine", "a summary", {}, "", 0};
        for (int c = 0; c < collectives; ++c) {
            const auto op = static_cast<Collective>(c);
            for (Rank root = 0; a.supports(op) && least_ranks(op) == 1 && root < (has_root(op) ? n : 1); ++root)
                file.sets.push_back({op, n, root, all_programs(a, op, n, root), 0, {}, {}});
        }
        UserAlgorithms own(n, slots);
        REQUIRE(own.add(json_of(file), "f.json").sets.size() == file.sets.size());
        for (const ProgramSet& s : file.sets) {
            INFO(a.name << " " << name_of(s.collective) << ", root " << s.root);
            const Algorithm* row = own.find("mine", s.collective, s.root);
            REQUIRE(row != nullptr);
            CHECK(row->name == "mine");
            CHECK(row->summary == "a summary");
            CHECK(row->supports(s.collective));
            CHECK_FALSE(row->supports(Collective::send));
            CHECK(prove(*row, s.collective, n, s.root).error == "");
            CHECK((row->make({s.collective, 3, n, s.root}) == s.programs[3]));
            const ClosedForm mine = row->closed_form(s.collective, n), its = a.closed_form(s.collective, n);
            CHECK(mine.rounds == its.rounds);
            CHECK(mine.busiest_link == its.busiest_link);
            CHECK(mine.busiest_rank == its.busiest_rank);
            CHECK(row->fifo_depth <= a.fifo_depth);
            CHECK(row->pull_safe >= a.pull_safe);
            CHECK(row->push_safe >= a.push_safe);
            if (a.in_rank_order(s.collective)) CHECK(row->in_rank_order(s.collective));
        }
    }
}

TEST_CASE("rank order is found, not promised") {
    const auto in_order = [](const char* name, Collective c, int n) {
        UserAlgorithms own(n, 4);
        own.add(json_of({"mine", "", {{c, n, 0, all_programs(*find_algorithm(name), c, n), 0, {}, {}}}, "", 0}), "f");
        return own.find("mine", c, 0)->in_rank_order(c);
    };
    CHECK(in_order("server", Collective::all_reduce, 3));
    CHECK(in_order("ring", Collective::all_reduce, 1));
    CHECK(in_order("ring", Collective::all_reduce, 2) == false);
    CHECK(in_order("tree", Collective::all_reduce, 4) == false);
}

TEST_CASE("a file is found by its name, its sets by collective, ranks and root") {
    ProgramFile file{"mine", "", {}, "", 0};
    const auto add = [&](Collective c, int n, Rank root) {
        file.sets.push_back({c, n, root, all_programs(*find_algorithm("ring"), c, n, root), 0, {}, {}});
    };
    add(Collective::broadcast, 3, 1);
    add(Collective::all_reduce, 3, 0);
    add(Collective::all_gather, 4, 0);
    const std::string json = json_of(file);
    UserAlgorithms own(3, 4);
    CHECK(own.hash() == 0);
    own.add(json, "f.json");
    CHECK(own.find("mine", Collective::broadcast, 1) != nullptr);
    CHECK(own.find("mine", Collective::broadcast, 0) == nullptr);
    CHECK(own.find("mine", Collective::all_reduce, 2) != nullptr);  // whatever a call without a root has there
    CHECK(own.find("mine", Collective::all_gather, 0) == nullptr);
    CHECK(own.find("other", Collective::all_reduce, 0) == nullptr);
    CHECK(own.find("", Collective::all_reduce, 0) == nullptr);
    CHECK(own.knows("mine"));
    CHECK_FALSE(own.knows("ring"));
    CHECK(own.all_names().ends_with(", hierarchy, mine"));

    const auto hash_of = [](std::initializer_list<std::string> files) {
        UserAlgorithms some(7, 4);  // no set is for as many
        for (const std::string& f : files) some.add(f, "f.json");
        return some.hash();
    };
    CHECK(hash_of({json}) == own.hash());
    CHECK(hash_of({json}) != 0);
    CHECK(hash_of({json + " "}) != hash_of({json}));
    CHECK(hash_of({json, json + " "}) != hash_of({json + " ", json}));
    CHECK_THROWS_WITH(own.add(json, "g.json"), "g.json:7: another file has broadcast of 'mine' for 3 ranks, too");
}

TEST_CASE("programs that need more slots than there are") {
    UserAlgorithms own(3, 1);
    const Collective c = Collective::all_reduce;
    CHECK_THROWS_WITH(
        own.add(json_of({"mine", "", {{c, 3, 0, all_programs(*find_algorithm("ring"), c, 3), 0, {}, {}}}, "", 0}), "f"),
        "f:7: all_reduce of 3 ranks: needs 2 slots on a connection to come to an end, and there are 1: let ranks "
        "receive "
        "before they send more");
}
