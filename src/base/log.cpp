#include "base/log.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <string>

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

int open_sink() {
    std::string path = settings() == nullptr ? "" : settings()->debug_file;
    if (path.empty()) return STDERR_FILENO;
    for (size_t at = 0; (at = path.find('%', at)) != std::string::npos && at + 1 < path.size();) {
        std::string value = path[at + 1] == 'h'   ? host_name().data()
                            : path[at + 1] == 'p' ? std::to_string(getpid())
                                                  : "%";
        path.replace(at, 2, value);
        at += value.size();
    }
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
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
    const std::string name = settings() == nullptr ? "" : settings()->debug;
    if (name.empty() || name == "WARN") return Level::warn;
    if (name == "NONE") return Level::none;
    if (name == "INFO") return Level::info;
    if (name == "TRACE") return Level::trace;
    warn("environment variable TUTTI_DEBUG is '%s', taken for WARN; NONE, WARN, INFO or TRACE was expected",
         name.c_str());
    return Level::warn;
}

}  // namespace

bool logs(Level level) {
    static const Level limit = read_level();
    return level <= limit && level != Level::none;
}

void log(Level level, const char* format, ...) {
    if (!logs(level)) return;
    va_list arguments;
    va_start(arguments, format);
    write_line(level, format, arguments);
    va_end(arguments);
}

}  // namespace tutti
