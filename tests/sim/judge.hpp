// Judges the result of a job.
#pragma once

#include <string>

namespace sim {

/// Checks the board and the world. Returns the defect; empty if there is none.
std::string judge();

}  // namespace sim
