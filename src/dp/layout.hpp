// Where each parameter lies: buckets, and the shards of buckets that ranks own. Pure arithmetic.
#pragma once

#include <span>
#include <vector>

#include "dp/options.hpp"

namespace tutti::dp {

/// The part of a parameter that lies in the owned range of a bucket. Counts and offsets are in elements.
struct Piece {
    std::size_t parameter;
    std::size_t first;  // offset in the parameter
    std::size_t count;
    std::size_t at;  // offset in the owned range
};

/// Parameters whose gradients (and values, if they are the layer's) are contiguous and travel together.
struct BucketLayout {
    std::vector<std::size_t> parameters;  // by offset
    DataType type;                        // of the gradients
    DataType data_type;                   // of the values
    std::size_t count = 0;                // elements, with the padding between parameters and at the ends of shards
    std::vector<std::size_t> begins{};    // by owner: the first element of its shard; then the count
    bool even = true;                     // all shards have the same size

    std::size_t shard(int owner) const {
        return begins[static_cast<std::size_t>(owner) + 1] - begins[static_cast<std::size_t>(owner)];
    }
    std::size_t begin(int owner) const { return begins[static_cast<std::size_t>(owner)]; }
};

struct Layout {
    static constexpr std::size_t none = SIZE_MAX;
    std::vector<BucketLayout> buckets;  // in the order of their reduction
    std::vector<std::size_t> bucket;    // by parameter: its bucket; none if it is not trained
    std::vector<std::size_t> offset;    // by parameter: elements from the start of its bucket
};

/// How lay_out() deals parameters to buckets, and cuts buckets into shards.
struct Dealing {
    std::size_t first_bytes, bytes;  // the most bytes of the first bucket, and of the others
    int owners;                      // shards per bucket
    // one_each: every parameter has a bucket of its own. by_unit: no bucket has parameters of two units, whatever its
    // size. whole: each parameter has one owner, and owners have about as much; shards may differ and be empty.
    bool one_each, by_unit, whole = false;
};
/// The trained parameters in the order in which a backward pass reaches them.
std::vector<std::size_t> backward_order(const std::vector<Parameter>& parameters);
/// Deals trained parameters to buckets, in this order: one open bucket per pair of types, closed when the next
/// parameter would not fit. A parameter larger than a bucket has one of its own.
Layout lay_out(const std::vector<Parameter>& parameters, std::span<const std::size_t> order, const Dealing& dealing);

/// The pieces of parameters in elements [begin, end) of a bucket.
std::vector<Piece> pieces_of(const Layout& layout, const std::vector<Parameter>& parameters, std::size_t bucket,
                             std::size_t begin, std::size_t end);

}  // namespace tutti::dp
