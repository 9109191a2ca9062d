#include "schedule/clocks.hpp"

#include <algorithm>

namespace tutti {

Clocks::Clocks(std::span<const Program> programs, const Matching& matching)
    : programs_(programs),
      matching_(matching),
      clocks_(1, std::vector<std::uint32_t>(programs.size())),
      users_(1, static_cast<std::uint32_t>(programs.size())),
      of_program_(programs.size(), 0),
      of_message_(matching.messages.size()) {}

void Clocks::advance(StepRef turn) {
    const Step& s = programs_[turn.program].steps[turn.step];
    bool own = false;
    for (std::uint32_t i = s.first; i < s.first + s.sources; ++i) {
        const std::uint32_t part = matching_.part_of[turn.program][i];
        if (part == Matching::none || !matching_.parts[part].first) continue;
        const std::uint32_t m = matching_.parts[part].message;
        std::uint32_t& mine = of_program_[turn.program];
        if (!own) mine = fresh_copy(mine);
        own = true;
        std::vector<std::uint32_t>& clock = clocks_[mine];
        const std::vector<std::uint32_t>& senders = clocks_[of_message_[m]];
        for (std::size_t p = 0; p < clock.size(); ++p) clock[p] = std::max(clock[p], senders[p]);
        // A clock does not count its own rank's steps, so the sender's count comes from the message.
        const StepRef sent = matching_.messages[m].sent;
        clock[sent.program] = std::max(clock[sent.program], sent.step + 1);
        release(of_message_[m]);
    }
    for (std::uint32_t i = s.first + s.sources; i < s.first + s.sources + s.sinks; ++i) {
        const std::uint32_t part = matching_.part_of[turn.program][i];
        if (part == Matching::none || !matching_.parts[part].last) continue;
        const std::uint32_t m = matching_.parts[part].message;
        of_message_[m] = of_program_[turn.program];
        ++users_[of_message_[m]];
    }
}

bool Clocks::ordered(StepRef before, StepRef last) const {
    if (before.program == last.program) return before.step <= last.step;
    return clocks_[of_program_[last.program]][before.program] > before.step;
}

std::uint32_t Clocks::fresh_copy(std::uint32_t clock) {
    if (users_[clock] == 1) return clock;
    --users_[clock];
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(clocks_.size()));
        clocks_.emplace_back();
        users_.push_back(0);
    }
    const std::uint32_t fresh = free_.back();
    free_.pop_back();
    clocks_[fresh] = clocks_[clock];
    users_[fresh] = 1;
    return fresh;
}

void Clocks::release(std::uint32_t clock) {
    if (--users_[clock] == 0) free_.push_back(clock);
}

}  // namespace tutti
