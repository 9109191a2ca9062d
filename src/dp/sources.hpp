// The files of a checkpoint that is loaded.
#pragma once

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/os.hpp"
#include "dp/safetensors.hpp"

namespace tutti::dp {

/// A file whose head has been read. What is wrong with it is thrown as tuttiInvalidUsage.
struct Source {
    std::string path;
    Fd fd;
    std::vector<Tensor> tensors;                          // by place
    std::unordered_map<std::string, std::size_t> places;  // of tensors, by name

    explicit Source(const std::string& path);
    // Throw tuttiInvalidUsage: there is none.
    const Tensor& named(const std::string& name) const;
    /// The tensor of that name, which has that type and count.
    const Tensor& find(const Tensor& wanted) const;
    /// Reads `bytes` bytes that begin `first` bytes behind the start of a tensor. Returns their sum_of().
    std::uint64_t read(const Tensor& tensor, std::uint64_t first, std::byte* into, std::size_t bytes) const;
    /// Their sum_of() alone. scratch: memory that stays in a cache, which gets them piece by piece.
    std::uint64_t sum(const Tensor& tensor, std::uint64_t first, std::size_t bytes, std::span<std::byte> scratch) const;
};
using Sources = std::map<std::string, Source>;  // by path

inline constexpr std::size_t summed_once = std::size_t{1} << 18;  // bytes, which a cache holds

}  // namespace tutti::dp
