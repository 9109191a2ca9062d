// The first part of verification: each program is well-formed, and the programs belong together. Programs that pass
// have no index out of range, so later parts need not check that.
#pragma once

#include <span>
#include <string>

#include "schedule/program.hpp"

namespace tutti {

/// The first defect; empty if there is none.
std::string ill_formed(std::span<const Program> programs);

}  // namespace tutti
