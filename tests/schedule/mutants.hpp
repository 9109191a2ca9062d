// Systematic small mistakes in the programs of all ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "schedule/program.hpp"

namespace tutti {

using Programs = std::vector<Program>;

/// Calls visit(what was changed, the programs with one mistake) for every mutant.
void for_each_mutant(const Programs& programs, const std::function<void(const std::string&, const Programs&)>& visit);

}  // namespace tutti
