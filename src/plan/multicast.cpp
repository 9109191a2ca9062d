#include "plan/multicast.hpp"

#include <algorithm>

namespace tutti {
namespace {

using Sum = gpu::MulticastSum;

std::optional<Sum> sum_of_floats(DataType type) {
    switch (type) {
        case DataType::float32:
            return Sum::float32;
        case DataType::float16:
            return Sum::float16;
        case DataType::bfloat16:
            return Sum::bfloat16;
        case DataType::float64:
            return Sum::float64;
        default:
            return std::nullopt;
    }
}

/// Of integers, where there is one: `wide` of 64 bits.
std::optional<Sum> extreme(bool wide, bool is_signed, bool most) {
    if (wide) return is_signed ? (most ? Sum::max_s64 : Sum::min_s64) : (most ? Sum::max_u64 : Sum::min_u64);
    return is_signed ? (most ? Sum::max_s32 : Sum::min_s32) : (most ? Sum::max_u32 : Sum::min_u32);
}

}  // namespace

bool has_multicast(Collective c) {
    return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::all_gather;
}

std::optional<Sum> multicast_sum(const Operation& o) {
    if (o.one_sided != nullptr || o.rows != nullptr || o.count == 0 || !has_multicast(o.collective))
        return std::nullopt;
    const std::size_t row = o.count * size_of(o.type);
    if (o.collective != Collective::all_reduce && row % 16 != 0) return std::nullopt;
    if (o.collective == Collective::all_gather) return Sum::sum32;
    if (o.average || o.premultiply) return std::nullopt;
    if (is_integer(o.type) && size_of(o.type) < 4) return std::nullopt;
    if (!is_integer(o.type)) return o.op == ReduceOp::sum ? sum_of_floats(o.type) : std::nullopt;
    const bool wide = size_of(o.type) == 8;
    if (o.op == ReduceOp::sum) return wide ? Sum::sum64 : Sum::sum32;
    if (o.op == ReduceOp::prod) return std::nullopt;
    return extreme(wide, has_sign(o.type), o.op == ReduceOp::max);
}

bool in_any_order(const Operation& o) {
    return reduces(o.collective) && !is_integer(o.type);
}

std::uint32_t multicast_blocks_for(std::size_t bytes, int ranks, int most) {
    const std::size_t share = bytes / static_cast<std::size_t>(ranks);
    const auto wanted =
        static_cast<int>(std::min<std::size_t>(share / gpu::multicast_share + 1, gpu::multicast_blocks));
    return static_cast<std::uint32_t>(std::clamp(wanted, 1, std::max(most, 1)));
}

}  // namespace tutti
