// One line per event to stderr (or TUTTI_DEBUG_FILE): "host:pid:tid [rank] TUTTI LEVEL text". Never prints a secret.
#pragma once

namespace tutti {

enum class Level { none, warn, info, trace };

/// True when lines of this level are printed: ask before computing anything for a line.
bool logs(Level level);

void log(Level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace tutti
