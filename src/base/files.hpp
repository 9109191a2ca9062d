// Files that are whole or not there, and files that several processes write parts of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/os.hpp"

namespace tutti {

/// Writes beside path, to the disk, and takes its place; several processes may do so at once. Throws tuttiSystemError
/// that names the file; then the old one is as it was.
void replace_file(const std::string& path, std::string_view content);

/// Without complaint if there is none.
void remove_file(const std::string& path);

bool file_exists(const std::string& path);

// Those below throw tuttiSystemError that names the file.

/// Without complaint if there is one. Throws also if it is no folder.
void make_folder(const std::string& path);
/// The names of what is in a folder, in any order; none if there is no folder.
std::vector<std::string> files_in(const std::string& path);

/// A new file with room on the disk for so many bytes, where the file system can promise that.
Fd make_file(const std::string& path, std::uint64_t bytes);
Fd open_file(const std::string& path, bool writes);
std::uint64_t size_of_file(const Fd& file, const std::string& path);
void write_at(const Fd& file, std::uint64_t at, const void* data, std::size_t bytes, const std::string& path);
/// Throws also if the file ends before.
void read_at(const Fd& file, std::uint64_t at, void* data, std::size_t bytes, const std::string& path);
/// A hint for the kernel: what was written there goes to the disk now, beside the caller.
void begin_to_write(const Fd& file, std::uint64_t at, std::size_t bytes);
/// What was written is on the disk.
void sync_file(const Fd& file, const std::string& path);

}  // namespace tutti
