// The definition of reduce(), one element at a time. Every variant gives the same bits, except for NaN payloads.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/convert.hpp"
#include "kernels/reduce.hpp"

namespace tutti {
namespace {

template <class T>
T larger(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a) || std::isnan(b)) return a + b;
        if (a == b) return std::signbit(a) ? b : a;  // +0 is larger than -0
    }
    return a > b ? a : b;
}

template <class T>
T smaller(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a) || std::isnan(b)) return a + b;
        if (a == b) return std::signbit(a) ? a : b;
    }
    return a < b ? a : b;
}

template <class T>
T combine(ReduceOp op, T a, T b) {
    if (op == ReduceOp::max) return larger(a, b);
    if (op == ReduceOp::min) return smaller(a, b);
    if constexpr (std::is_floating_point_v<T>)
        return op == ReduceOp::sum ? a + b : a * b;
    else {  // integers wrap around
        const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
        return static_cast<T>(op == ReduceOp::sum ? x + y : x * y);
    }
}

template <class T>
T divide(T value, int divisor) {
    if constexpr (std::is_floating_point_v<T>)
        return value / static_cast<T>(divisor);
    else if constexpr (std::is_signed_v<T>)
        return static_cast<T>(value / static_cast<std::int64_t>(divisor));
    else
        return static_cast<T>(value / static_cast<std::uint64_t>(divisor));
}

// Element: the type in memory; T: the type of the computation.
template <class Element, class T>
void reduce_as(const Reduction& r) {
    const auto read = [&](const void* element) {
        if constexpr (std::is_same_v<Element, T>) {
            T value;
            std::memcpy(&value, element, sizeof value);
            return value;
        } else {
            return static_cast<T>(load_as_double(r.type, element));
        }
    };
    const auto write = [&](T value) {
        Element element;
        if constexpr (std::is_same_v<Element, T>)
            element = value;
        else
            store_from_double(r.type, value, &element);
        return element;
    };
    const T scalar = r.scaled_source >= 0 ? read(r.scalar) : T{};
    for (std::size_t i = 0; i < r.count; ++i) {
        T result{};
        for (int k = 0; k < r.source_count; ++k) {
            T next = read(static_cast<const Element*>(r.sources[k]) + i);
            if (k == r.scaled_source) {
                const Element product = write(combine(ReduceOp::prod, next, scalar));
                next = read(&product);
            }
            result = k == 0 ? next : combine(r.op, result, next);
        }
        if (r.divide_by != 0) result = divide(result, r.divide_by);
        const Element element = write(result);
        for (int m = 0; m < r.sink_count; ++m)
            std::memcpy(static_cast<Element*>(r.sinks[m]) + i, &element, sizeof element);
    }
}

}  // namespace

void reduce_reference(const Reduction& r) {
    if (r.copies()) {  // a copy keeps every bit, of NaNs too
        for (int m = 0; m < r.sink_count; ++m) std::memmove(r.sinks[m], r.sources[0], r.count * size_of(r.type));
        return;
    }
    with_type_of(r.type, [&](auto zero) {
        using Element = decltype(zero);
        if constexpr (sizeof zero <= 2)
            if (!is_integer(r.type)) return reduce_as<Element, float>(r);
        reduce_as<Element, Element>(r);
    });
}

}  // namespace tutti
