#include "schedule/program.hpp"

namespace tutti {

void Program::step(std::span<const Operand> sources, std::span<const Operand> sinks, bool completes, int column) {
    Step s{};
    s.first = static_cast<std::uint32_t>(operands.size());
    s.sources = static_cast<std::uint32_t>(sources.size());
    s.sinks = static_cast<std::uint32_t>(sinks.size());
    s.completes = completes;
    operands.insert(operands.end(), sources.begin(), sources.end());
    operands.insert(operands.end(), sinks.begin(), sinks.end());
    for (std::uint32_t i = s.first; column < 0 && i < operands.size(); ++i)
        if (operands[i].place != Place::peer) column = operands[i].index % columns;
    s.column = static_cast<std::uint32_t>(column < 0 ? 0 : column) & 0x7fffffffu;
    steps.push_back(s);
}

Program program_for(const Request& request, int columns) {
    Program p;
    p.collective = request.collective;
    p.rank = request.rank;
    p.ranks = request.ranks;
    p.root = request.root;
    p.columns = columns;
    switch (request.collective) {
        case Collective::all_reduce:
        case Collective::broadcast:
        case Collective::reduce:
        case Collective::barrier:
            break;
        case Collective::reduce_scatter:
            p.input_rows = request.ranks;
            break;
        case Collective::all_gather:
            p.output_rows = request.ranks;
            break;
        case Collective::all_to_all:
            p.input_rows = p.output_rows = request.ranks;
            break;
        case Collective::gather:
            p.output_rows = request.rank == request.root ? request.ranks : 0;
            break;
        case Collective::scatter:
            p.input_rows = request.rank == request.root ? request.ranks : 0;
            break;
        case Collective::send:
            p.output_rows = 0;
            break;
        case Collective::recv:
            p.input_rows = 0;
            break;
    }
    return p;
}

}  // namespace tutti
