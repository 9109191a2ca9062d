#include "base/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <memory>

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
    sync_file(fd, path);
}

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// Syncs a folder, so that the names in it are on the disk. Ignores errors. Does not allocate.
void sync_folder(const std::string& folder) noexcept {
    const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd) ::fsync(fd.get());
}

}  // namespace

void replace_file(const std::string& path, std::string_view content) {
    std::uint64_t chance;  // processes of other hosts and containers may have this one's number
    random_bytes(&chance, sizeof chance);
    const std::string beside = path + text(".new%016" PRIx64, chance), folder = folder_of(path);
    try {
        const Fd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (!fd) fail_errno("'%s' can't be opened for writing", beside.c_str());
        write_all(fd, content, beside);
        if (::rename(beside.c_str(), path.c_str()) != 0) fail_errno("'%s' can't be renamed", beside.c_str());
    } catch (...) {
        ::unlink(beside.c_str());
        throw;
    }
    sync_folder(folder);  // nothing throws after the rename: an error means that the old file is unchanged
}

void remove_file(const std::string& path) {
    ::unlink(path.c_str());
}

bool file_exists(const std::string& path) {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0;
}

void make_folder(const std::string& path) {
    const std::string folder = folder_of(path);
    if (::mkdir(path.c_str(), 0777) == 0) return sync_folder(folder);
    if (errno != EEXIST) fail_errno("the folder '%s' can't be made", path.c_str());
    struct stat info;
    if (::stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
        fail(tuttiSystemError, "'%s' is there, and is no folder", path.c_str());
}

std::vector<std::string> files_in(const std::string& path) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
    if (!folder) return names;
    while (const dirent* entry = ::readdir(folder.get())) names.emplace_back(entry->d_name);
    return names;
}

Fd make_file(const std::string& path, std::uint64_t bytes) {
    Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) fail_errno("'%s' can't be made", path.c_str());
    const auto size = static_cast<off_t>(bytes);
    if (size == 0 || ::fallocate(fd.get(), 0, 0, size) == 0) return fd;
    const bool cannot = errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
    if (!cannot || ::ftruncate(fd.get(), size) != 0) {
        const int why = errno;
        ::unlink(path.c_str());
        errno = why;
        fail_errno("'%s' can't have %" PRIu64 " bytes", path.c_str(), bytes);
    }
    return fd;
}

Fd open_file(const std::string& path, bool writes) {
    Fd fd(::open(path.c_str(), (writes ? O_WRONLY : O_RDONLY) | O_CLOEXEC));
    if (!fd) fail_errno("'%s' can't be opened", path.c_str());
    return fd;
}

std::uint64_t size_of_file(const Fd& file, const std::string& path) {
    struct stat info;
    if (::fstat(file.get(), &info) != 0) fail_errno("'%s' has no size", path.c_str());
    return static_cast<std::uint64_t>(info.st_size);
}

void write_at(const Fd& file, std::uint64_t at, const void* data, std::size_t bytes, const std::string& path) {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t n = ::pwrite(file.get(), from, bytes, static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail_errno("'%s' can't be written", path.c_str());
        const auto written = static_cast<std::size_t>(n);
        from += written, at += written, bytes -= written;
    }
}

void read_at(const Fd& file, std::uint64_t at, void* data, std::size_t bytes, const std::string& path) {
    auto* to = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t n = ::pread(file.get(), to, bytes, static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail_errno("'%s' can't be read", path.c_str());
        if (n == 0) fail(tuttiSystemError, "'%s' ends %zu bytes too early", path.c_str(), bytes);
        const auto read = static_cast<std::size_t>(n);
        to += read, at += read, bytes -= read;
    }
}

void begin_to_write(const Fd& file, std::uint64_t at, std::size_t bytes) {
    ::sync_file_range(file.get(), static_cast<off64_t>(at), static_cast<off64_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

void sync_file(const Fd& file, const std::string& path) {
    if (::fsync(file.get()) != 0 && errno != EINVAL && errno != EROFS)  // files without a disk need no sync
        fail_errno("'%s' can't be brought to the disk", path.c_str());
}

}  // namespace tutti
