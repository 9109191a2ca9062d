#include "image.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "buffer.hpp"

namespace perf {

namespace {
constexpr std::size_t step = 4096;  // elements that are composed and compared at a time: stays in the first-level cache
}

/// Elements begin .. begin + count of the image.
void Image::compose(std::size_t begin, std::size_t count, std::byte* to) const {
    const std::size_t size = size_of(type_);
    std::memset(to, static_cast<int>(Buffer::poison), count * size);
    for (const Layer& layer : layers_) {
        const std::size_t from = std::max(begin, layer.at), until = std::min(begin + count, layer.at + layer.count);
        if (from < until) layer.pattern->write(to + (from - begin) * size, layer.first + from - layer.at, until - from);
    }
}

void Image::paint(std::byte* memory) const {
    for (std::size_t begin = 0; begin < elements_; begin += step)
        compose(begin, std::min(step, elements_ - begin), memory + begin * size_of(type_));
}

bool Image::tolerable(std::size_t element, std::uint64_t got, std::uint64_t expected) const {
    if (!is_float(type_)) return false;
    std::uint64_t tolerance = 0;
    for (const Layer& layer : layers_)
        if (element >= layer.at && element - layer.at < layer.count) tolerance = layer.tolerance;
    return tolerance > 0 && distance(type_, got, expected) <= tolerance;
}

std::size_t Image::wrong(const std::byte* memory, std::string& first) const {
    const std::size_t size = size_of(type_);
    std::vector<std::byte> expected(step * size);
    std::size_t wrong = 0;
    for (std::size_t begin = 0; begin < elements_; begin += step) {
        const std::size_t count = std::min(step, elements_ - begin);
        compose(begin, count, expected.data());
        if (std::memcmp(memory + begin * size, expected.data(), count * size) == 0) continue;
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint64_t got = load(memory + (begin + i) * size, size), want = load(&expected[i * size], size);
            if (got == want || tolerable(begin + i, got, want)) continue;
            if (wrong++ > 0 || !first.empty()) continue;
            char text[160];
            const auto place = static_cast<long long>(begin + i) - static_cast<long long>(Buffer::guard / size);
            std::snprintf(text, sizeof text, "element %lld is %.9g (0x%llx), expected %.9g (0x%llx)", place,
                          decode(type_, got), static_cast<unsigned long long>(got), decode(type_, want),
                          static_cast<unsigned long long>(want));
            first = text;
        }
    }
    return wrong;
}

}  // namespace perf
