#include "schedule/text.hpp"

#include <algorithm>
#include <charconv>

#include "base/result.hpp"

namespace tutti {
namespace {

std::string side(std::span<const Operand> operands, bool source, std::size_t most) {
    std::string s = "{";
    const std::size_t shown = most == 0 || operands.size() <= most ? operands.size() : most - 1;
    for (std::size_t i = 0; i < shown; ++i) s += (i ? ", " : "") + text_of(operands[i], source);
    if (shown < operands.size()) s += text(", %zu more", operands.size() - shown);
    return s + "}";
}

std::string counted(int n, const char* noun) {
    return text("%d %s%s", n, noun, n == 1 ? "" : "s");
}

// True for a step without slices in a program of several columns: its operands do not show its column.
bool hides_column(const Program& p, const Step& s) {
    const auto slice = [](Operand o) { return o.place != Place::peer; };
    return p.columns > 1 && std::ranges::none_of(p.sources(s), slice) && std::ranges::none_of(p.sinks(s), slice);
}

bool inside(const Program& p, const Step& s) {
    return std::uint64_t{s.first} + s.sources + s.sinks <= p.operands.size();
}

}  // namespace

std::string text_of(Operand operand, bool source) {
    switch (operand.place) {
        case Place::input:
            return text("in[%d]", operand.index);
        case Place::output:
            return text("out[%d]", operand.index);
        case Place::scratch:
            return text("tmp[%d]", operand.index);
        case Place::peer:
            return text(source ? "recv %d%s" : "send %d%s", operand.index, operand.more ? ".." : "");
    }
    return text("place %d[%d]", static_cast<int>(operand.place), operand.index);
}

std::string text_of(const Program& program, const Step& step, std::size_t most) {
    if (!inside(program, step)) return "operands out of range";
    std::string s = side(program.sources(step), true, most) + " -> " + side(program.sinks(step), false, most);
    if (hides_column(program, step)) s += text("  column %u", static_cast<unsigned>(step.column));
    if (step.completes) s += "  completes";
    return s;
}

std::string text_of(const Program& program) {
    std::string s(name_of(program.collective));
    if (has_root(program.collective)) s += text(", root %d", program.root);
    if (program.collective == Collective::send) s += text(" to %d", program.root);
    if (program.collective == Collective::recv) s += text(" from %d", program.root);
    s += text(", rank %d of %d: %s in, %s out, %s", program.rank, program.ranks,
              counted(program.input_rows, "row").c_str(), counted(program.output_rows, "row").c_str(),
              counted(program.columns, "column").c_str());
    if (program.scratch_chunks > 0) s += ", scratch of " + counted(program.scratch_chunks, "chunk");
    if (program.message_chunks > 1) s += text(", messages of up to %d chunks", program.message_chunks);
    s += "\n";
    for (std::size_t i = 0; i < program.steps.size(); ++i)
        s += text("%3zu  ", i) + text_of(program, program.steps[i]) + "\n";
    return s;
}

std::string place_of(const Program& program, std::size_t step) {
    return text("rank %d, step %zu `%s`", program.rank, step, text_of(program, program.steps[step], 6).c_str());
}

Named named_in(std::string_view error) {
    const char* const end = error.data() + error.size();
    const auto number_at = [&](std::size_t at, int& number) {
        return static_cast<std::size_t>(std::from_chars(error.data() + at, end, number).ptr - error.data());
    };
    Named first;
    for (std::size_t at = 0; (at = error.find("rank ", at)) != std::string_view::npos;) {
        Named here;
        at = number_at(at + 5, here.rank);
        if (constexpr std::string_view step = ", step "; error.substr(at).starts_with(step))
            number_at(at + step.size(), here.step);
        if (here.rank >= 0 && here.step >= 0) return here;
        if (first.rank < 0) first.rank = here.rank;
    }
    return first;
}

}  // namespace tutti
