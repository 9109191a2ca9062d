#include "dp/memory.hpp"

#include <algorithm>

namespace tutti::dp {

Block::Block(PlacePtr place, std::size_t bytes)
    : place_(std::move(place)), base_(place_->allocate(bytes)), bytes_(bytes) {}

Block::~Block() {
    place_->free(base_);
}

/// Free blocks, the smallest first, until at most so many bytes are held. Free them without the mutex.
std::vector<std::unique_ptr<Block>> Pool::Shelf::shrink(std::size_t limit) {
    std::vector<std::unique_ptr<Block>> dropped;
    while (held > limit && !free.empty()) {
        held -= free.begin()->first;
        dropped.push_back(std::move(free.begin()->second));
        free.erase(free.begin());
    }
    return dropped;
}

Pool::Loan Pool::take(std::size_t bytes) {
    std::unique_ptr<Block> block;
    std::vector<std::unique_ptr<Block>> dropped;
    {
        std::lock_guard lock(shelf_->mutex);
        if (const auto found = shelf_->free.lower_bound(bytes); found != shelf_->free.end()) {
            block = std::move(found->second);
            shelf_->free.erase(found);
        }
        shelf_->borrowed += block ? block->bytes() : bytes;
        shelf_->most = std::max(shelf_->most, shelf_->borrowed);
        if (!block) {
            shelf_->held += bytes;
            if (place_->frees_at_once()) dropped = shelf_->shrink(shelf_->most);
            shelf_->peak = std::max(shelf_->peak, shelf_->held);
        }
    }
    dropped.clear();  // before there is another block
    try {
        if (!block) block = std::make_unique<Block>(place_, bytes);
    } catch (...) {
        std::lock_guard lock(shelf_->mutex);
        shelf_->borrowed -= bytes;
        shelf_->held -= bytes;
        throw;
    }
    return Loan(block.release(), [shelf = shelf_](Block* back) {
        std::lock_guard lock(shelf->mutex);
        shelf->borrowed -= back->bytes();
        shelf->free.emplace(back->bytes(), back);
    });
}

void Pool::trim() {
    std::vector<std::unique_ptr<Block>> dropped;
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
