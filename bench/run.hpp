// A whole run: options, ranks, header, rows, footer. It includes nothing, for it is compiled once per collective.
#pragma once

namespace perf {

/// collective: its name in the table. The program's exit code.
int run(const char* program, const char* collective, int argc, char** argv);

}  // namespace perf
