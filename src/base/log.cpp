#include "base/log.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <string_view>

#include "base/config.hpp"

namespace tutti {
namespace {

/// The settings; nullptr if the environment has an invalid value. Logging must not throw, because many lines are
/// written where no exception can be caught. The first other caller of config() reports the error.
const Config* settings() {
    try {
        return &config();
    } catch (const std::exception&) {
        return nullptr;
    }
}

/// Does not allocate, and needs no destruction at exit.
std::array<char, 256> host_name() {
    std::array<char, 256> name{"?"};
    gethostname(name.data(), name.size() - 1);
    return name;
}

/// Allocates nothing: the first line may be that there is no memory.
int open_sink() {
    const char* const named = settings() == nullptr ? "" : settings()->debug_file.c_str();
    if (*named == '\0') return STDERR_FILENO;
    const auto host = host_name();
    char path[PATH_MAX], pid[16];
    std::snprintf(pid, sizeof pid, "%d", getpid());
    std::size_t used = 0;
    for (const char* c = named; *c != '\0' && used < sizeof path; ++c) {
        const bool stands_for_more = *c == '%' && c[1] != '\0';
        const char one[] = {*c, '\0'};
        if (stands_for_more) ++c;
        const char* const part = !stands_for_more ? one : *c == 'h' ? host.data() : *c == 'p' ? pid : "%";
        used += static_cast<std::size_t>(std::snprintf(path + used, sizeof path - used, "%s", part));
    }
    const int fd = used < sizeof path ? ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    return fd < 0 ? STDERR_FILENO : fd;
}

__attribute__((format(printf, 2, 0))) void write_line(Level level, const char* format, va_list arguments) {
    static const int sink = open_sink();
    static const auto host = host_name();
    char line[2048];
    const char* names[] = {"NONE", "WARN", "INFO", "TRACE"};
    int used = std::snprintf(line, sizeof line, "%s:%d:%ld TUTTI %s ", host.data(), getpid(), syscall(SYS_gettid),
                             names[static_cast<int>(level)]);
    used += std::vsnprintf(line + used, sizeof line - static_cast<size_t>(used) - 1, format, arguments);
    if (used > static_cast<int>(sizeof line) - 2) used = static_cast<int>(sizeof line) - 2;
    line[used++] = '\n';
    // One write per line, so that lines of several processes do not mix. A full disk must not stop a job.
    if (write(sink, line, static_cast<size_t>(used)) < 0) return;
}

__attribute__((format(printf, 1, 2))) void warn(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    write_line(Level::warn, format, arguments);
    va_end(arguments);
}

Level read_level() {
    const std::string_view name = settings() == nullptr ? "" : settings()->debug.c_str();
    if (name.empty() || name == "WARN") return Level::warn;
    if (name == "NONE") return Level::none;
    if (name == "INFO") return Level::info;
    if (name == "TRACE") return Level::trace;
    warn("environment variable TUTTI_DEBUG is '%s', taken for WARN; NONE, WARN, INFO or TRACE was expected",
         name.data());
    return Level::warn;
}

}  // namespace

bool logs(Level level) noexcept {
    static const Level limit = read_level();
    return level <= limit && level != Level::none;
}

void log(Level level, const char* format, ...) noexcept {
    if (!logs(level)) return;
    va_list arguments;
    va_start(arguments, format);
    write_line(level, format, arguments);
    va_end(arguments);
}

}  // namespace tutti
