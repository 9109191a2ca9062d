// Logs one line per event to stderr (or TUTTI_DEBUG_FILE): "host:pid:tid TUTTI LEVEL text". Any thread. Callers must
// not pass secrets.
#pragma once

namespace tutti {

enum class Level { none, warn, info, trace };

/// True if lines of this level are printed. Check it before computing the arguments of a line.
bool logs(Level level) noexcept;

void log(Level level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

}  // namespace tutti
