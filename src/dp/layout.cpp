#include "dp/layout.hpp"

#include <algorithm>

namespace tutti::dp {
namespace {

constexpr std::size_t line_bytes = 64;

std::size_t round_up(std::size_t n, std::size_t to) {
    return (n + to - 1) / to * to;
}

/// The offset of the next parameter: one of a cache line or more begins on a cache line, smaller ones follow directly.
std::size_t next_offset(const BucketLayout& bucket, std::size_t count) {
    const std::size_t element = std::max(size_of(bucket.type), size_of(bucket.data_type));
    const std::size_t line = line_bytes / std::min(size_of(bucket.type), size_of(bucket.data_type));
    return count * element >= line_bytes ? round_up(bucket.count, line) : bucket.count;
}

void cut_evenly(BucketLayout& bucket, std::size_t owners) {
    std::size_t shard = (bucket.count + owners - 1) / owners;
    if (owners > 1) shard = round_up(shard, line_bytes / size_of(bucket.type));
    for (std::size_t o = 0; o <= owners; ++o) bucket.begins.push_back(o * shard);
    bucket.count = bucket.begins.back();
}

/// Gives whole parameters to owners: the largest first, each to the owner with the fewest bytes so far in all buckets.
void deal_whole(const std::vector<Parameter>& parameters, BucketLayout& bucket, std::vector<std::size_t>& offset,
                std::vector<std::size_t>& bytes_of) {
    std::vector<std::size_t> order = std::move(bucket.parameters);
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t p) { return parameters[p].count; });
    std::vector<std::vector<std::size_t>> its(bytes_of.size());  // by owner
    for (const std::size_t p : order) {
        const auto least = std::ranges::min_element(bytes_of);
        *least += parameters[p].count * size_of(bucket.data_type);
        its[static_cast<std::size_t>(least - bytes_of.begin())].push_back(p);
    }
    const std::size_t line = line_bytes / std::min(size_of(bucket.type), size_of(bucket.data_type));
    bucket.parameters.clear();
    bucket.count = 0;
    bucket.even = false;
    for (const std::vector<std::size_t>& some : its) {
        bucket.begins.push_back(bucket.count);
        for (const std::size_t p : some) {
            offset[p] = next_offset(bucket, parameters[p].count);
            bucket.count = offset[p] + parameters[p].count;
            bucket.parameters.push_back(p);
        }
        bucket.count = round_up(bucket.count, line);
    }
    bucket.begins.push_back(bucket.count);
}

}  // namespace

std::vector<std::size_t> backward_order(const std::vector<Parameter>& parameters) {
    std::vector<std::size_t> order;
    for (std::size_t p = parameters.size(); p-- > 0;)
        if (parameters[p].is_trained()) order.push_back(p);
    return order;
}

Layout lay_out(const std::vector<Parameter>& parameters, std::span<const std::size_t> order, const Dealing& dealing) {
    Layout layout;
    layout.bucket.resize(parameters.size(), Layout::none);
    layout.offset.resize(parameters.size());
    std::vector<BucketLayout> open;
    std::size_t limit = dealing.first_bytes;
    const auto close = [&](std::vector<BucketLayout>::iterator bucket) {
        layout.buckets.push_back(std::move(*bucket));
        open.erase(bucket);
        limit = dealing.bytes;
    };
    for (const std::size_t p : order) {
        const Parameter& parameter = parameters[p];
        auto bucket = std::find_if(open.begin(), open.end(), [&](const BucketLayout& b) {
            return b.type == parameter.main_type && b.data_type == parameter.type;
        });
        if (bucket != open.end()) {
            const bool full = (next_offset(*bucket, parameter.count) + parameter.count) * size_of(bucket->type) > limit;
            const bool other_unit = parameters[bucket->parameters.back()].unit != parameter.unit;
            if (dealing.by_unit ? other_unit : full || dealing.one_each) {
                close(bucket);
                bucket = open.end();
            }
        }
        if (bucket == open.end())
            bucket = open.insert(open.end(), BucketLayout{{}, parameter.main_type, parameter.type});
        layout.offset[p] = next_offset(*bucket, parameter.count);
        bucket->count = layout.offset[p] + parameter.count;
        bucket->parameters.push_back(p);
    }
    while (!open.empty()) close(open.begin());
    std::vector<std::size_t> bytes_of(static_cast<std::size_t>(dealing.owners), 0);
    for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
        BucketLayout& bucket = layout.buckets[b];
        for (const std::size_t p : bucket.parameters) layout.bucket[p] = b;
        if (dealing.whole && dealing.owners > 1)
            deal_whole(parameters, bucket, layout.offset, bytes_of);
        else
            cut_evenly(bucket, static_cast<std::size_t>(dealing.owners));
    }
    return layout;
}

std::vector<Piece> pieces_of(const Layout& layout, const std::vector<Parameter>& parameters, std::size_t bucket,
                             std::size_t begin, std::size_t end) {
    std::vector<Piece> pieces;
    for (const std::size_t p : layout.buckets[bucket].parameters) {
        const std::size_t from = std::max(layout.offset[p], begin);
        const std::size_t to = std::min(layout.offset[p] + parameters[p].count, end);
        if (from < to) pieces.push_back({p, from - layout.offset[p], to - from, from - begin});
    }
    return pieces;
}

}  // namespace tutti::dp
