// Reads the files of a checkpoint.
#pragma once

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/os.hpp"
#include "dp/safetensors.hpp"

namespace tutti::dp {

/// A file whose header has been read. Throws tuttiInvalidUsage if something is wrong with it.
struct Source {
    std::string path;
    Fd fd;
    std::vector<Tensor> tensors;                          // by offset
    std::unordered_map<std::string, std::size_t> places;  // by name: the index in tensors

    explicit Source(const std::string& path);
    // Both throw tuttiInvalidUsage if there is no such tensor.
    const Tensor& named(const std::string& name) const;
    /// The tensor that has the name, type and count of `wanted`.
    const Tensor& find(const Tensor& wanted) const;
    /// Reads `bytes` bytes of a tensor, from byte `first` on. Returns their sum_of().
    std::uint64_t read(const Tensor& tensor, std::uint64_t first, std::byte* into, std::size_t bytes) const;
    /// Returns only their sum_of(). scratch: memory to read pieces into; small enough to stay in a cache.
    std::uint64_t sum(const Tensor& tensor, std::uint64_t first, std::size_t bytes, std::span<std::byte> scratch) const;
};
using Sources = std::map<std::string, Source>;  // by path

inline constexpr std::size_t summed_once = std::size_t{1} << 18;  // bytes to read and sum at once, held by a cache

}  // namespace tutti::dp
