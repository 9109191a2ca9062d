// The format of safetensors files: 8 bytes with the length of the header, little-endian; the header, as JSON; then the
// tensors, one after the other without gaps. Everything that is read is checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace tutti::dp {

struct Tensor {
    std::string name;
    DataType type = DataType::float32;
    std::vector<std::size_t> shape;
    std::size_t count = 0;
    std::uint64_t at = 0;  // bytes from the start of the file

    std::uint64_t bytes() const { return std::uint64_t{count} * size_of(type); }
};

inline constexpr std::uint64_t largest_header = 100'000'000;  // bytes; readers of the format accept no more

/// The length and header of a file with these tensors. Sets their `at`. Tensors of the widest types come first, so that
/// all are aligned. Throws tuttiInvalidArgument if a name is not UTF-8.
std::string safetensors_head(std::vector<Tensor>& tensors);

/// The tensors of a file, by offset. header: the JSON, from byte 8 on; file_bytes: the file's length; path: for error
/// texts. Throws tuttiInvalidUsage.
std::vector<Tensor> safetensors_from(std::string_view header, std::uint64_t file_bytes, const std::string& path);

/// The checksum of `bytes` bytes of a tensor, from byte `at` on. The sums of a tensor's parts, on whatever ranks, add
/// up to the sum of the whole. Detects accidents, not malice: a change of one word is always detected.
std::uint64_t sum_of(const std::byte* data, std::uint64_t at, std::size_t bytes);

}  // namespace tutti::dp
