// The first part of verification: does each program make sense by itself, and do they belong together? Whatever passes
// has no index out of range, so that nothing after this has to look again.
#pragma once

#include <span>
#include <string>

#include "schedule/program.hpp"

namespace tutti {

/// Empty if all is well, else the first thing that is wrong.
std::string ill_formed(std::span<const Program> programs);

}  // namespace tutti
