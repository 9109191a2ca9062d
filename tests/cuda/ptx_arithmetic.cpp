// Arithmetic, comparisons, logic: sections 9.7.1 to 9.7.8 of PTX's manual. Floats are rounded as the host rounds them
// (to nearest, nothing flushed to zero, nothing fused), which is what `.rn` says and what a device may not do without
// it.
#include <cfenv>
#include <cmath>
#include <limits>

#include "ptx_handlers.hpp"

namespace tutti::ptx {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
__extension__ using Wide = unsigned __int128;
__extension__ using SignedWide = __int128;
template <class T>
struct Twice;
template <>
struct Twice<std::uint16_t> : std::type_identity<std::uint32_t> {};
template <>
struct Twice<std::int16_t> : std::type_identity<std::int32_t> {};
template <>
struct Twice<std::uint32_t> : std::type_identity<std::uint64_t> {};
template <>
struct Twice<std::int32_t> : std::type_identity<std::int64_t> {};
template <>
struct Twice<std::uint64_t> : std::type_identity<Wide> {};
template <>
struct Twice<std::int64_t> : std::type_identity<SignedWide> {};

/// Integers wrap around, which of signed ones the language does not say.
template <class T, class F>
T wrapping(T a, T b, F f) {
    if constexpr (is_float<T>)
        return f(a, b);
    else  // in 64 bits: those of 16 would become int
        return static_cast<T>(f(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
}

/// The first one's sign, and the rest of the second.
struct CopySign {
    template <class T>
    static T of(T a, T b) {
        return std::copysign(b, a);
    }
};
struct Add {
    template <class T>
    static T of(T a, T b) {
        return wrapping(a, b, [](auto x, auto y) { return x + y; });
    }
};
struct Sub {
    template <class T>
    static T of(T a, T b) {
        return wrapping(a, b, [](auto x, auto y) { return x - y; });
    }
};
struct Mul {
    template <class T>
    static T of(T a, T b) {
        return wrapping(a, b, [](auto x, auto y) { return x * y; });
    }
};
struct MulHigh {
    template <class T>
    static T of(T a, T b) {
        using Both = typename Twice<T>::type;
        return static_cast<T>((static_cast<Both>(a) * static_cast<Both>(b)) >> (8 * sizeof(T)));
    }
};
struct Div {
    template <class T>
    static T of(T a, T b) {
        if constexpr (!is_float<T>) {
            if (b == 0) return static_cast<T>(-1);  // "machine-specific"; all ones on those that there are
            if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub::of<T>(0, a);
        }
        return static_cast<T>(a / b);
    }
};
struct Rem {
    template <class T>
    static T of(T a, T b) {
        if (b == 0) return a;
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
        return static_cast<T>(a % b);
    }
};
/// A NaN loses; +0 is larger than -0.
struct Min {
    template <class T>
    static T of(T a, T b) {
        if constexpr (is_float<T>) {
            if (std::isnan(a)) return std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : b;
            if (std::isnan(b)) return a;
            if (a == b) return std::signbit(a) ? a : b;
        }
        return b < a ? b : a;
    }
};
struct Max {
    template <class T>
    static T of(T a, T b) {
        if constexpr (is_float<T>) {
            if (std::isnan(a)) return std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : b;
            if (std::isnan(b)) return a;
            if (a == b) return std::signbit(a) ? b : a;
        }
        return a < b ? b : a;
    }
};
struct And {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(a & b);
    }
};
struct Or {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(a | b);
    }
};
struct Xor {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(a ^ b);
    }
};

template <class Op>
struct Binary {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const T a = get<T>(t, i, 1), b = get<T>(t, i, 2);
        if constexpr (is_small<T>)  // sums and products of two are doubles
            set<T>(t, i, 0, T::of(Op::template of<double>(a.number(), b.number())));
        else
            set<T>(t, i, 0, Op::template of<T>(a, b));
    }
};

struct Neg {
    template <class T>
    static T of(T a) {
        if constexpr (is_float<T>)
            return -a;
        else
            return Sub::of<T>(0, a);
    }
};
struct Abs {
    template <class T>
    static T of(T a) {
        if constexpr (is_float<T>)
            return std::fabs(a);
        else
            return a < 0 ? Neg::of(a) : a;
    }
};
struct Not {
    template <class T>
    static T of(T a) {
        return static_cast<T>(~a);
    }
};
struct Sqrt {
    template <class T>
    static T of(T a) {
        return std::sqrt(a);
    }
};
struct Reciprocal {
    template <class T>
    static T of(T a) {
        return T{1} / a;
    }
};
struct Move {
    template <class T>
    static T of(T a) {
        return a;
    }
};

template <class Op>
struct Unary {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        set<T>(t, i, 0, Op::template of<T>(get<T>(t, i, 1)));
    }
};

struct MulWide {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        using Both = typename Twice<T>::type;
        set<Both>(t, i, 0, static_cast<Both>(get<T>(t, i, 1)) * static_cast<Both>(get<T>(t, i, 2)));
    }
};
struct MadWide {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        using Both = typename Twice<T>::type;
        const Both product = static_cast<Both>(get<T>(t, i, 1)) * static_cast<Both>(get<T>(t, i, 2));
        set<Both>(t, i, 0, Add::of<Both>(product, get<Both>(t, i, 3)));
    }
};
struct MadLow {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        set<T>(t, i, 0, Add::of<T>(Mul::of<T>(get<T>(t, i, 1), get<T>(t, i, 2)), get<T>(t, i, 3)));
    }
};
struct Fma {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        set<T>(t, i, 0, std::fma(get<T>(t, i, 1), get<T>(t, i, 2), get<T>(t, i, 3)));
    }
};

// Shifts by more than there are bits shift all of them out.
struct ShiftLeft {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const auto by = get<std::uint32_t>(t, i, 2);
        set<T>(t, i, 0, by < 8 * sizeof(T) ? static_cast<T>(get<T>(t, i, 1) << by) : T{0});
    }
};
struct ShiftRight {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const auto by = std::min<std::uint32_t>(get<std::uint32_t>(t, i, 2), 8 * sizeof(T));
        const T a = get<T>(t, i, 1);
        if (by < 8 * sizeof(T))
            set<T>(t, i, 0, static_cast<T>(a >> by));
        else
            set<T>(t, i, 0, std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0});
    }
};
/// The upper or lower half of two words that are shifted together.
template <bool left, bool wraps>
void funnel_shift(Thread& t, const Instruction& i) {
    const std::uint64_t both = get<std::uint32_t>(t, i, 1) | std::uint64_t{get<std::uint32_t>(t, i, 2)} << 32;
    const auto by = wraps ? get<std::uint32_t>(t, i, 3) & 31 : std::min<std::uint32_t>(get<std::uint32_t>(t, i, 3), 32);
    set<std::uint32_t>(t, i, 0, static_cast<std::uint32_t>(left ? both << by >> 32 : both >> by));
}
struct InsertBits {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const std::uint32_t at = get<std::uint32_t>(t, i, 3) & 0xff, bits = get<std::uint32_t>(t, i, 4) & 0xff;
        const T a = get<T>(t, i, 1), into = get<T>(t, i, 2);
        if (at >= 8 * sizeof(T)) return set<T>(t, i, 0, into);
        const T field = static_cast<T>(mask<T>(bits) << at);
        set<T>(t, i, 0, static_cast<T>((into & static_cast<T>(~field)) | (static_cast<T>(a << at) & field)));
    }
};
struct ExtractBits {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const std::uint32_t at = get<std::uint32_t>(t, i, 2) & 0xff, bits = get<std::uint32_t>(t, i, 3) & 0xff;
        constexpr std::uint32_t all = 8 * sizeof(T);
        if (bits == 0) return set<T>(t, i, 0, 0);
        T value = 0;
        const T a = get<T>(t, i, 1);
        const bool negative = std::is_signed_v<T> && (a >> std::min(at + bits - 1, all - 1) & 1) != 0;
        for (std::uint32_t b = 0; b < all; ++b) {
            const bool one = b < bits && at + b < all ? (a >> (at + b) & 1) != 0 : negative;
            value = static_cast<T>(value | static_cast<T>(static_cast<Unsigned<T>>(one) << b));
        }
        set<T>(t, i, 0, value);
    }
};
struct CountBits {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        set<std::uint32_t>(t, i, 0, static_cast<std::uint32_t>(std::popcount(get<T>(t, i, 1))));
    }
};
struct ReverseBits {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const T a = get<T>(t, i, 1);
        T reversed = 0;
        for (unsigned b = 0; b < 8 * sizeof(T); ++b) reversed = static_cast<T>(reversed << 1 | (a >> b & 1));
        set<T>(t, i, 0, reversed);
    }
};
struct LeadingZeros {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        set<std::uint32_t>(t, i, 0, static_cast<std::uint32_t>(std::countl_zero(get<T>(t, i, 1))));
    }
};

/// Four bytes chosen from eight; a selector's highest bit makes the byte its sign.
void permute(Thread& t, const Instruction& i) {
    const std::uint64_t bytes = get<std::uint32_t>(t, i, 1) | std::uint64_t{get<std::uint32_t>(t, i, 2)} << 32;
    const auto selectors = get<std::uint32_t>(t, i, 3);
    std::uint32_t result = 0;
    for (int n = 0; n < 4; ++n) {
        const std::uint32_t selector = selectors >> 4 * n & 0xf;
        std::uint32_t byte = bytes >> 8 * (selector & 7) & 0xff;
        if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
        result |= byte << 8 * n;
    }
    set<std::uint32_t>(t, i, 0, result);
}

/// Any function of three bits, by its table.
void logic_of_three(Thread& t, const Instruction& i) {
    const auto a = get<std::uint32_t>(t, i, 1), b = get<std::uint32_t>(t, i, 2), c = get<std::uint32_t>(t, i, 3);
    const auto table = get<std::uint32_t>(t, i, 4);
    std::uint32_t result = 0;
    for (unsigned row = 0; row < 8; ++row)
        if ((table >> row & 1) != 0)
            result |= ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
    set<std::uint32_t>(t, i, 0, result);
}

// Comparisons: a NaN makes all of these false, and those of the letter u true.
enum class Cmp { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };

template <Cmp cmp>
struct Compare {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const T a = get<T>(t, i, 1), b = get<T>(t, i, 2);
        bool unordered = false;
        if constexpr (is_float<T>) unordered = std::isnan(a) || std::isnan(b);
        set<std::uint64_t>(t, i, 0, holds(a, b, unordered) ? 1 : 0);
    }
    template <class T>
    static bool holds(T a, T b, bool unordered) {
        if constexpr (cmp == Cmp::num) return !unordered;
        if constexpr (cmp == Cmp::nan) return unordered;
        if (unordered) return cmp >= Cmp::equ;
        if constexpr (cmp == Cmp::eq || cmp == Cmp::equ) return a == b;
        if constexpr (cmp == Cmp::ne || cmp == Cmp::neu) return a != b;
        if constexpr (cmp == Cmp::lt || cmp == Cmp::ltu) return a < b;
        if constexpr (cmp == Cmp::le || cmp == Cmp::leu) return a <= b;
        if constexpr (cmp == Cmp::gt || cmp == Cmp::gtu) return a > b;
        return a >= b;
    }
};

void select(Thread& t, const Instruction& i) {
    t.registers[i.operand[0]] = t.word(i.operand[truth(t, i, 3) ? 1 : 2]);
}

struct PredicateNot {
    static void run(Thread& t, const Instruction& i) { set<std::uint64_t>(t, i, 0, truth(t, i, 1) ? 0 : 1); }
};

template <Cmp cmp>
Handler compare_of(const std::string& type) {
    return of<Compare<cmp>>(Numbers{}, type);
}
Handler compare_of(const std::string& cmp, const std::string& type) {
    if (cmp == "eq") return compare_of<Cmp::eq>(type);
    if (cmp == "ne") return compare_of<Cmp::ne>(type);
    if (cmp == "lt" || cmp == "lo") return compare_of<Cmp::lt>(type);
    if (cmp == "le" || cmp == "ls") return compare_of<Cmp::le>(type);
    if (cmp == "gt" || cmp == "hi") return compare_of<Cmp::gt>(type);
    if (cmp == "ge" || cmp == "hs") return compare_of<Cmp::ge>(type);
    if (cmp == "equ") return compare_of<Cmp::equ>(type);
    if (cmp == "neu") return compare_of<Cmp::neu>(type);
    if (cmp == "ltu") return compare_of<Cmp::ltu>(type);
    if (cmp == "leu") return compare_of<Cmp::leu>(type);
    if (cmp == "gtu") return compare_of<Cmp::gtu>(type);
    if (cmp == "geu") return compare_of<Cmp::geu>(type);
    if (cmp == "num") return compare_of<Cmp::num>(type);
    if (cmp == "nan") return compare_of<Cmp::nan>(type);
    return nullptr;
}

// Approximations of a device, to 1 or 2 ulp; here as exact as the host's. Numbers below the normal ones count as zero.
float flushed(float x) {
    return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}
void power_of_two(Thread& t, const Instruction& i) {
    set<float>(t, i, 0, flushed(std::exp2(flushed(get<float>(t, i, 1)))));
}
void approximate_reciprocal(Thread& t, const Instruction& i) {
    set<float>(t, i, 0, flushed(1 / flushed(get<float>(t, i, 1))));
}

/// Rounded down.
void fma_down(Thread& t, const Instruction& i) {
    std::fesetround(FE_DOWNWARD);
    const volatile float a = get<float>(t, i, 1), b = get<float>(t, i, 2), c = get<float>(t, i, 3);
    const volatile float result = std::fma(a, b, c);
    std::fesetround(FE_TONEAREST);
    set<float>(t, i, 0, result);
}

/// Arithmetic that says no more than its type, or rounding to nearest.
bool plain(const Opcode& o) {
    return only(o, {"rn", "lo", "hi", "wide", "uni"});
}

/// The same of small floats, too.
template <class Op>
Handler arithmetic_of_all(const Opcode& o) {
    const Handler found = plain(o) ? of<Op>(Numbers{}, o.back()) : nullptr;
    return found != nullptr || !plain(o) ? found : of<Op>(Smalls{}, o.back());
}

template <class Op, class Of>
Handler arithmetic(const Opcode& o, Of types) {
    return plain(o) ? of<Op>(types, o.back()) : nullptr;
}

Handler of_predicates(const std::string& name) {
    if (name == "and") return Binary<And>::run<std::uint64_t>;
    if (name == "or") return Binary<Or>::run<std::uint64_t>;
    if (name == "xor") return Binary<Xor>::run<std::uint64_t>;
    if (name == "not") return PredicateNot::run;
    if (name == "mov") return Unary<Move>::run<std::uint64_t>;
    return nullptr;
}

}  // namespace

Handler arithmetic_of(const Opcode& o) {
    const std::string &name = o.front(), &type = o.back();
    if (type == "pred") return o.size() == 2 ? of_predicates(name) : nullptr;
    const bool approximate = o.size() == 4 && o[1] == "approx" && o[2] == "ftz" && type == "f32";
    if (name == "add") return arithmetic_of_all<Binary<Add>>(o);
    if (name == "sub") return arithmetic_of_all<Binary<Sub>>(o);
    if (name == "mul" && has(o, "wide")) return of<MulWide>(Narrow{}, type);
    if (name == "mul" && has(o, "hi")) return of<Binary<MulHigh>>(Integers{}, type);
    if (name == "mul") return arithmetic_of_all<Binary<Mul>>(o);
    if (name == "mad" && has(o, "wide")) return of<MadWide>(Narrow{}, type);
    if (name == "mad" && has(o, "lo")) return of<MadLow>(Integers{}, type);
    if (name == "fma" && o.size() == 3 && o[1] == "rm" && type == "f32") return fma_down;
    if (name == "fma") return arithmetic<Fma>(o, Floats{});
    if (name == "div") return arithmetic<Binary<Div>>(o, Numbers{});
    if (name == "rem") return arithmetic<Binary<Rem>>(o, Integers{});
    if (name == "min") return arithmetic_of_all<Binary<Min>>(o);
    if (name == "max") return arithmetic_of_all<Binary<Max>>(o);
    if (name == "copysign") return arithmetic<Binary<CopySign>>(o, Floats{});
    if (name == "neg") return arithmetic<Unary<Neg>>(o, Signed{});
    if (name == "abs") return arithmetic<Unary<Abs>>(o, Signed{});
    if (name == "sqrt") return arithmetic<Unary<Sqrt>>(o, Floats{});
    if (name == "rcp" && approximate) return approximate_reciprocal;
    if (name == "rcp") return arithmetic<Unary<Reciprocal>>(o, Floats{});
    if (name == "ex2") return approximate ? power_of_two : nullptr;
    if (name == "and") return arithmetic<Binary<And>>(o, Words{});
    if (name == "or") return arithmetic<Binary<Or>>(o, Words{});
    if (name == "xor") return arithmetic<Binary<Xor>>(o, Words{});
    if (name == "not") return arithmetic<Unary<Not>>(o, Words{});
    if (name == "shl") return arithmetic<ShiftLeft>(o, Words{});
    if (name == "shr") return arithmetic<ShiftRight>(o, Integers{});
    if (name == "bfi") return arithmetic<InsertBits>(o, Words32{});
    if (name == "bfe") return arithmetic<ExtractBits>(o, Atoms{});
    if (name == "popc") return arithmetic<CountBits>(o, Words32{});
    if (name == "brev") return arithmetic<ReverseBits>(o, Words32{});
    if (name == "clz") return arithmetic<LeadingZeros>(o, Words32{});
    if (name == "prmt") return o.size() == 2 && type == "b32" ? permute : nullptr;
    if (name == "shf" && o.size() == 4 && type == "b32") {
        const bool wraps = o[2] == "wrap";
        if (o[1] == "l") return wraps ? funnel_shift<true, true> : funnel_shift<true, false>;
        return wraps ? funnel_shift<false, true> : funnel_shift<false, false>;
    }
    if (name == "lop3") return o.size() == 2 && type == "b32" ? logic_of_three : nullptr;
    if (name == "setp") return o.size() == 3 ? compare_of(o[1], type) : nullptr;
    if (name == "selp") return o.size() == 2 ? select : nullptr;
    if (name == "mov") return o.size() == 2 ? of<Unary<Move>>(All{}, type) : nullptr;
    return nullptr;
}

}  // namespace tutti::ptx
