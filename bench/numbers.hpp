// Element types and operations as the programs see them: names, sizes, and the way between a double and an element's
// bits. Written apart from the library, so that a mistake there is not repeated here.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace perf {

enum class Op { sum, prod, max, min, avg, mulsum, none };

const char* name_of(Op op);
std::optional<Op> op_named(std::string_view name);
std::vector<Op> all_ops();

/// As nccl-tests prints it.
const char* name_of(tuttiDataType_t type);
std::optional<tuttiDataType_t> type_named(std::string_view name);
std::vector<tuttiDataType_t> all_types();

std::size_t size_of(tuttiDataType_t type);
bool is_float(tuttiDataType_t type);
bool is_signed(tuttiDataType_t type);

/// Bits of the significand, the leading one included: integers up to 2^digits are exact.
int digits_of(tuttiDataType_t float_type);

/// The bits of the float nearest to value, ties to even. Values beyond the largest finite one are not for here.
std::uint64_t encode(tuttiDataType_t float_type, double value);
double decode(tuttiDataType_t type, std::uint64_t bits);

/// The number of representable values between two floats of the type; 0 for -0 and +0.
std::uint64_t distance(tuttiDataType_t float_type, std::uint64_t a, std::uint64_t b);

/// The larger one. A NaN, as a wrong result may be, counts as infinite.
double larger_error(double a, double b);

std::uint64_t load(const void* element, std::size_t size);
void store(void* element, std::size_t size, std::uint64_t bits);

}  // namespace perf
