// What the ranks find around them: variables.
#pragma once

#include <string>

#include "run/options.hpp"

namespace run {

/// Sets a variable of this process, which those it forks inherit.
void set(const char* name, const std::string& value);

/// Everything that all ranks share: how many they are, where they meet, the secret that lets them in, and --env's.
void set_common_variables(const Options& options);

}  // namespace run
