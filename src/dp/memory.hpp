// Memory of a backend: blocks, and a pool of them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "dp/backend.hpp"

namespace tutti::dp {

/// A block of memory that it owns, zeroed when it is made.
class Block {
  public:
    /// Throws tuttiSystemError, or tuttiUnhandledCudaError on GPUs, if there is no memory.
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

/// Lends blocks, and keeps returned blocks for the next borrower, because peers keep their mappings of them. A borrower
/// gets the smallest free block that is large enough. The pool never holds more bytes than the most that were borrowed
/// at once: before it makes a block, it frees smaller ones. If the backend frees only in a sweep (Backend::
/// frees_at_once), this limit holds after trim(). Any thread. A loan may outlive the pool.
class Pool {
  public:
    using Loan = std::shared_ptr<Block>;
    explicit Pool(BackendPtr backend) : backend_(std::move(backend)) {}
    Loan take(std::size_t bytes);
    void trim();               // frees free blocks, the smallest first, until at most most() bytes are held
    std::size_t most() const;  // the most bytes that were borrowed at once
    std::size_t peak() const;  // the most bytes that were held at once

  private:
    using Blocks = std::multimap<std::size_t, std::unique_ptr<Block>>;  // by size in bytes
    struct Lent;
    /// What the pool and its loans share. Guarded by mutex.
    struct Shelf {
        std::mutex mutex;
        Blocks free;
        std::size_t borrowed = 0, most = 0;  // bytes lent now; the most so far
        std::size_t held = 0, peak = 0;      // bytes lent or free; the most so far

        Blocks shrink(std::size_t limit);  // hold mutex
    };
    BackendPtr backend_;
    std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

}  // namespace tutti::dp
