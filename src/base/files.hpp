// Files that are whole or not there.
#pragma once

#include <string>
#include <string_view>

namespace tutti {

/// Writes beside path, to the disk, and takes its place; several processes may do so at once. Throws tuttiSystemError
/// that names the file; then the old one is as it was.
void replace_file(const std::string& path, std::string_view content);

/// Without complaint if there is none.
void remove_file(const std::string& path);

bool file_exists(const std::string& path);

}  // namespace tutti
