// What a stretch of memory around a message should look like, byte for byte: poison, and patterns laid over it in
// order. One description paints the memory before a call; the next one, with the results laid over, checks all of it
// afterwards: the result, what must not have changed, and the zones around.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "pattern.hpp"

namespace perf {

struct Layer {
    std::size_t at;     // element of the image
    std::size_t count;  // elements
    const Pattern* pattern;
    std::size_t first;        // of the pattern
    std::uint64_t tolerance;  // in units of the last place
};

class Image {
  public:
    Image(tuttiDataType_t type, std::size_t elements) : type_(type), elements_(elements) {}
    void lay(const Layer& layer) { layers_.push_back(layer); }

    void paint(std::byte* memory) const;

    /// The number of elements that differ; `first` gets a sentence about the first one.
    std::size_t wrong(const std::byte* memory, std::string& first) const;

  private:
    void compose(std::size_t begin, std::size_t count, std::byte* to) const;
    bool tolerable(std::size_t element, std::uint64_t got, std::uint64_t expected) const;

    tuttiDataType_t type_;
    std::size_t elements_;
    std::vector<Layer> layers_;
};

}  // namespace perf
