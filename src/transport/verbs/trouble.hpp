// Error texts that say what went wrong and what to do about it.
#pragma once

#include <cstddef>
#include <string>

#include "transport/verbs/library.hpp"

namespace tutti::verbs {

/// What a failed completion means. device: the port's name, as "mlx5_0 port 1".
std::string explain(ibv_wc_status status, const std::string& device);

/// Why `bytes` bytes could not be registered. error: an errno. device: the adapter's name.
std::string explain_registration(int error, std::size_t bytes, const std::string& device);

/// The state in words: "down", "armed", ...
const char* name_of(ibv_port_state state);

}  // namespace tutti::verbs
