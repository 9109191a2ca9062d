// The types of elements, and their formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti {

// Values are those of tuttiDataType_t.
enum class DataType : std::uint8_t {
    int8,
    uint8,
    int32,
    uint32,
    int64,
    uint64,
    float16,
    float32,
    float64,
    bfloat16,
    float8e4m3,
    float8e5m2
};
inline constexpr int data_types = 12;

/// The format of an element. Floats are sign, exponent, mantissa from the most significant bit down. With infinities
/// the highest exponent is reserved for them and for NaN, as in IEEE 754; without, only the highest code is NaN.
struct Format {
    std::string_view name;
    std::size_t size;  // in bytes
    bool is_signed;
    int exponent_bits = 0, mantissa_bits = 0;  // 0: an integer
    bool infinities = true;
};

inline constexpr Format formats[] = {{"int8", 1, true},
                                     {"uint8", 1, false},
                                     {"int32", 4, true},
                                     {"uint32", 4, false},
                                     {"int64", 8, true},
                                     {"uint64", 8, false},
                                     {"float16", 2, true, 5, 10},
                                     {"float32", 4, true, 8, 23},
                                     {"float64", 8, true, 11, 52},
                                     {"bfloat16", 2, true, 8, 7},
                                     {"f8e4m3", 1, true, 4, 3, false},
                                     {"f8e5m2", 1, true, 5, 2}};
static_assert(sizeof formats / sizeof *formats == data_types);

/// Called for every message. The table is global because a local one would be copied to the stack at each call.
constexpr const Format& format_of(DataType type) {
    return formats[static_cast<int>(type)];
}
constexpr std::size_t size_of(DataType type) {
    return format_of(type).size;
}
constexpr bool is_integer(DataType type) {
    return format_of(type).exponent_bits == 0;
}
constexpr bool has_sign(DataType type) {
    return format_of(type).is_signed;
}
constexpr std::string_view name_of(DataType type) {
    return format_of(type).name;
}

/// Calls visit(T{}), where T is the C++ type of the elements. 16- and 8-bit floats have none: for these T is the
/// unsigned integer of their size.
template <class Visit>
constexpr decltype(auto) with_type_of(DataType type, Visit&& visit) {
    switch (type) {
        case DataType::int8:
            return visit(std::int8_t{});
        case DataType::int32:
            return visit(std::int32_t{});
        case DataType::uint32:
            return visit(std::uint32_t{});
        case DataType::int64:
            return visit(std::int64_t{});
        case DataType::uint64:
            return visit(std::uint64_t{});
        case DataType::float32:
            return visit(float{});
        case DataType::float64:
            return visit(double{});
        case DataType::float16:
        case DataType::bfloat16:
            return visit(std::uint16_t{});
        case DataType::uint8:
        case DataType::float8e4m3:
        case DataType::float8e5m2:
            return visit(std::uint8_t{});
    }
    __builtin_trap();
}

}  // namespace tutti
