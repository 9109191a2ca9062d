// A fuzz target: what it does with any bytes must not crash, hang, or touch memory outside. Each file of this folder
// but replay.cpp has one. With libFuzzer (-Dfuzz=true, clang) each is a program of its own; else they are all in one
// program, which replays the corpus and damages it (replay.cpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace tutti::fuzz {

/// Takes the bytes of an input apart, from the front. At its end there are zeros.
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : left_(std::as_bytes(std::span(data, size))) {}

    bool empty() const { return left_.empty(); }

    template <class Number>
    Number number() {
        static_assert(std::is_arithmetic_v<Number>);
        Number value{};
        fill(&value, sizeof value);
        return value;
    }
    /// 0 to most - 1.
    std::uint32_t below(std::uint32_t most) {
        return most <= 256 ? number<std::uint8_t>() % most : number<std::uint32_t>() % most;
    }
    bool flag() { return below(2) == 1; }
    void fill(void* out, std::size_t size) {
        const std::span<const std::byte> some = bytes(size);
        std::memset(out, 0, size);
        if (!some.empty()) std::memcpy(out, some.data(), some.size());
    }
    std::span<const std::byte> bytes(std::size_t most) {
        const std::span<const std::byte> some = left_.first(std::min(most, left_.size()));
        left_ = left_.subspan(some.size());
        return some;
    }
    /// To the end of the line, which is dropped.
    std::string line() {
        const std::string_view all(reinterpret_cast<const char*>(left_.data()), left_.size());
        const std::string_view some = all.substr(0, all.find('\n'));
        left_ = left_.subspan(std::min(left_.size(), some.size() + 1));
        return std::string(some);
    }
    std::string rest() {
        const std::span<const std::byte> all = bytes(left_.size());
        return {reinterpret_cast<const char*>(all.data()), all.size()};
    }

  private:
    std::span<const std::byte> left_;
};

/// Whether `body` was content with its input. An Error is how a parser refuses one, and has a text; whatever else is
/// thrown ends the program.
template <class Body>
bool accepts(Body&& body) {
    try {
        body();
        return true;
    } catch (const Error& error) {
        TUTTI_ASSERT(std::strlen(error.what()) > 0);
        return false;
    }
}

using Target = void (*)(Input in);

/// Known to replay.cpp by its name, which is also its folder in corpus/.
struct Known {
    Known(const char* name, Target target);
};

}  // namespace tutti::fuzz

#ifdef TUTTI_FUZZ_ALONE
#define FUZZ_TARGET(name)                                                               \
    static void fuzz_##name(tutti::fuzz::Input in);                                     \
    extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
        fuzz_##name(tutti::fuzz::Input(data, size));                                    \
        return 0;                                                                       \
    }                                                                                   \
    static void fuzz_##name(tutti::fuzz::Input in)
#else
#define FUZZ_TARGET(name)                                             \
    static void fuzz_##name(tutti::fuzz::Input in);                   \
    static const tutti::fuzz::Known known_##name(#name, fuzz_##name); \
    static void fuzz_##name(tutti::fuzz::Input in)
#endif
