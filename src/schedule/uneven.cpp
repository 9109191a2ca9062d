#include "schedule/uneven.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "schedule/memory.hpp"
#include "schedule/text.hpp"

namespace tutti {
namespace {

constexpr long long no_row = -1;

/// The number of the row of data to which a slice belongs, the same on all ranks; no_row for scratch and messages,
/// which do not determine it.
long long row_of(const Program& p, Operand o) {
    if (o.place != Place::input && o.place != Place::output) return no_row;
    const bool in = o.place == Place::input;
    switch (p.collective) {
        case Collective::all_gather:
        case Collective::gather:
            return in ? p.rank : o.index;
        case Collective::reduce_scatter:
        case Collective::scatter:
            return in ? o.index : p.rank;
        case Collective::all_to_all:  // from * ranks + to
            return in ? 1LL * p.rank * p.ranks + o.index : 1LL * o.index * p.ranks + p.rank;
        default:
            return no_row;
    }
}

class Rower {
  public:
    Rower(std::span<const Program> programs, const Matching& matching)
        : programs_(programs), matching_(matching), sent_(matching.parts.size(), no_row) {}

    std::string find() {
        for (const bool sends : {true, false})
            for (std::uint32_t p = 0; p < programs_.size() && hazard_.empty(); ++p) look_at(p, sends);
        for (std::uint32_t p = 0; p < programs_.size() && hazard_.empty(); ++p) look_for_rewrites(programs_[p]);
        return hazard_;
    }

  private:
    void look_at(std::uint32_t number, bool sends) {
        const Program& p = programs_[number];
        for (std::size_t step = 0; step < p.steps.size() && hazard_.empty(); ++step) {
            const Step& s = p.steps[step];
            const long long row = row_of_step(p, step);
            for (std::uint32_t i = s.first; i < s.first + s.sources + s.sinks; ++i) {
                if (p.operands[i].place != Place::peer || (i >= s.first + s.sources) != sends) continue;
                long long& sent = sent_[matching_.part_of[number][i]];
                if (sends)
                    sent = row;
                else if (sent != row)
                    hazard_ = place_of(p, step) +
                              text(": takes what rank %d sends of another row for its own", p.operands[i].index);
            }
        }
    }

    long long row_of_step(const Program& p, std::size_t step) {
        long long row = no_row;
        for (std::uint32_t i = 0; i < p.steps[step].sources + p.steps[step].sinks; ++i) {
            const long long own = row_of(p, p.operands[p.steps[step].first + i]);
            if (own != no_row && row != no_row && own != row)
                hazard_ = place_of(p, step) + ": has slices of several rows";
            row = std::max(row, own);
        }
        if (row == no_row) hazard_ = place_of(p, step) + ": has no slice that could say how long its messages are";
        return row;
    }

    void look_for_rewrites(const Program& p) {
        const Memory memory(p, true);  // what is the same place out of place is so in place, too
        std::vector<char> sent(memory.size());
        for (std::size_t step = 0; step < p.steps.size(); ++step) {
            const Step& s = p.steps[step];
            for (const Operand o : p.sinks(s))
                if (o.place != Place::peer && sent[memory[o]] && !memory.is_source(p, s, o))
                    hazard_ = place_of(p, step) + ": writes " + text_of(o, false) + " after it was sent from there";
            const auto is_peer = [](const Operand& o) { return o.place == Place::peer; };
            if (!std::ranges::any_of(p.sinks(s), is_peer)) continue;
            if (s.sources == 1 && !is_peer(p.sources(s)[0])) sent[memory[p.sources(s)[0]]] = true;
            for (const Operand o : p.sinks(s))
                if (!is_peer(o)) sent[memory[o]] = true;
        }
    }

    std::span<const Program> programs_;
    const Matching& matching_;
    std::vector<long long> sent_;  // [part]
    std::string hazard_;
};

}  // namespace

std::string uneven_hazard(std::span<const Program> programs, const Matching& matching) {
    const Program& first = programs.front();
    if (!row_per_rank(first.collective)) return text("%s has no row for each rank", name_of(first.collective).data());
    if (first.columns != 1) return text("its rows are cut into %d columns", first.columns);
    if (first.message_chunks != 1 && !counts_known_to_all(first.collective))
        return "its messages have several parts, and ranks may differ in the number of their tiles";
    return Rower(programs, matching).find();
}

}  // namespace tutti
