// Loads the files of user algorithms (docs/programs.md) that a communicator was told to.
#pragma once

#include <memory>
#include <string>

#include "algorithms/user.hpp"

namespace tutti {

/// paths: separated by ':'. Throws Error that names the file and, where it is wrong, the line.
std::shared_ptr<const UserAlgorithms> load_programs(const std::string& paths, int ranks);

}  // namespace tutti
