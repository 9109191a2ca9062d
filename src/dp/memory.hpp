// Memory of a place, and an account of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "dp/place.hpp"

namespace tutti::dp {

/// Zeroed at first. Throws tuttiSystemError, on GPUs tuttiUnhandledCudaError.
class Block {
  public:
    Block(PlacePtr place, std::size_t bytes);
    ~Block();
    Block(const Block&) = delete;
    std::byte* base() const { return base_; }
    std::size_t bytes() const { return bytes_; }

  private:
    PlacePtr place_;
    std::byte* base_ = nullptr;
    std::size_t bytes_;
};

/// Blocks that are borrowed for a while and kept for the next one who asks for as many bytes: peers keep their mappings
/// of them. Any thread. What was borrowed may outlive the pool.
class Pool {
  public:
    using Loan = std::shared_ptr<Block>;
    explicit Pool(PlacePtr place) : place_(std::move(place)) {}
    Loan take(std::size_t bytes);
    std::size_t most() const;  // bytes that were borrowed at once

  private:
    struct Shelf {
        std::mutex mutex;
        std::multimap<std::size_t, std::unique_ptr<Block>> free;
        std::size_t borrowed = 0, most = 0;
    };
    PlacePtr place_;
    std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

}  // namespace tutti::dp
