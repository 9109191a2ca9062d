// Files that are replaced atomically, and files of which several processes write parts. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/os.hpp"

namespace tutti {

/// Replaces the file atomically: writes a new file beside it, syncs and renames it. Several threads, of any processes
/// and hosts, may do so at once. Throws tuttiSystemError that names the file; the old file is then unchanged.
void replace_file(const std::string& path, std::string_view content);

/// Does nothing if there is no such file, and ignores errors.
void remove_file(const std::string& path);

bool file_exists(const std::string& path);

// The functions below throw tuttiSystemError that names the file.

/// Does nothing if the folder exists. Also throws if path is something else than a folder.
void make_folder(const std::string& path);
/// The names of all entries of a folder, "." and ".." included, in any order; empty if it can't be opened. Does not
/// throw tuttiSystemError.
std::vector<std::string> files_in(const std::string& path);

/// Creates a file of this size. Allocates the disk space if the file system supports that. Throws also if the file
/// exists.
Fd make_file(const std::string& path, std::uint64_t bytes);
Fd open_file(const std::string& path, bool writes);
std::uint64_t size_of_file(const Fd& file, const std::string& path);
void write_at(const Fd& file, std::uint64_t at, const void* data, std::size_t bytes, const std::string& path);
/// Also throws if the file ends before at + bytes.
void read_at(const Fd& file, std::uint64_t at, void* data, std::size_t bytes, const std::string& path);
/// Starts writing this range back to the disk and returns at once. Only a hint: errors are ignored.
void begin_to_write(const Fd& file, std::uint64_t at, std::size_t bytes);
/// Returns when all that was written is on the disk. Does nothing for files that have no disk.
void sync_file(const Fd& file, const std::string& path);

}  // namespace tutti
