// Happens-before by vector clocks: C. Fidge: Timestamps in message-passing systems that preserve the partial ordering,
// 1988; F. Mattern: Virtual time and global states of distributed systems, 1989. Ranks and messages in flight share
// reference-counted clocks, so that long programs of many ranks do not need steps x ranks of memory.
#pragma once

#include <span>
#include <vector>

#include "schedule/match.hpp"

namespace tutti {

/// Replays a run step by step and tells which steps happened before the current ones. One thread.
class Clocks {
  public:
    Clocks(std::span<const Program> programs, const Matching& matching);

    /// Executes the next step of a run.
    void advance(StepRef turn);

    /// True if `before` had finished when `last` began. `last` must be the step that its rank has executed last. Also
    /// true if both are the same step.
    bool ordered(StepRef before, StepRef last) const;

  private:
    std::uint32_t fresh_copy(std::uint32_t clock);
    void release(std::uint32_t clock);

    std::span<const Program> programs_;
    const Matching& matching_;
    std::vector<std::vector<std::uint32_t>> clocks_;      // [clock][program]: how many of its steps came before
    std::vector<std::uint32_t> users_, free_;             // [clock]: references; clocks without references
    std::vector<std::uint32_t> of_program_, of_message_;  // [program], [message]: their clock
};

}  // namespace tutti
