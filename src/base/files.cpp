#include "base/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/os.hpp"
#include "base/result.hpp"

namespace tutti {
namespace {

void write_all(const Fd& fd, std::string_view content, const std::string& path) {
    while (!content.empty()) {
        const ssize_t n = ::write(fd.get(), content.data(), content.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail_errno("'%s' can't be written", path.c_str());
        content.remove_prefix(static_cast<std::size_t>(n));
    }
    if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != EROFS)  // what has no disk needs none
        fail_errno("'%s' can't be brought to the disk", path.c_str());
}

/// A name is on the disk when its folder is.
void sync_folder(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd) ::fsync(fd.get());
}

}  // namespace

void replace_file(const std::string& path, std::string_view content) {
    const std::string beside = path + text(".new%d", getpid());
    try {
        const Fd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        if (!fd) fail_errno("'%s' can't be opened for writing", beside.c_str());
        write_all(fd, content, beside);
        if (::rename(beside.c_str(), path.c_str()) != 0) fail_errno("'%s' can't be renamed", beside.c_str());
    } catch (...) {
        ::unlink(beside.c_str());
        throw;
    }
    sync_folder(path);
}

void remove_file(const std::string& path) {
    ::unlink(path.c_str());
}

bool file_exists(const std::string& path) {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0;
}

}  // namespace tutti
