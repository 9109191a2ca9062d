// Two levels for collectives with a row per rank. Only hierarchical() (compose.hpp) uses this.
#pragma once

#include "schedule/compose.hpp"

namespace tutti {

/// Makes all_gather and reduce_scatter, for which inside and across are asked for all_gather; and all_to_all, for which
/// neither is asked.
Program rows_on_rails(const Make& inside, const Make& across, const Request& request);

}  // namespace tutti
