#include "schedule/to_all.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace tutti {
namespace {

bool is_peer(const Operand& o) {
    return o.place == Place::peer;
}

/// For each message that `from` sends to `rank`, in order: true if it is a message to all.
std::vector<bool> heard(const Program& from, Rank rank) {
    std::vector<bool> messages;
    for (const Step& step : from.steps)
        for (const Operand& o : from.sinks(step))
            if (is_peer(o) && o.index == rank) messages.push_back(sends_to_all(from, step));
    return messages;
}

}  // namespace

bool sends_to_all(const Program& program, const Step& step) {
    if (program.ranks < 3 || program.message_chunks > 1) return false;  // no gain, or not supported
    return std::ranges::count_if(program.sinks(step), is_peer) == program.ranks - 1;
}

Program to_all(const Program& mine, const std::function<Program(Rank)>& program_of) {
    struct Heard {
        std::vector<bool> for_all;
        std::size_t received = 0;
    };
    std::map<Rank, Heard> peers;
    Program out = mine;
    out.steps.clear();
    out.operands.clear();
    for (const Step& step : mine.steps) {
        std::vector<Operand> sources(mine.sources(step).begin(), mine.sources(step).end());
        for (Operand& o : sources) {
            if (!is_peer(o)) continue;
            const auto [peer, unknown] = peers.try_emplace(o.index);
            Heard& from = peer->second;
            if (unknown) from.for_all = heard(program_of(o.index), mine.rank);
            o.all = from.for_all[from.received++];
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
