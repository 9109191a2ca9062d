// Which parameter lies where: buckets, and the parts of buckets that ranks own. Pure arithmetic.
#pragma once

#include <span>
#include <vector>

#include "dp/options.hpp"

namespace tutti::dp {

/// Part of a parameter inside what a rank owns of a bucket.
struct Piece {
    std::size_t parameter;
    std::size_t first;  // of the parameter's elements
    std::size_t count;
    std::size_t at;  // in the owned range
};

/// Gradients (and parameters, where they are the layer's) that lie side by side and travel together.
struct BucketLayout {
    std::vector<std::size_t> parameters;  // by offset
    DataType type;                        // of the gradients
    DataType data_type;
    std::size_t count = 0;              // elements, with what fills the gaps and the ends of shards
    std::vector<std::size_t> begins{};  // of each owner's shard; and the count
    bool even = true;                   // shards are of one size

    std::size_t shard(int owner) const {
        return begins[static_cast<std::size_t>(owner) + 1] - begins[static_cast<std::size_t>(owner)];
    }
    std::size_t begin(int owner) const { return begins[static_cast<std::size_t>(owner)]; }
};

struct Layout {
    static constexpr std::size_t none = SIZE_MAX;
    std::vector<BucketLayout> buckets;  // in the order of their reduction
    std::vector<std::size_t> bucket;    // by parameter; none: it is not trained
    std::vector<std::size_t> offset;    // by parameter: elements from the start of its bucket
};

/// Deals parameters that are trained, in this order, to buckets: one open bucket per pair of types, closed when the
/// next parameter would not fit. A parameter larger than a bucket has one of its own. one_each: every parameter has.
/// by_unit: no bucket has parameters of two units, and sizes do not matter. whole: each parameter has one owner, all
/// owners about as much; shards may differ then, and be empty. Else they are of one size.
struct Dealing {
    std::size_t first_bytes, bytes;
    int owners;
    bool one_each, by_unit, whole = false;
};
/// Those that are trained, as a backward pass comes to them.
std::vector<std::size_t> backward_order(const std::vector<Parameter>& parameters);
Layout lay_out(const std::vector<Parameter>& parameters, std::span<const std::size_t> order, const Dealing& dealing);

/// What the owner of elements [begin, end) of a bucket has.
std::vector<Piece> pieces_of(const Layout& layout, const std::vector<Parameter>& parameters, std::size_t bucket,
                             std::size_t begin, std::size_t end);

}  // namespace tutti::dp
