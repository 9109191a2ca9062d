// The files of a checkpoint that is loaded.
#pragma once

#include <map>
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
};
using Sources = std::map<std::string, Source>;  // by path

/// Parts of files that are read one after the other. The disk is asked for them some way ahead, across parts and files,
/// so that it does not wait for what is done here with those that have come.
class Reading {
  public:
    /// Bytes [first, first + bytes) of a tensor. source, into and sum outlive this.
    void add(const Source& source, const Tensor& wanted, std::uint64_t first, std::byte* into, std::size_t bytes,
             std::uint64_t& sum);
    /// Reads them, and adds to their tensors' sums (sum_of()).
    void run();

  private:
    struct Part {
        const Source* source;
        std::uint64_t at, first;  // bytes from the start of the file, and of the tensor
        std::byte* into;
        std::size_t bytes;
        std::uint64_t* sum;
    };
    void ask();

    std::vector<Part> parts_;
    // The disk was asked for all parts before this one, and for so much of it.
    std::size_t next_ = 0, asked_of_next_ = 0;
    std::uint64_t asked_ = 0, read_ = 0;  // bytes
};

}  // namespace tutti::dp
