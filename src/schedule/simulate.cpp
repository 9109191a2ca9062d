#include "schedule/simulate.hpp"

#include <algorithm>
#include <deque>

#include "base/result.hpp"
#include "schedule/text.hpp"

namespace tutti {
namespace {

class Simulation {
  public:
    Simulation(std::span<const Program> programs, const Matching& matching, std::uint32_t depth)
        : programs_(programs),
          matching_(matching),
          depth_(depth ? depth : UINT32_MAX),
          ranks_(programs.size()),
          links_(matching.connections.size()) {}

    Run run() {
        for (std::uint32_t p = 0; p < programs_.size(); ++p) wake(p);
        while (!runnable_.empty()) {
            const std::uint32_t p = runnable_.front();
            runnable_.pop_front();
            ranks_[p].queued = false;
            advance(p);
        }
        return {std::move(order_), blocked()};
    }

  private:
    struct State {
        std::uint32_t step = 0;
        std::uint32_t waits_for = Matching::none;  // the message that it can't receive or send yet
        bool queued = false;
    };
    struct Slots {
        std::uint32_t filled = 0;    // messages that have arrived and were not taken
        std::uint32_t occupied = 0;  // these, and slots that an unfinished step has taken or will fill
    };

    void wake(std::uint32_t p) {
        if (!ranks_[p].queued) runnable_.push_back(p);
        ranks_[p].queued = true;
    }

    void advance(std::uint32_t p) {
        State& state = ranks_[p];
        for (; state.step < programs_[p].steps.size(); ++state.step) {
            state.waits_for = acquire(p, programs_[p].steps[state.step]);
            if (state.waits_for != Matching::none) return;
            order_.push_back({p, state.step});
            finish(p, programs_[p].steps[state.step]);
        }
    }

    // The message that the operand begins to receive or send; none if the operand is a later part.
    std::uint32_t begins(std::uint32_t p, std::uint32_t operand) const {
        const std::uint32_t part = matching_.part_of[p][operand];
        return part == Matching::none || !matching_.parts[part].first ? Matching::none : matching_.parts[part].message;
    }
    // The message that the operand releases or publishes.
    std::uint32_t ends(std::uint32_t p, std::uint32_t operand) const {
        const std::uint32_t part = matching_.part_of[p][operand];
        return part == Matching::none || !matching_.parts[part].last ? Matching::none : matching_.parts[part].message;
    }

    // Takes all messages and slots that the step needs and returns none; or takes nothing and returns the first message
    // that is missing or has no slot.
    std::uint32_t acquire(std::uint32_t p, const Step& s) {
        const std::uint32_t end = s.first + s.sources + s.sinks;
        std::uint32_t i = s.first;
        for (; i < end; ++i) {
            const std::uint32_t m = begins(p, i);
            if (m == Matching::none) continue;
            Slots& slots = links_[matching_.messages[m].connection];
            if (i < s.first + s.sources ? slots.filled == 0 : slots.occupied == depth_) break;
            i < s.first + s.sources ? --slots.filled : ++slots.occupied;
        }
        if (i == end) return Matching::none;
        const std::uint32_t missing = begins(p, i);
        while (i-- > s.first) {
            const std::uint32_t m = begins(p, i);
            if (m == Matching::none) continue;
            Slots& slots = links_[matching_.messages[m].connection];
            i < s.first + s.sources ? ++slots.filled : --slots.occupied;
        }
        return missing;
    }

    void finish(std::uint32_t p, const Step& s) {
        for (std::uint32_t i = s.first; i < s.first + s.sources + s.sinks; ++i) {
            const std::uint32_t m = ends(p, i);
            if (m == Matching::none) continue;
            const std::uint32_t c = matching_.messages[m].connection;
            const bool received = i < s.first + s.sources;
            received ? --links_[c].occupied : ++links_[c].filled;
            const std::uint32_t peer = received ? matching_.connections[c].from : matching_.connections[c].to;
            const std::uint32_t its = ranks_[peer].waits_for;
            if (its != Matching::none && matching_.messages[its].connection == c) wake(peer);
        }
    }

    std::string blocked() const {
        constexpr int most = 4;
        std::string text;
        int count = 0;
        for (std::uint32_t p = 0; p < programs_.size(); ++p) {
            const State& state = ranks_[p];
            if (state.step == programs_[p].steps.size() || ++count > most) continue;
            const std::uint32_t m = state.waits_for;
            const bool receives = matching_.messages[m].received == StepRef{p, state.step};
            const StepRef other = receives ? matching_.messages[m].sent : matching_.messages[m - depth_].released;
            text += (count > 1 ? "; " : "") + place_of(programs_[p], state.step) +
                    (receives ? " waits for a message that is sent in " : " waits for a slot that is freed after ") +
                    place_of(programs_[other.program], other.step);
        }
        if (count > most) text += tutti::text("; and %d more ranks", count - most);
        return text;
    }

    std::span<const Program> programs_;
    const Matching& matching_;
    const std::uint32_t depth_;
    std::vector<State> ranks_;
    std::vector<Slots> links_;
    std::deque<std::uint32_t> runnable_;
    std::vector<StepRef> order_;
};

}  // namespace

Run simulate(std::span<const Program> programs, const Matching& matching, std::uint32_t depth) {
    return Simulation(programs, matching, depth).run();
}

int least_depth(std::span<const Program> programs, const Matching& matching) {
    std::uint32_t enough = 0;
    for (const PairOfRanks& c : matching.connections) enough = std::max(enough, c.messages);
    std::uint32_t too_few = 0;  // with 0 slots nothing can be sent
    // Double the depth while the programs block, since most need one or two slots; then bisect.
    for (std::uint32_t depth = 1; depth < enough; depth *= 2) {
        if (!simulate(programs, matching, depth).blocked.empty()) {
            too_few = depth;
            continue;
        }
        enough = depth;
    }
    while (enough > too_few + 1) {
        const std::uint32_t depth = too_few + (enough - too_few) / 2;
        (simulate(programs, matching, depth).blocked.empty() ? enough : too_few) = depth;
    }
    return static_cast<int>(enough);
}

int longest_chain(std::span<const Program> programs, const Matching& matching, std::span<const StepRef> order) {
    std::vector<int> at_program(programs.size()), at_message(matching.messages.size());
    int longest = 0;
    for (const StepRef turn : order) {
        const Step& s = programs[turn.program].steps[turn.step];
        int& length = at_program[turn.program];
        for (std::uint32_t i = s.first; i < s.first + s.sources + s.sinks; ++i) {
            const std::uint32_t part = matching.part_of[turn.program][i];
            if (part == Matching::none) continue;
            int& message = at_message[matching.parts[part].message];
            if (i < s.first + s.sources)
                length = std::max(length, message);
            else
                longest = std::max(longest, message = length + 1);
        }
    }
    return longest;
}

}  // namespace tutti
