#include "buffers.hpp"

#include <cmath>
#include <cstring>
#include <new>

#include "kernels/convert.hpp"

namespace tutti::test {
namespace {

constexpr std::size_t alignment = 64;
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t guard = 0;  // the sanitizer is one, against reading too
#else
constexpr std::size_t guard = 16;
#endif
constexpr unsigned char untouched = 0xa5;

}  // namespace

Buffer::Buffer(DataType type, std::size_t count, std::size_t offset)
    : begin_(alignment + offset * size_of(type)), size_(count * size_of(type)) {
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, begin_ + size_ + guard) != 0) throw std::bad_alloc();
    memory_.reset(static_cast<unsigned char*>(memory));
    std::memset(memory, untouched, begin_ + size_ + guard);
}

bool Buffer::guards_untouched() const {
    for (std::size_t i = 0; i < begin_ + size_ + guard; ++i)
        if ((i < begin_ || i >= begin_ + size_) && memory_.get()[i] != untouched) return false;
    return true;
}

void fill(Buffer& buffer, DataType type, std::mt19937_64& random) {
    auto* bytes = static_cast<unsigned char*>(buffer.data());
    const std::size_t element = size_of(type);
    for (std::size_t at = 0; at < buffer.size(); at += element) {
        const std::uint64_t word = random();
        std::memcpy(bytes + at, &word, element);
        if (is_float(type) && random() % 2 == 0) {
            const double value = std::ldexp(static_cast<double>(word >> 11), -53 + static_cast<int>(word % 8) - 4);
            store_from_double(type, word & 1 ? value : -value, bytes + at);
        }
    }
}

bool same(DataType type, const Buffer& a, const Buffer& b, std::string* where) {
    if (std::memcmp(a.data(), b.data(), a.size()) == 0) return true;
    const std::size_t element = size_of(type);
    for (std::size_t at = 0; at < a.size(); at += element) {
        const auto* x = static_cast<const unsigned char*>(a.data()) + at;
        const auto* y = static_cast<const unsigned char*>(b.data()) + at;
        if (std::memcmp(x, y, element) == 0) continue;
        const double left = load_as_double(type, x), right = load_as_double(type, y);
        if (is_float(type) && std::isnan(left) && std::isnan(right)) continue;
        *where = "element " + std::to_string(at / element) + ": " + std::to_string(left) + " instead of " + std::to_string(right);
        return false;
    }
    return true;
}

}  // namespace tutti::test
