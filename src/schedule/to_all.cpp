#include "schedule/to_all.hpp"

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

bool is_peer(const Operand& o) {
    return o.place == Place::peer;
}

/// Of the messages that `from` sends to `rank`, in their order: whether all get them.
std::vector<bool> heard(const Program& from, Rank rank) {
    std::vector<bool> messages;
    for (const Step& step : from.steps)
        for (const Operand& o : from.sinks(step))
            if (is_peer(o) && o.index == rank) messages.push_back(sends_to_all(from, step));
    return messages;
}

}  // namespace

bool sends_to_all(const Program& program, const Step& step) {
    if (program.ranks < 3 || program.message_chunks > 1) return false;  // with one peer, or parts, nothing is to be won
    return std::ranges::count_if(program.sinks(step), is_peer) == program.ranks - 1;
}

Program to_all(std::span<const Program> programs, Rank rank) {
    const Program& mine = programs[static_cast<std::size_t>(rank)];
    std::vector<std::vector<bool>> for_all;
    for (const Program& from : programs) for_all.push_back(heard(from, rank));
    std::vector<std::size_t> received(programs.size());
    Program out = mine;
    out.steps.clear();
    out.operands.clear();
    for (const Step& step : mine.steps) {
        std::vector<Operand> sources(mine.sources(step).begin(), mine.sources(step).end());
        for (Operand& o : sources) {
            if (!is_peer(o)) continue;
            const auto peer = static_cast<std::size_t>(o.index);
            o.all = for_all[peer][received[peer]++];
        }
        std::vector<Operand> sinks(mine.sinks(step).begin(), mine.sinks(step).end());
        if (sends_to_all(mine, step)) {
            const auto first = std::ranges::find_if(sinks, is_peer);
            first->all = true;
            first->index = everybody;
            sinks.erase(std::remove_if(first + 1, sinks.end(), is_peer), sinks.end());
        }
        out.step(sources, sinks, step.completes, static_cast<int>(step.column));
    }
    return out;
}

}  // namespace tutti
