// Two levels for collectives in which each rank has rows of its own: what hierarchical() makes of these.
#pragma once

#include "schedule/compose.hpp"

namespace tutti {

/// all_gather, reduce_scatter: inside and across are asked for all_gather. all_to_all: neither is asked.
Program rows_on_rails(const Make& inside, const Make& across, const Request& request);

}  // namespace tutti
