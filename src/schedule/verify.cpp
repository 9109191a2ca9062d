#include "schedule/verify.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "schedule/check.hpp"
#include "schedule/clocks.hpp"
#include "schedule/hazards.hpp"
#include "schedule/match.hpp"
#include "schedule/simulate.hpp"
#include "schedule/uneven.hpp"
#include "schedule/values.hpp"

namespace tutti {
namespace {

Report failed(std::string error) {
    Report report;
    report.error = std::move(error);
    return report;
}

void count(std::span<const Program> programs, const Matching& matching, Report& report) {
    std::vector<long long> sent(programs.size());
    for (const PairOfRanks& c : matching.connections) {
        report.busiest_link = std::max<long long>(report.busiest_link, c.parts);
        sent[c.from] += c.parts;
    }
    for (std::size_t p = 0; p < programs.size(); ++p) {
        report.busiest_rank = std::max(report.busiest_rank, sent[p]);
        report.steps = std::max(report.steps, static_cast<int>(programs[p].steps.size()));
    }
}

// Checks a barrier: the last step of each rank must happen after the first step of every other rank.
std::string missed(std::span<const Program> programs, const Matching& matching, std::span<const StepRef> run) {
    if (programs.front().collective != Collective::barrier || programs.size() == 1) return {};
    Clocks clocks(programs, matching);
    for (const StepRef turn : run) clocks.advance(turn);
    for (std::uint32_t p = 0; p < programs.size(); ++p)
        for (std::uint32_t q = 0; q < programs.size(); ++q) {
            const auto last = static_cast<std::uint32_t>(programs[p].steps.size());
            if (p == q || (last > 0 && clocks.ordered({q, 0}, {p, last - 1}))) continue;
            return text("rank %d: leaves the barrier perhaps before rank %d has come to it", programs[p].rank,
                        programs[q].rank);
        }
    return {};
}

}  // namespace

Report verify(std::span<const Program> programs) {
    if (std::string error = ill_formed(programs); !error.empty()) return failed(std::move(error));
    Matching matching = match(programs);
    if (!matching.error.empty()) return failed(std::move(matching.error));
    Run run = simulate(programs, matching, 0);
    if (!run.blocked.empty()) return failed("deadlock: " + run.blocked);

    Report report;
    Replay apart = replay(programs, matching, run.order, false, report.expressions);
    if (!apart.error.empty()) return failed(std::move(apart.error));
    const Replay in_place = replay(programs, matching, run.order, true, report.expressions);
    if (!in_place.error.empty()) return failed("in place: " + in_place.error);
    report.order = std::move(apart.order);
    if (std::string error = missed(programs, matching, run.order); !error.empty()) return failed(std::move(error));

    const Hazards hazards = find_hazards(programs, matching, run.order);
    report.pull_hazard = hazards.pull;
    report.push_hazard = hazards.push;
    report.pull_safe = hazards.pull.empty();
    report.push_safe = hazards.push.empty();
    report.uneven_hazard = uneven_hazard(programs, matching);
    report.uneven_safe = report.uneven_hazard.empty();
    report.fifo_depth = least_depth(programs, matching);
    report.rounds = longest_chain(programs, matching, run.order);
    count(programs, matching, report);
    report.ok = true;
    return report;
}

std::string different_order(std::span<const Program> programs, const Report& r) {
    if (programs.empty() || programs.front().collective != Collective::all_reduce) return {};
    for (std::size_t rank = 1; rank < r.order.size(); ++rank)
        for (std::size_t c = 0; c < r.order[rank].size(); ++c)
            if (r.order[rank][c] != r.order[0][c])
                return text("rank %zu adds out[%zu] as %s, rank 0 as %s", rank, c,
                            r.expressions.text(r.order[rank][c]).c_str(), r.expressions.text(r.order[0][c]).c_str());
    return {};
}

}  // namespace tutti
