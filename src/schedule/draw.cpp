#include "schedule/draw.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "schedule/match.hpp"
#include "schedule/simulate.hpp"

namespace tutti {
namespace {

constexpr int left = 70, top = 72, row = 58, box_height = 26, unit = 46, box_width = 34;

struct Times {
    std::vector<std::vector<int>> start;  // [program][step]
    int end = 0;
};

/// The start of each step: the end of the step before it, or the arrival of the last message that it receives.
Times times_of(std::span<const Program> programs, const Matching& matching, std::span<const StepRef> order) {
    Times times;
    for (const Program& p : programs) times.start.emplace_back(p.steps.size(), 0);
    const auto at = [&](StepRef t) -> int& { return times.start[t.program][t.step]; };
    std::vector<int> free(programs.size(), 0);
    for (const StepRef& turn : order) {
        const Program& p = programs[turn.program];
        const Step& step = p.steps[turn.step];
        int start = free[turn.program];
        for (std::uint32_t i = step.first; i < step.first + step.sources; ++i) {
            const std::uint32_t part = matching.part_of[turn.program][i];
            if (part == Matching::none) continue;
            start = std::max(start, at(matching.messages[matching.parts[part].message].sent) + 2);
        }
        at(turn) = start;
        free[turn.program] = start + 1;
        times.end = std::max(times.end, start + 1);
    }
    return times;
}

int centre_of(int time) {
    return left + time * unit + unit / 2;
}
int middle_of(std::size_t rank) {
    return top + static_cast<int>(rank) * row + row / 2;
}

/// A chunk's colour, the same on all ranks.
std::string colour(int chunk, int chunks, const char* light) {
    return text("hsl(%d,60%%,%s)", chunks > 1 ? chunk * 360 / chunks : 210, light);
}

/// The chunk that a step is about: that of its first slice of the buffer with more rows, else of its first slice of the
/// other buffer, else its column.
int chunk_of(const Program& p, const Step& step) {
    const Place rich = p.output_rows > p.input_rows ? Place::output : Place::input;
    int chunk = static_cast<int>(step.column);
    for (std::uint32_t i = step.first + step.sources + step.sinks; i-- > step.first;)
        if (p.operands[i].place == Place::input || p.operands[i].place == Place::output) chunk = p.operands[i].index;
    for (std::uint32_t i = step.first; i < step.first + step.sources + step.sinks; ++i)
        if (p.operands[i].place == rich) return p.operands[i].index;
    return chunk;
}

int chunks_in_all(const Program& p) {
    return std::max({1, p.columns * p.input_rows, p.columns * p.output_rows});
}

/// The label of a box: the number of sources of a sum, or whether data is kept or only sent on; then the chunk.
std::string sign_of(const Program& p, const Step& step) {
    const bool keeps = std::any_of(p.operands.begin() + step.first + step.sources,
                                   p.operands.begin() + step.first + step.sources + step.sinks,
                                   [](const Operand& o) { return o.place != Place::peer; });
    std::string sign = step.sources > 1 ? text("\u03a3%u", step.sources) : "";
    return text("%s%s%d", sign.c_str(), sign.empty() ? (keeps ? "\u2193" : "") : " ", chunk_of(p, step));
}

std::string head(int width, int height, std::string_view title) {
    std::string out = text(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
        "font-size=\"11\" text-anchor=\"middle\">\n"
        "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" "
        "orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"context-stroke\"/></marker></defs>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        width, height);
    out += text("<text x=\"%d\" y=\"22\" font-size=\"15\" text-anchor=\"start\">%s</text>\n", 14,
                std::string(title).c_str());
    out += text(
        "<text x=\"%d\" y=\"42\" fill=\"#555\" text-anchor=\"start\">a box is a step with its chunk; \u03a3n: n parts "
        "are reduced, \u2193: it is kept, no sign: it is only sent on;</text>\n"
        "<text x=\"%d\" y=\"56\" fill=\"#555\" text-anchor=\"start\">bold: the result is complete; thick arrow: a "
        "message of several chunks</text>\n",
        14, 14);
    return out;
}

std::string arrows(const Matching& matching, std::span<const Program> programs, const Times& times) {
    std::string out;
    for (const Message& m : matching.messages) {
        const Program& p = programs[m.sent.program];
        const int from = times.start[m.sent.program][m.sent.step],
                  to = times.start[m.received.program][m.received.step];
        const bool down = m.received.program > m.sent.program;
        const int y = (down ? 1 : -1) * box_height / 2;
        out += text(
            "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"%.1f\" "
            "marker-end=\"url(#tip)\"/>\n",
            centre_of(from), middle_of(m.sent.program) + y, centre_of(to), middle_of(m.received.program) - y,
            colour(chunk_of(p, p.steps[m.sent.step]), chunks_in_all(p), "55%").c_str(), m.parts > 1 ? 2.4 : 1.2);
    }
    return out;
}

std::string boxes(std::span<const Program> programs, const Times& times) {
    std::string out;
    for (std::size_t r = 0; r < programs.size(); ++r)
        for (std::size_t s = 0; s < programs[r].steps.size(); ++s) {
            const Program& p = programs[r];
            const Step& step = p.steps[s];
            const int x = centre_of(times.start[r][s]), y = middle_of(r);
            out += text("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\" stroke=\"%s\"/>\n",
                        x - box_width / 2, y - box_height / 2, box_width, box_height,
                        colour(chunk_of(p, step), chunks_in_all(p), "88%").c_str(),
                        colour(chunk_of(p, step), chunks_in_all(p), "40%").c_str());
            out += text("<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y + 4,
                        step.completes ? " font-weight=\"bold\"" : "", sign_of(p, step).c_str());
        }
    return out;
}

}  // namespace

std::string svg_of(std::span<const Program> programs, std::string_view title) {
    const Matching matching = match(programs);
    const Run run = matching.error.empty() ? simulate(programs, matching, 0) : Run{};
    if (!matching.error.empty() || !run.blocked.empty())
        fail(tuttiInvalidArgument, "programs that do not finish can't be drawn: %s%s", matching.error.c_str(),
             run.blocked.c_str());
    const Times times = times_of(programs, matching, run.order);
    const int width = std::max(left + times.end * unit + 20, 800);
    const int height = top + static_cast<int>(programs.size()) * row + 12;
    std::string out = head(width, height, title);
    for (std::size_t r = 0; r < programs.size(); ++r) {
        out += text("<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>\n", left, width - 10, middle_of(r),
                    middle_of(r));
        out += text("<text x=\"%d\" y=\"%d\" text-anchor=\"start\">rank %d</text>\n", 14, middle_of(r) + 4,
                    programs[r].rank);
    }
    return out + arrows(matching, programs, times) + boxes(programs, times) + "</svg>\n";
}

}  // namespace tutti
