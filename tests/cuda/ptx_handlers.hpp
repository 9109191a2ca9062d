// What handlers of instructions are written in. For the files ptx_*.cpp alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

#include "ptx_code.hpp"

namespace tutti::ptx {

template <class T>
T get(const Thread& t, const Instruction& i, int operand) {
    const std::uint64_t word = t.word(i.operand[operand]);
    T value;
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&value, &word, sizeof value);
    return value;
}

template <class T>
void set(Thread& t, const Instruction& i, int operand, T value) {
    std::uint64_t word = 0;
    if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
        word = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
    else
        std::memcpy(&word, &value, sizeof value);
    t.registers[i.operand[operand]] = word;
}

inline bool truth(const Thread& t, const Instruction& i, int operand) {
    return t.word(i.operand[operand]) != 0;
}

template <class T>
inline constexpr bool is_float = std::is_floating_point_v<T>;

/// Floats of 16 bits, as codes.
struct Half {
    std::uint16_t code;
    double number() const;
    static Half of(long double number);  // the nearest one
};
struct Bfloat {
    std::uint16_t code;
    double number() const;
    static Bfloat of(long double number);
};
template <class T>
inline constexpr bool is_small = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>;
template <class T>
T mask(std::uint32_t bits) {
    return bits >= 8 * sizeof(T) ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << bits) - 1);
}
template <class... T>
struct Types {};
using Integers = Types<std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, std::uint64_t, std::int64_t>;
using Words = Types<std::uint16_t, std::uint32_t, std::uint64_t>;
using Words32 = Types<std::uint32_t, std::uint64_t>;
using Atoms = Types<std::uint32_t, std::int32_t, std::uint64_t, std::int64_t>;
using Signed = Types<std::int16_t, std::int32_t, std::int64_t, float, double>;
using Narrow = Types<std::uint16_t, std::int16_t, std::uint32_t, std::int32_t>;
using Floats = Types<float, double>;
using Numbers =
    Types<std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, std::uint64_t, std::int64_t, float, double>;
using All = Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, std::uint64_t,
                  std::int64_t, float, double>;
using Smalls = Types<Half, Bfloat>;

template <class T>
bool is_called(const std::string& name) {
    constexpr int bits = 8 * sizeof(T);
    const auto is = [&](char letter) { return name == letter + std::to_string(bits); };
    if constexpr (std::is_same_v<T, Bfloat>) return name == "bf16";
    if constexpr (is_float<T> || is_small<T>) return is('f');
    if constexpr (std::is_signed_v<T>) return is('s');
    return is('u') || is('b');
}

/// Op::run of the type of that name; signed and unsigned ones of as many bits, or floats, where the others do.
template <class Op, class... T>
Handler of(Types<T...>, const std::string& name) {
    Handler found = nullptr;
    ((found = is_called<T>(name) ? static_cast<Handler>(Op::template run<T>) : found), ...);
    return found;
}

inline bool has(const Opcode& o, const char* part) {
    return std::ranges::find(o, part) != o.end();
}

/// Whether there is nothing in an opcode but these, and its type.
inline bool only(const Opcode& o, std::initializer_list<const char*> known) {
    return std::all_of(o.begin() + 1, o.end() - 1, [&](const std::string& part) {
        return std::ranges::any_of(known, [&](const char* k) { return part == k; });
    });
}

/// A look at something that others change: after some, it is their turn.
inline void looked(Thread& t) {
    if (t.patience > 0) --t.patience;
}

/// The handler that an opcode means; nullptr for what is unknown there.
Handler arithmetic_of(const Opcode& opcode);
Handler conversion_of(const Opcode& opcode);
/// vector: how many registers a load or store has.
Handler memory_of(const Opcode& opcode, unsigned vector);
Handler multimem_of(const Opcode& opcode, unsigned vector);
decltype(Instruction::memory) memory_order_of(const Opcode& opcode);
Handler control_of(const Opcode& opcode);

}  // namespace tutti::ptx
