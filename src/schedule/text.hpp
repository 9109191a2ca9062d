// Programs as text for people. `tutti-plan show` prints it, and the verifier's errors quote it.
#pragma once

#include <string>
#include <string_view>

#include "schedule/program.hpp"

namespace tutti {

/// "recv 0", "send 2", "in[3]", "out[0]", "tmp[1]"; "send 2.." for a part that is not the last one.
std::string text_of(Operand operand, bool source);

/// "{recv 0, in[2]} -> {out[2], send 2}  completes". Sides with more than `most` operands are shortened (0: no
/// limit).
std::string text_of(const Program& program, const Step& step, std::size_t most = 0);

/// A header, then a line per step.
std::string text_of(const Program& program);

/// "rank 1, step 3 `{recv 0} -> {out[2]}`", as errors name it.
std::string place_of(const Program& program, std::size_t step);

/// The place that an error text names: the first step as written by place_of(), or else the first rank.
struct Named {
    Rank rank = -1;  // -1 if none
    int step = -1;   // -1 if none
};
Named named_in(std::string_view error);

}  // namespace tutti
