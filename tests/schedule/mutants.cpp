#include "mutants.hpp"

#include "base/result.hpp"

namespace tutti {
namespace {

// A step with room to make mistakes in.
struct Loose {
    std::vector<Operand> sources, sinks;
    bool completes;
    int column;
};

std::vector<Loose> unpack(const Program& p) {
    std::vector<Loose> steps;
    for (const Step& s : p.steps)
        steps.push_back({{p.sources(s).begin(), p.sources(s).end()},
                         {p.sinks(s).begin(), p.sinks(s).end()},
                         s.completes == 1,
                         static_cast<int>(s.column)});
    return steps;
}

Program pack(Program p, const std::vector<Loose>& steps) {
    p.steps.clear();
    p.operands.clear();
    for (const Loose& s : steps) p.step(s.sources, s.sinks, s.completes, s.column);
    return p;
}

class Mutator {
  public:
    Mutator(const Programs& programs, const std::function<void(const std::string&, const Programs&)>& visit)
        : original_(programs), programs_(programs), visit_(visit) {}

    void all() {
        for (number_ = 0; number_ < original_.size(); ++number_)
            for (step_ = 0; step_ < original_[number_].steps.size(); ++step_) {
                whole_step();
                operands(&Loose::sources, "source");
                operands(&Loose::sinks, "sink");
            }
    }

  private:
    using Side = std::vector<Operand> Loose::*;

    template <class Change>
    void mutate(const std::string& what, Change change) {
        std::vector<Loose> steps = unpack(original_[number_]);
        change(steps);
        programs_[number_] = pack(original_[number_], steps);
        visit_(text("program %zu, step %zu: ", number_, step_) + what, programs_);
        programs_[number_] = original_[number_];
    }

    void whole_step() {
        const Program& p = original_[number_];
        mutate("dropped", [&](auto& steps) { steps.erase(steps.begin() + step_); });
        mutate("doubled", [&](auto& steps) { steps.insert(steps.begin() + step_, Loose(steps[step_])); });
        mutate("completes flipped", [&](auto& steps) { steps[step_].completes ^= true; });
        if (step_ + 1 < p.steps.size())
            mutate("swapped with the next", [&](auto& steps) { std::swap(steps[step_], steps[step_ + 1]); });
        if (p.columns > 1)
            mutate("column changed", [&](auto& steps) { steps[step_].column = (steps[step_].column + 1) % p.columns; });
    }

    void operands(Side side, const char* name) {
        const std::size_t count = (unpack(original_[number_])[step_].*side).size();
        for (std::size_t i = 0; i < count; ++i) {
            const std::string what = text("%s %zu ", name, i);
            mutate(what + "dropped",
                   [&](auto& steps) { (steps[step_].*side).erase((steps[step_].*side).begin() + i); });
            mutate(what + "doubled", [&](auto& steps) { (steps[step_].*side).push_back((steps[step_].*side)[i]); });
            if (i + 1 < count)
                mutate(what + "swapped with the next",
                       [&](auto& steps) { std::swap((steps[step_].*side)[i], (steps[step_].*side)[i + 1]); });
            for (const int by : {1, -1, original_[number_].columns})
                mutate(what + text("re-aimed by %d", by), [&](auto& steps) { (steps[step_].*side)[i].index += by; });
            for (const Place place : {Place::input, Place::output, Place::scratch})
                mutate(what + text("moved to place %d", static_cast<int>(place)), [&](auto& steps) {
                    (steps[step_].*side)[i] = {place, false, false, (steps[step_].*side)[i].index};
                });
            if ((unpack(original_[number_])[step_].*side)[i].place == Place::peer)
                mutate(what + "ends its message, or no more",
                       [&](auto& steps) { (steps[step_].*side)[i].more ^= true; });
        }
    }

    const Programs& original_;
    Programs programs_;
    const std::function<void(const std::string&, const Programs&)>& visit_;
    std::size_t number_ = 0, step_ = 0;
};

}  // namespace

void for_each_mutant(const Programs& programs, const std::function<void(const std::string&, const Programs&)>& visit) {
    Mutator(programs, visit).all();
}

}  // namespace tutti
