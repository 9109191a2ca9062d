// The format of safetensors files: 8 bytes with the length of the header, little-endian; the header, JSON; then the
// tensors, one after the other without gaps. Nothing that is read is believed.
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

inline constexpr std::uint64_t largest_header = 100'000'000;  // that readers of the format accept

/// What a file of these tensors begins with, which says where each lies; sets `at`. Those of the widest types come
/// first, so that all are aligned. Throws tuttiInvalidArgument: a name is not UTF-8.
std::string safetensors_head(std::vector<Tensor>& tensors);

/// The tensors of a file with this header, which begins at byte 8, and so many bytes altogether. path is for error
/// texts. Throws tuttiInvalidUsage.
std::vector<Tensor> safetensors_from(std::string_view header, std::uint64_t file_bytes, const std::string& path);

/// Of `bytes` bytes that begin `at` bytes behind the start of a tensor. Sums of parts add up to the sum of the whole,
/// whoever computes which. Against accidents: a change of one word always shows.
std::uint64_t sum_of(const std::byte* data, std::uint64_t at, std::size_t bytes);

}  // namespace tutti::dp
