// What nvcc puts into objects for devices: a container with machine code and PTX, mostly compressed.
#pragma once

#include <string>

namespace tutti::on_hosts {

/// The PTX of the newest architecture in what __cudaRegisterFatBinary is given. Throws std::runtime_error where there
/// is none, or it can't be read.
std::string ptx_of(const void* wrapper);

}  // namespace tutti::on_hosts
