#include "algorithms/prove.hpp"

#include "base/result.hpp"

namespace tutti {
namespace {

std::string differs(const char* what, long long found, long long promised) {
    return text("%s: %lld, the closed form says %lld", what, found, promised);
}

std::string broken_promise(const Algorithm& a, Collective collective, int ranks, const Report& r) {
    const ClosedForm form = a.closed_form(collective, ranks);
    if (r.rounds != form.rounds) return differs("rounds", r.rounds, form.rounds);
    if (r.busiest_link != form.busiest_link)
        return differs("chunks on the busiest link", r.busiest_link, form.busiest_link);
    if (r.busiest_rank != form.busiest_rank)
        return differs("chunks of the busiest rank", r.busiest_rank, form.busiest_rank);
    if (r.fifo_depth > a.fifo_depth)
        return text("needs %d slots per connection, the table says %d", r.fifo_depth, a.fifo_depth);
    if (a.pull_safe && !r.pull_safe) return "is not pull safe: " + r.pull_hazard;
    if (a.push_safe && !r.push_safe) return "is not push safe: " + r.push_hazard;
    return {};
}

// All ranks get the same bits of an all-reduce only if they add in the same order.
std::string different_order(const Report& r) {
    for (std::size_t rank = 1; rank < r.order.size(); ++rank)
        for (std::size_t c = 0; c < r.order[rank].size(); ++c)
            if (r.order[rank][c] != r.order[0][c])
                return text("rank %zu adds out[%zu] as %s, rank 0 as %s", rank, c,
                            r.expressions.text(r.order[rank][c]).c_str(), r.expressions.text(r.order[0][c]).c_str());
    return {};
}

}  // namespace

std::vector<Program> all_programs(const Algorithm& algorithm, Collective collective, int ranks, Rank root) {
    std::vector<Program> programs;
    for (Rank rank = 0; rank < ranks; ++rank) {
        if (least_ranks(collective) == 1) {
            programs.push_back(algorithm.make({collective, rank, ranks, root}));
            continue;
        }
        programs.push_back(algorithm.make({Collective::send, rank, ranks, (rank + 1) % ranks}));
        programs.push_back(algorithm.make({Collective::recv, rank, ranks, (rank + ranks - 1) % ranks}));
    }
    return programs;
}

Report prove(const Algorithm& algorithm, Collective collective, int ranks, Rank root) {
    Report report = verify(all_programs(algorithm, collective, ranks, root));
    if (!report.ok) return report;
    report.error = broken_promise(algorithm, collective, ranks, report);
    if (report.error.empty() && collective == Collective::all_reduce) report.error = different_order(report);
    report.ok = report.error.empty();
    return report;
}

}  // namespace tutti
