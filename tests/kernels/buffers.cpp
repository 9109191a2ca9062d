#include "buffers.hpp"

#include <cmath>
#include <cstring>

#include "kernels/convert.hpp"

namespace tutti::test {

Buffer::Buffer(DataType type, std::size_t count, std::size_t gap, Guarded::At at)
    : begin_(at == Guarded::At::front ? gap * size_of(type) : 0),
      size_(count * size_of(type)),
      memory_((count + gap) * size_of(type), at) {}

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
        *where = "element " + std::to_string(at / element) + ": " + std::to_string(left) + " instead of " +
                 std::to_string(right);
        return false;
    }
    return true;
}

}  // namespace tutti::test
