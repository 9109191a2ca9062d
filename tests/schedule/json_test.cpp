// Programs as JSON: read as they were written; whatever is wrong in a file is refused, with its line.
#include "schedule/json.hpp"

#include <cstdlib>
#include <sstream>

#include "algorithms/prove.hpp"
#include "base/json_tree.hpp"
#include "base/result.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "mutants.hpp"
#include "schedule/text.hpp"

using namespace tutti;

namespace {

constexpr int slots = 4;

ProgramSet set_of(const char* algorithm, Collective c, int n, Rank root = 0) {
    return {c, n, root, all_programs(*find_algorithm(algorithm), c, n, root), 0, {}, {}};
}

ProgramFile file_of(std::vector<ProgramSet> sets) {
    return {"mine", "a \"summary\" with \\ and \t", std::move(sets), "", 0};
}

std::string ring_of_3() {
    return json_of(file_of({set_of("ring", Collective::all_reduce, 3)}));
}

/// What a communicator would say to it; empty if it took it.
std::string refusal(const std::string& json) {
    try {
        const ProgramFile file = programs_from(json, "f.json");
        for (const ProgramSet& s : file.sets) proven(file, s, slots);
        return {};
    } catch (const Error& e) {
        CHECK(e.code() == tuttiInvalidUsage);
        return e.what();
    }
}

/// ring_of_3 with another line instead of number `line`; "" takes it out.
std::string with_line(int line, const std::string& other) {
    std::istringstream lines(ring_of_3());
    std::string result;
    int number = 0;
    for (std::string text; std::getline(lines, text);)
        if (++number != line)
            result += text + "\n";
        else if (!other.empty())
            result += other + "\n";
    return result;
}

void check_refused(int line, const std::string& other, const std::string& expected) {
    INFO("line " << line << ": " << other);
    CHECK(refusal(with_line(line, other)) == expected);
}

std::vector<Rank> roots(Collective c, int n) {
    std::vector<Rank> all;
    for (Rank r = 0; r < (has_root(c) ? n : 1); ++r) all.push_back(r);
    return all;
}

}  // namespace

TEST_CASE("every program is read as it was written") {
    int sets = 0;
    for (const Algorithm& a : algorithms()) {
        ProgramFile file = file_of({});
        for (int c = 0; c < collectives; ++c) {
            const auto op = static_cast<Collective>(c);
            if (!a.supports(op) || least_ranks(op) > 1) continue;
            for (int n = 1; n <= 9; ++n)
                for (const Rank root : roots(op, n)) file.sets.push_back(set_of(a.name.data(), op, n, root));
        }
        const ProgramFile again = programs_from(json_of(file), "f.json");
        INFO(a.name);
        CHECK(again.name == file.name);
        CHECK(again.summary == file.summary);
        REQUIRE(again.sets.size() == file.sets.size());
        for (std::size_t i = 0; i < file.sets.size(); ++i) {
            const ProgramSet &read = again.sets[i], &written = file.sets[i];
            INFO(name_of(written.collective) << ", " << written.ranks << " ranks, root " << written.root);
            REQUIRE(read.collective == written.collective);
            REQUIRE(read.ranks == written.ranks);
            REQUIRE(read.root == written.root);
            REQUIRE((read.programs == written.programs));
            ++sets;
        }
    }
    CHECK(sets > 900);
}

TEST_CASE("columns that do not show, scratch and parts of messages are read as they were written") {
    ProgramSet set{Collective::all_reduce, 2, 0, {}, 0, {}, {}};
    for (Rank r = 0; r < 2; ++r) {
        Program p = program_for({Collective::all_reduce, r, 2}, 3);
        p.scratch_chunks = 4 * r;
        p.message_chunks = 7;
        p.step({recv(1 - r)}, {send_part(1 - r)}, false, 2);
        p.step({recv_part(1 - r), input(1)}, {scratch(1)}, true, 0);
        p.step({recv_part(1 - r), input(1)}, {output(2), send(1 - r)});
        set.programs.push_back(p);
    }
    const ProgramFile file = file_of({set});
    CHECK((programs_from(json_of(file), "f.json").sets.at(0).programs == set.programs));
}

TEST_CASE("JSON is one line for each step") {
    CHECK(json_of(file_of({set_of("binomial", Collective::gather, 4, 1)})) == R"({
  "format": "tutti-programs",
  "version": 1,
  "name": "mine",
  "summary": "a \"summary\" with \\ and \u0009",
  "sets": [
    {"collective": "gather", "ranks": 4, "root": 1, "message_chunks": 2, "programs": [
      {"rank": 0, "steps": [
        {"from": ["input 0"], "to": ["send 3"]}
      ]},
      {"rank": 1, "steps": [
        {"from": ["recv 2"], "to": ["output 2"]},
        {"from": ["recv_part 3"], "to": ["output 0"]},
        {"from": ["recv 3"], "to": ["output 3"]},
        {"from": ["input 0"], "to": ["output 1"]}
      ]},
      {"rank": 2, "steps": [
        {"from": ["input 0"], "to": ["send 1"]}
      ]},
      {"rank": 3, "steps": [
        {"from": ["recv 0"], "to": ["send_part 1"]},
        {"from": ["input 0"], "to": ["send 1"]}
      ]}
    ]}
  ]
}
)");
}

TEST_CASE("what has no name in JSON is not written") {
    ProgramSet set = set_of("ring", Collective::all_reduce, 2);
    set.programs[0].operands[0].place = static_cast<Place>(9);
    CHECK_THROWS_WITH(json_of(file_of({set})), "place 9[0] has no name in JSON");
    set.collective = Collective::send;
    CHECK_THROWS_WITH(json_of(file_of({set})), "send concerns two ranks only: files hold programs of all ranks");
}

TEST_CASE("lines may be broken and blanks left out as one likes") {
    std::string json = ring_of_3();
    std::erase(json, '\n');
    CHECK((programs_from(json, "").sets.at(0).programs == set_of("ring", Collective::all_reduce, 3).programs));
    std::string windows;
    for (const char c : ring_of_3()) windows += c == ' ' ? " \r\n " : std::string(1, c);
    CHECK_THROWS_AS(programs_from(windows, ""), Error);  // not inside of a text, though
}

TEST_CASE("what is no JSON is refused with its line") {
    CHECK(refusal("").starts_with("f.json:1: is not JSON: "));
    CHECK(refusal("\n\n").starts_with("f.json:2: is not JSON: "));
    check_refused(12, "        {\"from\": [\"recv 2\"]]},",
                  "f.json:12: is not JSON: syntax error while parsing object - unexpected ']'; expected '}'");
    check_refused(31, "",
                  "f.json:30: is not JSON: syntax error while parsing object - unexpected end of input; expected '}'");
    CHECK(refusal(ring_of_3() + "{").starts_with("f.json:32: is not JSON: "));
    CHECK(refusal(with_line(3, "\"version\": 1e999,")).starts_with("f.json:3: is not JSON: number overflow"));
    CHECK(refusal(with_line(4, "\"name\": \"\xff\","))
              .starts_with("f.json:4: is not JSON: syntax error while parsing value - invalid string: ill-formed"));
    CHECK(refusal("\n" + std::string(1000000, '[')) == "f.json:2: more than 16 brackets are open");
    check_refused(3, "\"version\": 1, \"version\": 1,", "f.json:3: the field 'version' is here for the second time");
    CHECK(refusal("\"" + std::string(500, 'x')).size() < 300);
    CHECK(excerpt("a\x1b[2J\nb") == "a?[2J?b");
}

TEST_CASE("fields that are missing, unknown or of another kind are refused with their line") {
    CHECK(refusal("[1]") == "f.json:1: the file was expected: { with the fields format, version, name, sets");
    check_refused(2, "\"format\": \"msccl\",", "f.json:2: 'format': \"tutti-programs\" was expected");
    check_refused(2, "", "f.json:1: the file lacks its field 'format'");
    check_refused(3, "\"version\": 2, \"new\": 1,", "f.json:3: 'version': this library knows version 1 only");
    check_refused(3, "\"version\": \"1\",", "f.json:3: 'version': this library knows version 1 only");
    for (const char* name : {"", "a b", "../x", "\\u001b"})
        check_refused(4, text("\"name\": \"%s\",", name),
                      "f.json:4: 'name': 1 to 64 letters, digits, _ and - were expected");
    check_refused(4, "\"name\": 7,", "f.json:4: 'name': a text in quotes was expected");
    check_refused(5, "\"sumary\": \"\",",
                  "f.json:5: the file has no field 'sumary'; it has format, version, name, sets, summary");
    CHECK(refusal(with_line(5, "")).empty());  // a summary need not be
    check_refused(6, "\"sets\": [7,", "f.json:6: a set was expected: { with the fields collective, ranks, programs");
    const auto set = [](const std::string& fields) { return "{" + fields + ", \"programs\": ["; };
    const std::string good = "\"collective\": \"all_reduce\", \"ranks\": 3";
    check_refused(7, set("\"collective\": \"all_reduce\""), "f.json:7: a set lacks its field 'ranks'");
    check_refused(7, set("\"collective\": \"sum\", \"ranks\": 3"),
                  "f.json:7: 'collective': 'sum' is none of all_reduce, reduce_scatter, all_gather, broadcast, reduce, "
                  "all_to_all, gather, scatter, barrier");
    check_refused(7, set("\"collective\": \"all_reduce\", \"ranks\": 0"),
                  "f.json:7: 'ranks': a whole number from 1 to 2147483647 was expected");
    check_refused(7, set(good + ".5"), "f.json:7: 'ranks': a whole number from 1 to 2147483647 was expected");
    check_refused(7, set(good + "00000000000000000000"),
                  "f.json:7: 'ranks': a whole number from 1 to 2147483647 was expected");
    check_refused(7, set(good + ", \"columns\": 0"),
                  "f.json:7: 'columns': a whole number from 1 to 2147483647 was expected");
    check_refused(7, set(good + ", \"root\": 0"), "f.json:7: all_reduce has no 'root'");
    check_refused(7, set("\"collective\": \"reduce\", \"ranks\": 3"), "f.json:7: reduce needs its 'root'");
    check_refused(7, set("\"collective\": \"reduce\", \"ranks\": 3, \"root\": 3"),
                  "f.json:7: 'root': a whole number from 0 to 2 was expected");
    check_refused(7, set("\"collective\": \"all_reduce\", \"ranks\": 4"),
                  "f.json:7: there are 3 programs, but 4 ranks: one for each was expected");
    check_refused(7, set("\"fifo_depth\": 2, " + good),
                  "f.json:7: a set has no field 'fifo_depth'; it has collective, ranks, programs, root, columns, "
                  "message_chunks");
    check_refused(15, "{\"rank\": 2, \"steps\": [", "f.json:15: 'rank': 1 was expected, ranks come in order");
    check_refused(15, "{\"rank\": 1, \"scratch\": -1, \"steps\": [",
                  "f.json:15: 'scratch': a whole number from 0 to 2147483647 was expected");
    const std::string start = R"({"format": "tutti-programs", "version": 1, "name": "x", "sets": )";
    CHECK(refusal(start + "{}}") == "f.json:1: 'sets': a list in [] was expected");
    CHECK(refusal(start + "\n[{" + good + ",\n\"programs\": 3}]}") ==
          "f.json:3: 'programs': a list in [] was expected");
    CHECK(refusal(start + "\n[{" + good + ", \"programs\": [\n5, 5, 5]}]}") ==
          "f.json:3: a program was expected: { with the fields rank, steps");
    ProgramFile twice = file_of({set_of("ring", Collective::all_reduce, 3), set_of("flat", Collective::reduce, 3, 2)});
    twice.sets.push_back(set_of("ring", Collective::reduce, 3, 2));
    CHECK(refusal(json_of(twice)) ==
          "f.json:41: reduce of 3 ranks, root 2: is here for the second time; the first is on line 30");
}

TEST_CASE("steps that are none are refused with rank, step and line") {
    check_refused(17, "{\"from\": [\"input 1\"]},", "f.json:17: rank 1, step 1: a step lacks its field 'to'");
    check_refused(17, "7,", "f.json:17: rank 1, step 1: a step was expected: { with the fields from, to");
    check_refused(17, "{\"from\": [\"input 1\"], \"to\": [\"send 2\"], \"op\": \"sum\"},",
                  "f.json:17: rank 1, step 1: a step has no field 'op'; it has from, to, completes, column");
    check_refused(17, "{\"from\": \"input 1\", \"to\": [\"send 2\"]},",
                  "f.json:17: rank 1, step 1: 'from': a list in [] was expected");
    check_refused(17, "{\"from\": [\"input 1\"], \"to\": [\"send 2\"], \"completes\": 1},",
                  "f.json:17: rank 1, step 1: 'completes': true or false was expected");
    check_refused(17, "{\"from\": [\"input 1\"], \"to\": [\"send 2\"], \"column\": -1},",
                  "f.json:17: rank 1, step 1: 'column': a whole number from 0 to 2147483647 was expected");
    check_refused(17, "{\"from\": [\"inptu 1\"], \"to\": [\"send 2\"]},",
                  "f.json:17: rank 1, step 1: 'inptu 1' is no source: a text was expected that begins with one of "
                  "input, output, scratch, recv, recv_part");
    check_refused(
        17, "{\"from\": [\"input 1\"], \"to\": [\"input 2\"]},",
        "f.json:17: rank 1, step 1: 'input 2' is no sink: a text was expected that begins with one of output, "
        "scratch, send, send_part");
    check_refused(17, "{\"from\": [null], \"to\": [\"input 2\"]},",
                  "f.json:17: rank 1, step 1: this is no source: a text was expected that begins with one of input, "
                  "output, scratch, recv, recv_part");
    for (const char* number : {"", " ", " -1", " x", " 1x", "  1", " 1 ", " 2147483648"})
        check_refused(17, text("{\"from\": [\"recv%s\"], \"to\": [\"send 2\"]},", number),
                      text("f.json:17: rank 1, step 1: 'recv%s': recv and a rank's number were expected, as in "
                           "\"recv 0\"",
                           number));
    check_refused(17, "{\n\"from\": [\n\"input 1\"],\n\n\"to\":\n[\n\"send_part 1.0\"]},",
                  "f.json:23: rank 1, step 1: 'send_part 1.0': send_part and a rank's number were expected, as in "
                  "\"send_part 0\"");
}

TEST_CASE("what the verifier refuses is refused with the line of the step") {
    const std::string prefix = ": all_reduce of 3 ranks: ";
    check_refused(17, "{\"from\": [], \"to\": [\"send 2\"]},",
                  "f.json:17" + prefix + "rank 1, step 1 `{} -> {send 2}  column 0`: it has no source");
    check_refused(17, "{\"from\": [\"recv 0\", \"input 3\"], \"to\": [\"send 2\"]},",
                  "f.json:17" + prefix +
                      "rank 1, step 1 `{recv 0, in[3]} -> {send 2}`: source 1, in[3]: there are 3 such chunks");
    check_refused(17, "{\"from\": [\"recv 0\", \"input 0\"], \"to\": [\"send 1\"]},",
                  "f.json:17" + prefix +
                      "rank 1, step 1 `{recv 0, in[0]} -> {send 1}`: sink 0, send 1: is the rank "
                      "itself");
    check_refused(17, "{\"from\": [\"recv 0\", \"input 0\"], \"to\": [\"send 2\"], \"column\": 1},",
                  "f.json:17" + prefix +
                      "rank 1, step 1 `{recv 0, in[0]} -> {send 2}`: source 1, in[0]: is of column 0, the step is of "
                      "column 1");
    check_refused(15, "{\"rank\": 1, \"scratch\": 2000000000, \"steps\": [",
                  "f.json:15" + prefix + "rank 1: there are 2000000000 chunks, but only 14 operands to use them");
    // What is said of a message, a chunk, or ranks that wait for each other.
    check_refused(13, "{\"from\": [\"output 1\"], \"to\": [\"output 1\"]}",
                  "f.json:26" + prefix +
                      "rank 2, step 3 `{recv 1} -> {out[2], send 0}`: sends message 4 to rank 0, which receives 3 of "
                      "this rank");
    check_refused(16, "{\"from\": [\"input 1\"], \"to\": [\"send_part 2\"]},",
                  "f.json:16" + prefix +
                      "rank 1, step 0 `{in[1]} -> {send 2..}`: sends a part that is not the last one to rank 2, which "
                      "takes it as the last one in rank 2, step 1 `{recv 1, in[1]} -> {send 0}`");
    check_refused(25, "{\"from\": [\"recv 1\", \"input 0\"], \"to\": [\"output 0\", \"send 0\"]},",
                  "f.json:25" + prefix +
                      "rank 2, step 2 `{recv 1, in[0]} -> {out[0], send 0}`: has every rank's contribution now, but is "
                      "not said to complete");
    check_refused(
        18,
        "{\"from\": [\"recv 0\", \"input 2\", \"input 2\"], \"to\": [\"output 2\", \"send 2\"], "
        "\"completes\": true},",
        "f.json:18" + prefix +
            "rank 1, step 2 `{recv 0, in[2], in[2]} -> {out[2], send 2}  completes`: is said to complete, but "
            "has the contribution of a rank more than once");
    check_refused(
        20, "{\"from\": [\"recv 0\"], \"to\": [\"scratch 0\"]}",
        "f.json:20" + prefix + "rank 1, step 4 `{recv 0} -> {tmp[0]}`: sink 0, tmp[0]: there are 0 such chunks");
}

TEST_CASE("sets that the verifier refuses as a whole") {
    ProgramSet deadlock{Collective::all_gather, 2, 0, {}, 0, {}, {}};
    for (Rank r = 0; r < 2; ++r) {
        Program p = program_for({Collective::all_gather, r, 2});
        p.step({recv(1 - r)}, {output(1 - r)});
        p.step({input(0)}, {output(r), send(1 - r)});
        deadlock.programs.push_back(p);
    }
    CHECK(refusal(json_of(file_of({deadlock})))
              .starts_with("f.json:9: all_gather of 2 ranks: deadlock: rank 0, step 0 "));

    ProgramSet deep{Collective::all_gather, 2, 0, {}, 0, {}, {}};  // both send slots + 1 messages before they receive
    for (Rank r = 0; r < 2; ++r) {
        Program p = program_for({Collective::all_gather, r, 2}, slots + 1);
        for (int c = 0; c <= slots; ++c) p.step({input(c)}, {output(r * p.columns + c), send(1 - r)});
        for (int c = 0; c <= slots; ++c) p.step({recv(1 - r)}, {output((1 - r) * p.columns + c)}, false, c);
        deep.programs.push_back(p);
    }
    CHECK(
        refusal(json_of(file_of({deep}))) ==
        "f.json:7: all_gather of 2 ranks: needs 5 slots on a connection to come to an end, and there are 4: let ranks "
        "receive before they send more");

    ProgramSet order = set_of("flat", Collective::all_reduce, 3);
    Program& middle = order.programs[1];
    std::swap(middle.operands[middle.steps[1].first], middle.operands[middle.steps[1].first + 1]);
    CHECK(refusal(json_of(file_of({order}))) ==
          "f.json:12: all_reduce of 3 ranks: ranks would get different bits: rank 1 adds out[0] as (1+0+2), rank 0 as "
          "(0+1+2)");

    ProgramSet barrier = set_of("flat", Collective::barrier, 2);
    CHECK(refusal(json_of(file_of({barrier}))).empty());
    for (Program& p : barrier.programs) p.steps.clear(), p.operands.clear();
    CHECK(refusal(json_of(file_of({barrier}))) ==
          "f.json:8: barrier of 2 ranks: rank 0: leaves the barrier perhaps before rank 1 has come to it");

    ProgramSet overwritten{Collective::all_reduce, 2, 0, {}, 0, {}, {}};  // rank 1's input, before it is sent
    for (Rank r = 0; r < 2; ++r) overwritten.programs.push_back(program_for({Collective::all_reduce, r, 2}));
    overwritten.programs[0].step({input(0)}, {send(1)});
    overwritten.programs[0].step({input(0), recv(1)}, {output(0)}, true);
    overwritten.programs[1].step({recv(0), input(0)}, {output(0)}, true);
    overwritten.programs[1].step({input(0)}, {send(0)});
    CHECK(refusal(json_of(file_of({overwritten}))) ==
          "f.json:10: all_reduce of 2 ranks: in place: rank 0, step 1 `{in[0], recv 1} -> {out[0]}  completes`: is "
          "said to "
          "complete, but has the contribution of a rank more than once");

    ProgramSet parts = set_of("bruck", Collective::all_gather, 4);  // with messages of 2
    for (Program& p : parts.programs) p.message_chunks = 1;
    CHECK(
        refusal(json_of(file_of({parts}))) ==
        "f.json:10: all_gather of 4 ranks: rank 0, step 1 `{recv 1} -> {out[1], send 2}`: is part 2 of a message, the "
        "program says 1 at most");

    ProgramSet in_place = set_of("ring", Collective::broadcast, 2, 1);
    in_place.programs[0].step({output(0)}, {output(0)});
    CHECK(refusal(json_of(file_of({in_place}))).empty());
    ProgramSet nothing = set_of("ring", Collective::broadcast, 2, 1);
    for (Program& p : nothing.programs) p.steps.clear(), p.operands.clear();
    CHECK(refusal(json_of(file_of({nothing}))) ==
          "f.json:8: broadcast of 2 ranks, root 1: rank 0: out[0] is never written, rank 1's in[0] was expected");
}

// What is read is judged as it was before it was written.
TEST_CASE("mutants in files are caught where the verifier catches them") {
    int caught = 0, all = 0;
    for_each_mutant(all_programs(*find_algorithm("ring"), Collective::all_reduce, 3), [&](const std::string& what,
                                                                                          const Programs& mutant) {
        std::string error;
        try {
            error = refusal(json_of(file_of({{Collective::all_reduce, 3, 0, mutant, 0, {}, {}}})));
        } catch (const Error&) {
            return;  // an input among the sinks: can't be said
        }
        const Report report = verify(mutant);
        const bool wrong = !report.ok || report.fifo_depth > slots || !different_order(mutant, report).empty();
        INFO(what << ": " << error);
        REQUIRE(error.empty() != wrong);
        caught += wrong;
        ++all;
    });
    CHECK(caught > 300);
    CHECK(all > caught);
}

TEST_CASE("a file with very many sets or fields is read in time, or refused") {
    std::string sets;
    for (int ranks = 1; ranks <= 20000; ++ranks)
        sets += text("%s{\"collective\": \"all_reduce\", \"ranks\": 1, \"programs\": [{\"rank\": 0, \"steps\": []}]}",
                     ranks > 1 ? ",\n" : "");
    const std::string head = "{\"format\": \"tutti-programs\", \"version\": 1, \"name\": \"a\", \"sets\": [\n";
    CHECK(refusal(head + sets + "]}").starts_with("f.json:3: "));  // the second is the first again
    std::string fields = "{";
    for (int i = 0; i < 100000; ++i) fields += text("\"f%d\": 0, ", i);
    CHECK(refusal(fields).find("more than 32 fields") != std::string::npos);
}
