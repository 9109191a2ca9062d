// Ranks that call different things.
#pragma once

#include "tutti/tutti.h"

namespace sim {

/// A call that one rank makes in another way, and one that all make alike: a rank may get through the first, if it
/// needs nobody's data. Throws Failure, or Wrong if it got through both, or was told what is no disagreement.
void call_differently(int how, bool mine, tuttiComm_t comm);

}  // namespace sim
