#include "dp/memory.hpp"

#include <algorithm>

namespace tutti::dp {

Block::Block(PlacePtr place, std::size_t bytes)
    : place_(std::move(place)), base_(place_->allocate(bytes)), bytes_(bytes) {}

Block::~Block() {
    place_->free(base_);
}

Pool::Loan Pool::take(std::size_t bytes) {
    std::unique_ptr<Block> block;
    {
        std::lock_guard lock(shelf_->mutex);
        if (const auto found = shelf_->free.find(bytes); found != shelf_->free.end()) {
            block = std::move(found->second);
            shelf_->free.erase(found);
        }
        shelf_->borrowed += bytes;
        shelf_->most = std::max(shelf_->most, shelf_->borrowed);
    }
    if (!block) block = std::make_unique<Block>(place_, bytes);
    return Loan(block.release(), [shelf = shelf_](Block* back) {
        std::lock_guard lock(shelf->mutex);
        shelf->borrowed -= back->bytes();
        shelf->free.emplace(back->bytes(), back);
    });
}

std::size_t Pool::most() const {
    std::lock_guard lock(shelf_->mutex);
    return shelf_->most;
}

}  // namespace tutti::dp
