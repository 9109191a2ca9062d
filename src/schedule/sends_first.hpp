// Steps that keep a slice and send it become two: the first sends, the second keeps. So the message is on its way while
// the rank copies for itself, and each step is a plain copy. Algorithms and proofs do not know of this: proven programs
// are rewritten before they are bound. The order of messages and of stores stays the same.
#pragma once

#include "schedule/program.hpp"

namespace tutti {

/// Rewrites a rank's program. Programs that add are left as they are.
Program sends_first(const Program& program);

}  // namespace tutti
