#include "data.hpp"

#include <time.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

namespace tutti::storm {
namespace {

constexpr std::size_t period = 251;
constexpr unsigned char sign = 0xa5;

int in_period(std::size_t j) {
    return static_cast<int>(j * 97 % period % 61);
}

std::size_t place(std::uint64_t key, int rank, std::size_t i) {
    return (key % period * 31 + static_cast<std::size_t>(rank) * 7 + i) % period;
}

/// f(T{}) for the C++ type.
template <class F>
auto with_type(tuttiDataType_t type, F f) {
    switch (type) {
        case tuttiUint8:
            return f(std::uint8_t{});
        case tuttiInt32:
            return f(std::int32_t{});
        case tuttiInt64:
            return f(std::int64_t{});
        case tuttiFloat32:
            return f(float{});
        default:
            return f(double{});
    }
}

}  // namespace

std::int64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * std::int64_t{1'000'000'000} + t.tv_nsec;
}

Failure::Failure(tuttiResult_t result, const char* name)
    : std::runtime_error(tuttiGetLastError(nullptr)), code(result), call(name), at_ns(now_ns()) {}

void must(tuttiResult_t result, const char* call) {
    if (result != tuttiSuccess) throw Failure(result, call);
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

Memory::Memory() {
    void* mapped = nullptr;
    must(tuttiMemAlloc(&mapped, size_), "tuttiMemAlloc");
    base_[0] = static_cast<unsigned char*>(std::malloc(size_));
    base_[1] = static_cast<unsigned char*>(mapped);
    if (base_[0] == nullptr) throw std::bad_alloc();
}

Memory::~Memory() {
    std::free(base_[0]);
    tuttiMemFree(base_[1]);
}

void* Memory::take(std::size_t bytes, Dice& own) {
    const std::size_t kind = own.below(2);
    const std::size_t begin = used_[kind] + 8 * own.below(600);
    if (begin + bytes + 8 > size_) throw std::runtime_error("a step takes too much memory");
    used_[kind] = (begin + bytes + 15) / 8 * 8;
    return base_[kind] + begin;
}

void Memory::mark() {
    for (const int kind : {0, 1}) std::memset(base_[kind], sign, used_[kind]);
}

bool Memory::untouched() const {
    const auto same = [](unsigned char c) { return c == sign; };
    return std::all_of(base_[0], base_[0] + used_[0], same) && std::all_of(base_[1], base_[1] + used_[1], same);
}

std::size_t size_of(tuttiDataType_t type) {
    return with_type(type, [](auto x) { return sizeof x; });
}

int value(std::uint64_t key, int rank, std::size_t i) {
    return in_period(place(key, rank, i));
}

void fill(void* at, tuttiDataType_t type, std::size_t count, std::uint64_t key, int rank, std::size_t first) {
    with_type(type, [&](auto x) {
        using T = decltype(x);
        T* const to = static_cast<T*>(at);
        const std::size_t start = place(key, rank, first);
        for (std::size_t i = 0; i < std::min(count, period); ++i)
            to[i] = static_cast<T>(in_period((start + i) % period));
        for (std::size_t done = period; done < count; done *= 2)
            std::memcpy(to + done, to, std::min(done, count - done) * sizeof(T));
    });
}

void expect(const void* at, tuttiDataType_t type, std::size_t count, const std::function<int(std::size_t)>& expected,
            const std::string& what) {
    with_type(type, [&](auto x) {
        using T = decltype(x);
        const std::size_t stride = count / 2048 + 1;
        const auto look = [&](std::size_t i) {
            const T is = static_cast<const T*>(at)[i], should = static_cast<T>(expected(i));
            if (is != should)
                throw Wrong(what + ": element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
                            std::to_string(is) + "; " + std::to_string(should) + " was expected");
        };
        for (std::size_t i = 0; i < count; i += stride) look(i);
        if (count > 0) look(count - 1);
    });
}

}  // namespace tutti::storm
