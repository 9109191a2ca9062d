// Calls in which ranks disagree.
#pragma once

#include "tutti/tutti.h"

namespace sim {

/// Makes a call that one rank (mine: this one) makes differently, and then one that all ranks make alike. The first may
/// succeed on a rank that needs no data of others. Throws Failure if the library reports the disagreement, and Wrong if
/// both calls succeed or the error is another one.
void call_differently(int how, bool mine, tuttiComm_t comm);

}  // namespace sim
