#include "schedule/hazards.hpp"

#include <algorithm>
#include <array>

#include "base/result.hpp"
#include "schedule/clocks.hpp"
#include "schedule/memory.hpp"
#include "schedule/text.hpp"

namespace tutti {
namespace {

struct Mode {
    bool pull, push, in_place;
};
constexpr std::array<Mode, 6> modes{{{true, false, false},
                                     {true, false, true},
                                     {false, true, false},
                                     {false, true, true},
                                     {true, true, false},
                                     {true, true, true}}};

// Step `last` writes to a slice of rank `owner` that step `before` uses. This is safe if `before` happens before
// `last`. If next_tile, `last` is the owner's last step, and the next tile writes to the slice.
struct Question {
    StepRef before, last;
    std::uint32_t owner;
    Operand slice;
    std::uint8_t mode;
    bool next_tile;
};

// Walks over each rank's steps and collects the pairs that must be ordered. A write is compared only with accesses
// since the previous write of the slice, because earlier ones are ordered through that write.
class Collector {
  public:
    Collector(std::span<const Program> programs, const Matching& matching) : programs_(programs), matching_(matching) {}

    std::vector<Question> collect() {
        for (mode_ = 0; mode_ < modes.size(); ++mode_)
            for (owner_ = 0; owner_ < programs_.size(); ++owner_) walk();
        return std::move(questions_);
    }

  private:
    struct Slice {
        std::uint32_t touched_by = Matching::none;  // the owner's last step that accessed it
        std::vector<StepRef> pulled_by;             // peers' steps that pull it, since its last write
    };

    void walk() {
        const Program& p = programs_[owner_];
        const Memory memory(p, modes[mode_].in_place);
        slices_.assign(memory.size(), {});
        for (std::uint32_t step = 0; step < p.steps.size(); ++step) {
            const auto sources = p.sources(p.steps[step]), sinks = p.sinks(p.steps[step]);
            for (const Operand o : sources)
                if (o.place != Place::peer) slices_[memory[o]].touched_by = step;
            bool pushed = modes[mode_].push && sources.size() == 1 && alone(p.steps[step].first) != nullptr;
            for (const Operand o : sinks) {
                if (o.place == Place::peer || memory.is_source(p, p.steps[step], o)) continue;
                write(slices_[memory[o]], o, step, pushed);
                pushed = false;  // only the first slice is pushed to; the receiver copies from there to the others
            }
            if (!modes[mode_].pull) continue;
            if (sources.size() == 1 && sources[0].place != Place::peer) publish(slices_[memory[sources[0]]], step);
            for (const Operand o : sinks)
                if (o.place != Place::peer) publish(slices_[memory[o]], step);
        }
        // All tiles use the same scratch.
        for (int c = 0; c < p.scratch_chunks; ++c)
            for (const StepRef reader : slices_[memory[scratch(c)]].pulled_by)
                ask(reader, {owner_, static_cast<std::uint32_t>(p.steps.size()) - 1}, scratch(c), true);
    }

    void write(Slice& slice, Operand o, std::uint32_t step, bool pushed) {
        const std::uint32_t first = programs_[owner_].steps[step].first;
        const StepRef begins = pushed ? alone(first)->sent : StepRef{owner_, step};
        for (const StepRef reader : slice.pulled_by) ask(reader, begins, o);
        if (pushed && slice.touched_by != Matching::none) ask({owner_, slice.touched_by}, begins, o);
        slice.pulled_by.clear();
        slice.touched_by = step;
    }

    void publish(Slice& slice, std::uint32_t step) {
        const Step& s = programs_[owner_].steps[step];
        for (std::uint32_t i = s.first + s.sources; i < s.first + s.sources + s.sinks; ++i)
            if (const Message* m = alone(i)) slice.pulled_by.push_back(m->received);
    }

    // The message of an operand if it has one part; nullptr otherwise, because it is then not passed by reference.
    const Message* alone(std::uint32_t operand) const {
        const std::uint32_t part = matching_.part_of[owner_][operand];
        if (part == Matching::none) return nullptr;
        const Message& m = matching_.messages[matching_.parts[part].message];
        return m.parts == 1 ? &m : nullptr;
    }

    void ask(StepRef before, StepRef last, Operand o, bool next_tile = false) {
        questions_.push_back({before, last, owner_, o, static_cast<std::uint8_t>(mode_), next_tile});
    }

    std::span<const Program> programs_;
    const Matching& matching_;
    std::size_t mode_ = 0;
    std::uint32_t owner_ = 0;
    std::vector<Slice> slices_;
    std::vector<Question> questions_;
};

std::string reason(std::span<const Program> programs, const Question& q) {
    const auto place = [&](StepRef t) { return place_of(programs[t.program], t.step); };
    const std::string writer =
        q.next_tile ? "in the next tile" : "by " + place(q.last) + (q.last.program == q.owner ? "" : " (pushing)");
    return text("%s%s of rank %d is written %s, perhaps before ", modes[q.mode].in_place ? "in place, " : "",
                text_of(q.slice, false).c_str(), programs[q.owner].rank, writer.c_str()) +
           place(q.before) + (q.before.program == q.owner ? " has used it" : " (pulling) has read it");
}

}  // namespace

Hazards find_hazards(std::span<const Program> programs, const Matching& matching, std::span<const StepRef> run) {
    std::vector<Question> questions = Collector(programs, matching).collect();
    // A question can be answered when the run has just executed its step `last`.
    const auto key = [](const Question& q) { return std::pair(q.last.program, q.last.step); };
    std::ranges::stable_sort(questions, {}, key);
    std::vector<std::size_t> next(programs.size());
    for (std::uint32_t p = 0; p < programs.size(); ++p)
        next[p] = std::ranges::lower_bound(questions, std::pair(p, 0u), {}, key) - questions.begin();

    std::array<std::string, modes.size()> unsafe;
    Clocks clocks(programs, matching);
    for (const StepRef turn : run) {
        clocks.advance(turn);
        for (std::size_t& i = next[turn.program]; i < questions.size() && questions[i].last == turn; ++i) {
            const Question& q = questions[i];
            if (unsafe[q.mode].empty() && !clocks.ordered(q.before, q.last)) unsafe[q.mode] = reason(programs, q);
        }
    }
    const auto first = [](const std::string& a, const std::string& b) { return a.empty() ? b : a; };
    Hazards h{first(unsafe[0], unsafe[1]), first(unsafe[2], unsafe[3])};
    if (h.pull.empty() && h.push.empty()) h.push = first(unsafe[4], unsafe[5]);
    return h;
}

}  // namespace tutti
