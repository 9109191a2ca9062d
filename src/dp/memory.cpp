#include "dp/memory.hpp"

#include <algorithm>

namespace tutti::dp {

Block::Block(BackendPtr backend, std::size_t bytes)
    : backend_(std::move(backend)), base_(backend_->allocate(bytes)), bytes_(bytes) {}

Block::~Block() {
    backend_->free(base_);
}

/// Removes free blocks, the smallest first, until at most `limit` bytes are held. The caller frees the returned blocks
/// after it has released the mutex.
Pool::Blocks Pool::Shelf::shrink(std::size_t limit) {
    Blocks dropped;
    while (held > limit && !free.empty()) {
        held -= free.begin()->first;
        dropped.insert(free.extract(free.begin()));
    }
    return dropped;
}

/// What a loan owns: its block, as a node of Blocks, so that returning it to the shelf allocates nothing.
struct Pool::Lent {
    explicit Lent(std::shared_ptr<Shelf> from) : shelf(std::move(from)) {}
    ~Lent() {
        if (!block) return;
        const std::lock_guard lock(shelf->mutex);
        shelf->borrowed -= block.key();
        shelf->free.insert(std::move(block));
    }
    Lent(const Lent&) = delete;
    const std::shared_ptr<Shelf> shelf;
    Blocks::node_type block;
};

Pool::Loan Pool::take(std::size_t bytes) {
    const auto lent = std::make_shared<Lent>(shelf_);
    Blocks::node_type& block = lent->block;
    Blocks dropped;
    {
        std::lock_guard lock(shelf_->mutex);
        if (const auto found = shelf_->free.lower_bound(bytes); found != shelf_->free.end())
            block = shelf_->free.extract(found);
        shelf_->borrowed += block ? block.key() : bytes;
        shelf_->most = std::max(shelf_->most, shelf_->borrowed);
        if (!block) {
            shelf_->held += bytes;
            if (backend_->frees_at_once()) dropped = shelf_->shrink(shelf_->most);
            shelf_->peak = std::max(shelf_->peak, shelf_->held);
        }
    }
    dropped.clear();  // before another block is allocated
    try {
        Blocks made;
        if (!block) block = made.extract(made.emplace(bytes, std::make_unique<Block>(backend_, bytes)));
    } catch (...) {
        std::lock_guard lock(shelf_->mutex);
        shelf_->borrowed -= bytes;
        shelf_->held -= bytes;
        throw;
    }
    return Loan(lent, block.mapped().get());
}

void Pool::trim() {
    Blocks dropped;
    std::lock_guard lock(shelf_->mutex);
    dropped = shelf_->shrink(shelf_->most);
}

std::size_t Pool::peak() const {
    std::lock_guard lock(shelf_->mutex);
    return shelf_->peak;
}

std::size_t Pool::most() const {
    std::lock_guard lock(shelf_->mutex);
    return shelf_->most;
}

}  // namespace tutti::dp
