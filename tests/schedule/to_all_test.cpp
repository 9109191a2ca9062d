// Messages to all are those for each rank, written once: what is proven of programs holds of what is made of them.
#include "schedule/to_all.hpp"

#include <map>
#include <numeric>

#include "algorithms/prove.hpp"
#include "base/result.hpp"
#include "harness/catch.hpp"
#include "schedule/compose.hpp"

using namespace tutti;

namespace {

/// The steps of one sender whose messages one receiver takes, in two queues, as there are two FIFOs.
struct Queues {
    std::vector<std::size_t> alone, with_all;
    std::size_t next_alone = 0, next_with_all = 0;
};

/// By sender and receiver.
using Table = std::vector<std::vector<Queues>>;

Table queues_of(const std::vector<Program>& programs) {
    const std::size_t n = programs.size();
    Table table(n, std::vector<Queues>(n));
    for (std::size_t from = 0; from < n; ++from)
        for (std::size_t s = 0; s < programs[from].steps.size(); ++s)
            for (const Operand& o : programs[from].sinks(programs[from].steps[s])) {
                if (o.place != Place::peer) continue;
                if (!o.all) table[from][static_cast<std::size_t>(o.index)].alone.push_back(s);
                for (std::size_t to = 0; o.all && to < n; ++to)
                    if (to != from) table[from][to].with_all.push_back(s);
            }
    return table;
}

bool same_but_for_peers(const Program& before, const Program& after) {
    if (before.steps.size() != after.steps.size()) return false;
    for (std::size_t s = 0; s < before.steps.size(); ++s) {
        const auto slices = [&](const Program& p, auto side) {
            std::vector<Operand> all;
            for (const Operand& o : (p.*side)(p.steps[s]))
                if (o.place != Place::peer) all.push_back(o);
            return all;
        };
        if (before.steps[s].column != after.steps[s].column || before.steps[s].completes != after.steps[s].completes ||
            slices(before, &Program::sources) != slices(after, &Program::sources) ||
            slices(before, &Program::sinks) != slices(after, &Program::sinks))
            return false;
    }
    return true;
}

/// Plays the messages through such queues. Empty if each receive meets the message that it met before, in order.
std::string compare(const std::vector<Program>& before, const std::vector<Program>& after) {
    Table was = queues_of(before), is = queues_of(after);
    for (std::size_t to = 0; to < after.size(); ++to) {
        const Program &old = before[to], &now = after[to];
        if (!same_but_for_peers(old, now)) return text("rank %zu takes other steps", to);
        for (std::size_t s = 0; s < now.steps.size(); ++s) {
            const auto sources = now.sources(now.steps[s]), expected = old.sources(old.steps[s]);
            if (sources.size() != expected.size()) return text("rank %zu, step %zu: other sources", to, s);
            for (std::size_t i = 0; i < sources.size(); ++i) {
                const Operand &o = sources[i], &e = expected[i];
                if (o.place != Place::peer) continue;
                if (o.index != e.index) return text("rank %zu, step %zu: from rank %d", to, s, o.index);
                Queues &here = is[static_cast<std::size_t>(o.index)][to],
                       &there = was[static_cast<std::size_t>(o.index)][to];
                std::size_t& next = o.all ? here.next_with_all : here.next_alone;
                const std::vector<std::size_t>& queue = o.all ? here.with_all : here.alone;
                if (next == queue.size() || queue[next++] != there.alone[there.next_alone++])
                    return text("rank %zu, step %zu meets another message of rank %d", to, s, o.index);
            }
        }
    }
    for (const auto& row : is)
        for (const Queues& q : row)
            if (q.next_alone != q.alone.size() || q.next_with_all != q.with_all.size())
                return "a message is not received";
    return {};
}

std::vector<Program> rewritten(const std::vector<Program>& programs) {
    std::vector<Program> all;
    for (const Program& p : programs)
        all.push_back(to_all(p, [&](Rank from) { return programs[static_cast<std::size_t>(from)]; }));
    return all;
}

}  // namespace

TEST_CASE("each receive meets the message that it met before, whether all get it or not", "[long]") {
    std::map<std::string, int> with_messages_to_all;
    std::vector<int> sizes(17);
    std::iota(sizes.begin(), sizes.end(), 1);
    for (const int n : {24, 31, 32, 33, 48, 63, 64}) sizes.push_back(n);  // 64: most_to_all of plan/platform.hpp
    for (const Algorithm& a : algorithms())
        for (int c = 0; c < collectives; ++c)
            for (const int n : sizes) {
                const auto collective = static_cast<Collective>(c);
                if (!a.supports(collective) || least_ranks(collective) > 1) continue;
                CAPTURE(a.name, name_of(collective), n);
                std::vector<Rank> order(static_cast<std::size_t>(n));  // as where ranks play others' parts
                for (Rank r = 0; r < n; ++r) order[static_cast<std::size_t>(r)] = n - 1 - r;
                for (const bool reorders : {false, true}) {
                    std::vector<Program> before;
                    for (Rank r = 0; r < n; ++r)
                        before.push_back(reordered(a.maker(), {collective, r, n, has_root(collective) ? n / 2 : 0},
                                                   reorders ? order : std::span<const Rank>()));
                    const std::vector<Program> after = rewritten(before);
                    for (const Program& p : after)
                        for (const Operand& o : p.operands) with_messages_to_all[std::string(a.name)] += o.all;
                    REQUIRE(compare(before, after) == "");
                    if (n == 2) REQUIRE(after == before);
                }
            }
    CHECK(with_messages_to_all["flat"] > 0);
    CHECK(with_messages_to_all["direct"] > 0);
    CHECK(with_messages_to_all["ring"] == 0);
}

TEST_CASE("the comparison finds a message to all that is taken for another one, or is lost") {
    std::vector<Program> before;
    for (Rank r = 0; r < 4; ++r) before.push_back(find_algorithm("flat")->make({Collective::all_reduce, r, 4}));
    const std::vector<Program> right = rewritten(before);
    REQUIRE(compare(before, right) == "");
    std::vector<Program> wrong = right;
    for (Operand& o : wrong[2].operands)
        if (o.all && o.index == 1) o.all = false;
    CHECK(compare(before, wrong) != "");
    wrong = right;
    for (Operand& o : wrong[1].operands)
        if (o.all && o.index == 2) o.index = 3;
    CHECK(compare(before, wrong) != "");
    wrong = right;
    wrong[3].steps.pop_back();
    CHECK(compare(before, wrong) != "");
}

TEST_CASE("only the programs of ranks that send to a rank are looked at for its messages to all") {
    std::vector<int> asked(64);
    const auto programs_for = [&](const char* name, Rank rank) {
        asked.assign(64, 0);
        const auto of = [&](Rank r) {
            ++asked[static_cast<std::size_t>(r)];
            return find_algorithm(name)->make({Collective::all_reduce, r, 64});
        };
        const Program mine = find_algorithm(name)->make({Collective::all_reduce, rank, 64});
        to_all(mine, of);
        return std::accumulate(asked.begin(), asked.end(), 0);
    };
    CHECK(programs_for("ring", 5) == 1);
    CHECK(asked[4] == 1);
    CHECK(programs_for("server", 5) == 1);
    CHECK(programs_for("halving_doubling", 5) == 6);
    CHECK(programs_for("flat", 5) == 63);
}
