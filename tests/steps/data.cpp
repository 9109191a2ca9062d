#include "data.hpp"

#include <time.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "base/types.hpp"

namespace tutti::steps {
namespace {

constexpr std::size_t period = 251;
constexpr unsigned char sign = 0xa5;

bool all_signs(const unsigned char* from, const unsigned char* to) {
    return from >= to || (*from == sign && std::memcmp(from, from + 1, static_cast<std::size_t>(to - from) - 1) == 0);
}

}  // namespace

std::int64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * std::int64_t{1'000'000'000} + t.tv_nsec;
}

Failure::Failure(tuttiResult_t result, const char* name)
    : std::runtime_error(tuttiGetLastError(nullptr)), code(result), call(name), at_ns(now_ns()) {}

void (*after_success)() = nullptr;

void must(tuttiResult_t result, const char* call) {
    if (result != tuttiSuccess) throw Failure(result, call);
    if (after_success != nullptr) after_success();
}

Dice::Dice(std::initializer_list<std::uint64_t> seeds) {
    for (const std::uint64_t seed : seeds) state_ = next() ^ seed;
}

std::uint64_t Dice::next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

std::size_t Dice::size(std::size_t most) {
    if (most == 0) return 0;
    return below((most >> below(static_cast<std::size_t>(std::bit_width(most)))) + 1);
}

Memory::Memory(std::size_t bytes) : size_(bytes) {
    void* mapped = nullptr;
    must(tuttiMemAlloc(&mapped, size_), "tuttiMemAlloc");
    kinds_[0].base = static_cast<unsigned char*>(std::malloc(size_));
    kinds_[1].base = static_cast<unsigned char*>(mapped);
    if (kinds_[0].base == nullptr) throw std::bad_alloc();
}

Memory::~Memory() {
    std::free(kinds_[0].base);
    tuttiMemFree(kinds_[1].base);
}

void* Memory::take(std::size_t bytes, Dice& own) {
    Kind& kind = kinds_[own.below(2)];
    const std::size_t begin = kind.used + 8 * own.below(600), end = begin + bytes;
    if (end + 24 > size_) throw std::runtime_error("a step takes too much memory");
    std::memset(kind.base + kind.used, sign, begin - kind.used);
    kind.used = (end + 23) / 8 * 8;
    std::memset(kind.base + end, sign, kind.used - end);
    kind.taken.push_back({begin, end});
    return kind.base + begin;
}

void Memory::reset() {
    for (Kind& kind : kinds_) {
        std::size_t before = 0;
        for (const Piece& piece : kind.taken) {
            if (!all_signs(kind.base + before, kind.base + piece.begin))
                throw Wrong("memory around a buffer was written");
            before = piece.end;
        }
        if (!all_signs(kind.base + before, kind.base + kind.used)) throw Wrong("memory behind a buffer was written");
    }
    if (marked_ && !untouched()) throw Wrong("a buffer was written after its call had ended");
    for (Kind& kind : kinds_) kind.used = 0, kind.taken.clear();
    marked_ = false;
}

void Memory::mark() {
    for (Kind& kind : kinds_) std::memset(kind.base, sign, kind.used);
    marked_ = true;
}

bool Memory::untouched() const {
    return std::ranges::all_of(kinds_, [](const Kind& k) { return all_signs(k.base, k.base + k.used); });
}

std::size_t size_of(tuttiDataType_t type) {
    return tutti::size_of(static_cast<DataType>(type));
}

void expect(const void* at, std::size_t count, const Numbers& numbers, const std::function<void(void*)>& put,
            const std::string& what) {
    const std::size_t size = numbers.element();
    std::vector<unsigned char> expected(count * size + 1);
    put(expected.data());
    const auto* const is = static_cast<const unsigned char*>(at);
    if (std::memcmp(is, expected.data(), count * size) == 0) return;
    const auto there = std::mismatch(is, is + count * size, expected.begin()).first - is;
    throw Wrong(what + " of type " + std::to_string(numbers.type()) + ": element " +
                std::to_string(static_cast<std::size_t>(there) / size) + " of " + std::to_string(count) + " is wrong");
}

int value(std::uint64_t key, int rank, std::size_t i) {
    const std::size_t place = (key % period * 31 + static_cast<std::size_t>(rank) * 7 + i) % period;
    return static_cast<int>(place * 97 % period % 61);
}

void fill(void* at, std::size_t count, std::uint64_t key, int rank) {
    auto* const to = static_cast<float*>(at);
    for (std::size_t i = 0; i < std::min(count, period); ++i) to[i] = static_cast<float>(value(key, rank, i));
    for (std::size_t done = period; done < count; done *= 2)
        std::memcpy(to + done, to, std::min(done, count - done) * sizeof(float));
}

void expect_values(const void* at, std::size_t count, const std::function<int(std::size_t)>& expected,
                   const std::string& what) {
    const std::size_t stride = count / 2048 + 1;
    const auto look = [&](std::size_t i) {
        const float is = static_cast<const float*>(at)[i], should = static_cast<float>(expected(i));
        if (is != should)
            throw Wrong(what + ": element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
                        std::to_string(is) + "; " + std::to_string(should) + " was expected");
    };
    for (std::size_t i = 0; i < count; i += stride) look(i);
    if (count > 0) look(count - 1);
}

}  // namespace tutti::steps
