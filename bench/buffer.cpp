#include "buffer.hpp"

#include <tutti/tutti.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "world.hpp"

namespace perf {

namespace {
constexpr std::size_t page = 4096;
}

Buffer::Buffer(std::size_t size, bool mapped) : size_(size), mapped_(mapped) {
    const std::size_t total = (2 * guard + size + page - 1) / page * page;
    if (mapped) {
        expect(tuttiMemAlloc(&base_, total), nullptr, -1);
    } else if ((base_ = std::aligned_alloc(page, total)) == nullptr) {
        fail(exit_internal, "no memory for a buffer of " + std::to_string(total) + " bytes");
    }
    std::memset(base_, static_cast<int>(poison), total);
    data_ = static_cast<std::byte*>(base_) + guard;
}

Buffer::Buffer(Buffer&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), data_(other.data_), size_(other.size_), mapped_(other.mapped_) {}

Buffer::~Buffer() {
    if (mapped_)
        tuttiMemFree(base_);
    else
        std::free(base_);
}

}  // namespace perf
