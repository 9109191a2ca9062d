// Whether all was right.
#pragma once

#include <string>

namespace sim {

/// Looks at the board and the world: empty, or what was wrong.
std::string judge();

}  // namespace sim
