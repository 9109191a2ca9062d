// What went wrong, in words that say what to do about it.
#pragma once

#include <cstddef>
#include <string>

#include "transport/verbs/library.hpp"

namespace tutti::verbs {

/// What a failed completion means. device: "mlx5_0 port 1".
std::string explain(ibv_wc_status status, const std::string& device);

/// Why memory could not be registered, by errno.
std::string explain_registration(int error, std::size_t bytes, const std::string& device);

/// "down", "initializing", ...
const char* name_of(ibv_port_state state);

}  // namespace tutti::verbs
