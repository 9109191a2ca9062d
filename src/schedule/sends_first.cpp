#include "schedule/sends_first.hpp"

#include <algorithm>
#include <vector>

namespace tutti {

Program sends_first(const Program& program) {
    if (reduces(program.collective)) return program;
    const auto is_peer = [](const Operand& o) { return o.place == Place::peer; };
    Program out = program;
    out.steps.clear();
    out.operands.clear();
    for (const Step& step : program.steps) {
        const auto sources = program.sources(step), sinks = program.sinks(step);
        std::vector<Operand> sent, kept;
        for (const Operand& o : sinks) (is_peer(o) ? sent : kept).push_back(o);
        const auto add = [&](std::span<const Operand> to) {
            out.step(sources, to, step.completes, static_cast<int>(step.column));
        };
        if (std::ranges::any_of(sources, is_peer) || sent.empty() || kept.empty()) {
            add(sinks);
        } else {
            add(sent);
            add(kept);
        }
    }
    return out;
}

}  // namespace tutti
