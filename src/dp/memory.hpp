// Memory of a backend, and an account of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "dp/backend.hpp"

namespace tutti::dp {

/// Zeroed at first. Throws tuttiSystemError, on GPUs tuttiUnhandledCudaError.
class Block {
  public:
    Block(BackendPtr backend, std::size_t bytes);
    ~Block();
    Block(const Block&) = delete;
    std::byte* base() const { return base_; }
    std::size_t bytes() const { return bytes_; }

  private:
    BackendPtr backend_;
    std::byte* base_ = nullptr;
    std::size_t bytes_;
};

/// Blocks that are borrowed for a while and kept for the next borrower, because peers keep their mappings of them. A
/// borrower gets the smallest free block that is large enough. The pool holds at most as many bytes as were borrowed at
/// once: a new block takes the place of free ones that are too small. Where freed memory goes only in a sweep
/// (Backend::frees_at_once), that is so after trim(). Any thread. What was borrowed may outlive the pool.
class Pool {
  public:
    using Loan = std::shared_ptr<Block>;
    explicit Pool(BackendPtr backend) : backend_(std::move(backend)) {}
    Loan take(std::size_t bytes);
    void trim();               // frees free blocks, the smallest first, until no more than that is held
    std::size_t most() const;  // bytes that were borrowed at once
    std::size_t peak() const;  // bytes that were held at once

  private:
    using Blocks = std::multimap<std::size_t, std::unique_ptr<Block>>;  // by their sizes
    struct Lent;
    struct Shelf {
        std::mutex mutex;
        Blocks free;
        std::size_t borrowed = 0, most = 0;  // bytes of blocks
        std::size_t held = 0, peak = 0;      // borrowed and free

        Blocks shrink(std::size_t limit);  // under the mutex
    };
    BackendPtr backend_;
    std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

}  // namespace tutti::dp
