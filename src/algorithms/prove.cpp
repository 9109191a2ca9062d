#include "algorithms/prove.hpp"

#include "base/result.hpp"

namespace tutti {
namespace {

std::string differs(const char* what, long long found, long long promised) {
    return text("%s: %lld, the closed form says %lld", what, found, promised);
}

std::string other_than_form(const Algorithm& a, Collective collective, int ranks, const Report& r) {
    const ClosedForm form = a.closed_form(collective, ranks);
    if (r.rounds != form.rounds) return differs("rounds", r.rounds, form.rounds);
    if (r.busiest_link != form.busiest_link)
        return differs("chunks on the busiest link", r.busiest_link, form.busiest_link);
    if (r.busiest_rank != form.busiest_rank)
        return differs("chunks of the busiest rank", r.busiest_rank, form.busiest_rank);
    return {};
}

std::string broken_promise(const Algorithm& a, Collective collective, const Report& r) {
    if (r.fifo_depth > a.fifo_depth)
        return text("needs %d slots per connection, the table says %d", r.fifo_depth, a.fifo_depth);
    if (a.pull_safe && !r.pull_safe) return "is not pull safe: " + r.pull_hazard;
    if (a.push_safe && !r.push_safe) return "is not push safe: " + r.push_hazard;
    if (a.uneven_safe(collective) && !r.uneven_safe) return "is not uneven safe: " + r.uneven_hazard;
    return {};
}

/// The sum of all ranks by one step in rank order, as Expressions writes it.
std::string in_order(int ranks) {
    std::string s = "(0";
    for (Rank r = 1; r < ranks; ++r) s += text("+%d", r);
    return s + ")";
}

}  // namespace

std::vector<Program> programs_of(const Algorithm& algorithm, Collective collective, Rank rank, int ranks, Rank root,
                                 std::span<const int> nodes, std::span<const int> cores) {
    if (least_ranks(collective) == 1) return {algorithm.make({collective, rank, ranks, root, nodes, cores})};
    return {algorithm.make({Collective::send, rank, ranks, (rank + 1) % ranks}),
            algorithm.make({Collective::recv, rank, ranks, (rank + ranks - 1) % ranks})};
}

std::vector<Program> all_programs(const Algorithm& algorithm, Collective collective, int ranks, Rank root,
                                  std::span<const int> nodes, std::span<const int> cores) {
    std::vector<Program> programs;
    for (Rank rank = 0; rank < ranks; ++rank)
        for (Program& p : programs_of(algorithm, collective, rank, ranks, root, nodes, cores))
            programs.push_back(std::move(p));
    return programs;
}

std::string other_than_rank_order(int ranks, const Report& r) {
    const std::string wanted = in_order(ranks);
    std::uint32_t known = Expressions::none;  // the last expression found to be right
    for (const auto& chunks : r.order)
        for (const std::uint32_t expression : chunks) {
            if (expression == Expressions::none || expression == known) continue;
            const std::string found = r.expressions.text(expression);
            if (found != wanted) return text("adds %s, in rank order it is %s", found.c_str(), wanted.c_str());
            known = expression;
        }
    return {};
}

Report prove(const Algorithm& algorithm, Collective collective, int ranks, Rank root, std::span<const int> nodes,
             std::span<const int> cores) {
    const std::vector<Program> programs = all_programs(algorithm, collective, ranks, root, nodes, cores);
    Report report = verify(programs);
    if (!report.ok) return report;
    if (nodes.empty() && cores.empty()) report.error = other_than_form(algorithm, collective, ranks, report);
    if (report.error.empty()) report.error = broken_promise(algorithm, collective, report);
    if (report.error.empty()) report.error = different_order(programs, report);
    if (report.error.empty() && reduces(collective) && ranks > 1 && algorithm.in_rank_order(collective))
        report.error = other_than_rank_order(ranks, report);
    report.ok = report.error.empty();
    return report;
}

}  // namespace tutti
