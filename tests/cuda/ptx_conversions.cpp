// Conversions between types: section 9.7.9 of PTX's manual, `cvt`. Slow and plain: through doubles.
#include <cmath>
#include <limits>

#include "ptx_handlers.hpp"

namespace tutti::ptx {
namespace {

/// What is nearest to value among the numbers with so many bits of mantissa, of exponents from lowest; ties to even.
/// Not limited above.
long double rounded(long double value, int mantissa, int lowest) {
    if (value == 0 || !std::isfinite(value)) return value;
    const int exponent = std::max(std::ilogb(value), lowest);
    return std::ldexp(std::nearbyint(std::ldexp(value, mantissa - exponent)), exponent - mantissa);
}

struct Format {
    int exponent, mantissa;  // bits
    bool infinities;
    int bias() const { return (1 << (exponent - 1)) - 1; }
    int lowest() const { return 1 - bias(); }
    double largest() const {
        if (infinities) return std::ldexp(2 - std::ldexp(1, -mantissa), bias());
        return std::ldexp(2 - std::ldexp(2, -mantissa), bias() + 1);  // the code above it is NaN
    }
    std::uint32_t infinity() const { return ((1u << exponent) - 1) << mantissa; }
};
constexpr Format half{5, 10, true}, bfloat{8, 7, true}, e4m3{4, 3, false}, e5m2{5, 2, true};

/// Where numbers are too large, the largest if it saturates, NaNs are the one of all ones.
std::uint32_t encode(const Format& f, long double value, bool saturates) {
    const std::uint32_t sign = std::signbit(value) ? 1u << (f.exponent + f.mantissa) : 0;
    if (std::isnan(value)) return (1u << (f.exponent + f.mantissa)) - 1;
    long double magnitude = std::fabs(rounded(value, f.mantissa, f.lowest()));
    if (magnitude > f.largest()) {
        if (!saturates) return sign | f.infinity();
        magnitude = f.largest();
    }
    if (magnitude == 0) return sign;
    const int exponent = std::max(std::ilogb(magnitude), f.lowest());
    const auto code = static_cast<std::uint32_t>(std::ldexp(magnitude, f.mantissa - exponent));  // with its first bit
    return sign | (code + (static_cast<std::uint32_t>(exponent + f.bias() - 1) << f.mantissa));
}

double decode(const Format& f, std::uint32_t code) {
    const std::uint32_t magnitude = code & ((1u << (f.exponent + f.mantissa)) - 1);
    const double sign = (code >> (f.exponent + f.mantissa) & 1) != 0 ? -1 : 1;
    if (f.infinities ? magnitude > f.infinity() : magnitude == (1u << (f.exponent + f.mantissa)) - 1)
        return std::numeric_limits<double>::quiet_NaN();
    if (f.infinities && magnitude == f.infinity()) return sign * std::numeric_limits<double>::infinity();
    const auto exponent = static_cast<int>(magnitude >> f.mantissa);
    const double mantissa = magnitude & ((1u << f.mantissa) - 1);
    if (exponent == 0) return sign * std::ldexp(mantissa, f.lowest() - f.mantissa);
    return sign * std::ldexp(mantissa + (1 << f.mantissa), exponent - f.bias() - f.mantissa);
}

/// Two: the first source becomes the upper half.
template <const Format& format>
void to_small_pair(Thread& t, const Instruction& i) {
    const std::uint32_t high = encode(format, get<float>(t, i, 1), false),
                        low = encode(format, get<float>(t, i, 2), false);
    set<std::uint32_t>(t, i, 0, high << 16 | low);
}
template <const Format& format>
void to_bytes(Thread& t, const Instruction& i) {
    const std::uint32_t high = encode(format, get<float>(t, i, 1), true),
                        low = encode(format, get<float>(t, i, 2), true);
    set<std::uint16_t>(t, i, 0, static_cast<std::uint16_t>(high << 8 | low));
}
template <const Format& format>
void halves_to_bytes(Thread& t, const Instruction& i) {
    const auto halves = get<std::uint32_t>(t, i, 1);
    const std::uint32_t high = encode(format, decode(half, halves >> 16), true),
                        low = encode(format, decode(half, halves & 0xffff), true);
    set<std::uint16_t>(t, i, 0, static_cast<std::uint16_t>(high << 8 | low));
}
template <const Format& format>
void from_bytes(Thread& t, const Instruction& i) {
    const std::uint32_t pair = get<std::uint16_t>(t, i, 1);
    const std::uint32_t high = encode(half, decode(format, pair >> 8), false),
                        low = encode(half, decode(format, pair & 0xff), false);
    set<std::uint32_t>(t, i, 0, high << 16 | low);
}

enum class Round { to_nearest, down, up, to_zero };

template <Round round, class To, class From>
To converted(From value) {
    if constexpr (is_small<From>) {
        return converted<round, To>(value.number());
    } else if constexpr (is_small<To>) {
        return To::of(static_cast<long double>(value));
    } else if constexpr (is_float<From> && !is_float<To>) {  // saturates
        if (std::isnan(value)) return 0;
        const From whole = round == Round::to_nearest ? std::nearbyint(value)
                           : round == Round::down     ? std::floor(value)
                           : round == Round::up       ? std::ceil(value)
                                                      : std::trunc(value);
        if (whole <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
        if (whole >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
        return static_cast<To>(whole);
    } else {
        return static_cast<To>(value);
    }
}
template <Round round, class To>
struct ConvertTo {
    template <class From>
    static void run(Thread& t, const Instruction& i) {
        set<To>(t, i, 0, converted<round, To>(get<From>(t, i, 1)));
    }
};

/// To what lies between 0 and 1.
void saturate(Thread& t, const Instruction& i) {
    const auto value = get<float>(t, i, 1);
    set<float>(t, i, 0, value > 0 ? std::min(value, 1.0F) : 0.0F);
}

template <Round round, class... To>
Handler convert_of(Types<To...>, const std::string& to, const std::string& from) {
    Handler found = nullptr;
    ((found = is_called<To>(to) ? of<ConvertTo<round, To>>(All{}, from) : found), ...);
    ((found = is_called<To>(to) && found == nullptr ? of<ConvertTo<round, To>>(Smalls{}, from) : found), ...);
    return found;
}

}  // namespace

double Half::number() const {
    return decode(half, code);
}
Half Half::of(long double number) {
    return {static_cast<std::uint16_t>(encode(half, number, false))};
}
double Bfloat::number() const {
    return decode(bfloat, code);
}
Bfloat Bfloat::of(long double number) {
    return {static_cast<std::uint16_t>(encode(bfloat, number, false))};
}

Handler conversion_of(const Opcode& o) {
    if (o.size() < 3) return nullptr;
    const std::string &to = o[o.size() - 2], &from = o.back();
    if (has(o, "ftz")) return nullptr;
    if (has(o, "satfinite")) {
        if (from == "f32" && to == "e4m3x2") return to_bytes<e4m3>;
        if (from == "f32" && to == "e5m2x2") return to_bytes<e5m2>;
        if (from == "f16x2" && to == "e4m3x2") return halves_to_bytes<e4m3>;
        if (from == "f16x2" && to == "e5m2x2") return halves_to_bytes<e5m2>;
        return nullptr;
    }
    if (o.size() == 4 && o[1] == "sat" && to == "f32" && from == "f32") return saturate;
    if (has(o, "sat") || has(o, "relu")) return nullptr;
    if (from == "f32" && to == "f16x2") return has(o, "rn") ? to_small_pair<half> : nullptr;
    if (from == "f32" && to == "bf16x2") return has(o, "rn") ? to_small_pair<bfloat> : nullptr;
    if (from == "e4m3x2" && to == "f16x2") return from_bytes<e4m3>;
    if (from == "e5m2x2" && to == "f16x2") return from_bytes<e5m2>;
    if (to == "f16" || to == "bf16") return has(o, "rn") ? convert_of<Round::to_nearest>(Smalls{}, to, from) : nullptr;
    const bool exact = to[0] != 'f' || from[0] == 'f' || from[0] == 'b';  // or rounded as the host does
    if (has(o, "rni")) return convert_of<Round::to_nearest>(All{}, to, from);
    if (has(o, "rmi")) return convert_of<Round::down>(All{}, to, from);
    if (has(o, "rpi")) return convert_of<Round::up>(All{}, to, from);
    if (has(o, "rz") || has(o, "rm") || has(o, "rp")) return nullptr;
    if (has(o, "rn") || has(o, "rzi") || exact) return convert_of<Round::to_zero>(All{}, to, from);
    return nullptr;
}

}  // namespace tutti::ptx
