#include "buffer.hpp"

#include <tutti/tutti.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "cuda.hpp"
#include "world.hpp"

namespace perf {

namespace {
constexpr std::size_t page = 4096;
}

Buffer::Buffer(std::size_t size, bool mapped, int device) : size_(size), mapped_(mapped), device_(device) {
    const std::size_t total = (2 * guard + size + page - 1) / page * page;
    if (device >= 0) {
        base_ = cuda::allocate(device, total);
        cuda::fill(device, static_cast<std::byte*>(base_), poison, total);
        data_ = static_cast<std::byte*>(base_) + guard;
        return;
    }
    if (mapped) {
        expect(tuttiMemAlloc(&base_, total), nullptr, -1);
    } else if ((base_ = std::aligned_alloc(page, total)) == nullptr) {
        fail(exit_internal, "no memory for a buffer of " + std::to_string(total) + " bytes");
    }
    std::memset(base_, static_cast<int>(poison), total);
    data_ = static_cast<std::byte*>(base_) + guard;
}

Buffer::Buffer(Buffer&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      data_(other.data_),
      size_(other.size_),
      mapped_(other.mapped_),
      device_(other.device_) {}

Buffer::~Buffer() {
    if (device_ >= 0 && base_ != nullptr)
        cuda::release(device_, static_cast<std::byte*>(base_));
    else if (mapped_)
        tuttiMemFree(base_);
    else
        std::free(base_);
}

HostView::HostView(const Buffer& buffer, std::byte* from, std::size_t bytes)
    : there_(from), device_(buffer.device()), copy_(device_ < 0 ? 0 : bytes) {}

void HostView::push() {
    if (device_ >= 0) cuda::upload(device_, there_, copy_.data(), copy_.size());
}

void HostView::pull() {
    if (device_ >= 0) cuda::download(device_, copy_.data(), there_, copy_.size());
}

}  // namespace perf
