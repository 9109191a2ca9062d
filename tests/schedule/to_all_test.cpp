// Messages to all are those for each rank, written once.
#include "schedule/to_all.hpp"

#include <map>

#include "algorithms/prove.hpp"
#include "harness/catch.hpp"

using namespace tutti;

namespace {

/// What rank `to` hears of rank `from`, each message as (the step of its sender, whether it is to all), in two queues,
/// as there are two FIFOs.
struct Heard {
    std::vector<std::size_t> alone, with_all;
};

/// Plays the programs' messages through such queues. The steps of those of `before` that every receive of rank `to`
/// meets, in the order of its receives.
std::vector<std::size_t> met(const std::vector<Program>& before, const std::vector<Program>& after, Rank from,
                             Rank to) {
    Heard heard;
    const Program& sender = after[static_cast<std::size_t>(from)];
    for (std::size_t s = 0; s < sender.steps.size(); ++s)
        for (const Operand& o : sender.sinks(sender.steps[s])) {
            if (o.place != Place::peer) continue;
            if (o.all) heard.with_all.push_back(s);
            if (!o.all && o.index == to) heard.alone.push_back(s);
        }
    std::vector<std::size_t> steps;
    std::size_t alone = 0, with_all = 0;
    const Program& receiver = after[static_cast<std::size_t>(to)];
    for (const Step& step : receiver.steps)
        for (const Operand& o : receiver.sources(step)) {
            if (o.place != Place::peer || o.index != from) continue;
            const std::vector<std::size_t>& queue = o.all ? heard.with_all : heard.alone;
            std::size_t& next = o.all ? with_all : alone;
            REQUIRE(next < queue.size());
            steps.push_back(queue[next++]);
        }
    REQUIRE(alone == heard.alone.size());
    REQUIRE(with_all == heard.with_all.size());
    REQUIRE(receiver.steps.size() == before[static_cast<std::size_t>(to)].steps.size());
    return steps;
}

std::vector<std::size_t> sends(const Program& program, Rank to) {
    std::vector<std::size_t> steps;
    for (std::size_t s = 0; s < program.steps.size(); ++s)
        for (const Operand& o : program.sinks(program.steps[s]))
            if (o.place == Place::peer && o.index == to) steps.push_back(s);
    return steps;
}

}  // namespace

TEST_CASE("each receive meets the message that it met before, whether all get it or not") {
    std::map<std::string, int> with_messages_to_all;
    for (const Algorithm& a : algorithms())
        for (const Collective c : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                   Collective::broadcast, Collective::reduce, Collective::barrier})
            for (const int n : {2, 3, 5, 8}) {
                if (!a.supports(c)) continue;
                CAPTURE(a.name, name_of(c), n);
                const std::vector<Program> before = all_programs(a, c, n);
                std::vector<Program> after;
                for (Rank r = 0; r < n; ++r) after.push_back(to_all(before, r));
                for (const Program& p : after)
                    for (const Operand& o : p.operands) with_messages_to_all[std::string(a.name)] += o.all;
                for (Rank from = 0; from < n; ++from)
                    for (Rank to = 0; to < n; ++to)
                        if (from != to)
                            REQUIRE(met(before, after, from, to) == sends(before[static_cast<std::size_t>(from)], to));
                if (n == 2) REQUIRE(after == before);
            }
    CHECK(with_messages_to_all["flat"] > 0);
    CHECK(with_messages_to_all["direct"] > 0);
    CHECK(with_messages_to_all["ring"] == 0);
}
