// A whole run: ranks, header, rows, footer.
#pragma once

#include "collectives.hpp"
#include "options.hpp"

namespace perf {

/// The program's exit code.
int run(const char* program, const Collective& collective, Options options);

}  // namespace perf
