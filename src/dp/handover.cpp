#include "dp/handover.hpp"

#include <algorithm>

namespace tutti::dp {
namespace {

constexpr std::size_t chunk = std::size_t{1} << 18;  // elements per broadcast

/// An array that a rank keeps for the owned range of a bucket: the values, a master or a state.
struct OwnTensor {
    std::byte* at;
    std::size_t size;  // bytes of an element
    Backend* backend;  // of the memory
};

/// All such arrays, from element `at` of the owned range on.
std::vector<OwnTensor> own_tensors(const Backends& backends, const Bucket& b, std::size_t at) {
    const std::size_t size = size_of(b.data_type), state_size = size_of(state_type(b.data_type));
    std::vector<OwnTensor> all{{b.own_data + at * size, size, backends.values.get()}};
    for (std::byte* const states : {b.states.master, b.states.state[0], b.states.state[1]})
        if (states != nullptr) all.push_back({states + at * state_size, state_size, backends.states.get()});
    return all;
}

}  // namespace

void Handover::take_back() noexcept {
    if (held_) storage_.restore(std::move(*held_));
    held_.reset();
}

Handover::Plan Handover::begin(const Progress& progress, std::span<const std::size_t> order) {
    take_back();
    const Holding mine{storage_.shards(), progress.updated, !progress.half};
    held_.emplace(storage_.reshape(ranks_.shards(), order));
    const std::vector<Holding> all = ranks_.exchange(mine);
    Standing standing = last_whole_step(storage_.parameters(), order, storage_.dealing(1), all);
    const auto is_at_it = [&](const Holding& h) { return h.step == standing.step && h.whole && h.shards.own >= 0; };
    const auto root = std::ranges::find_if(all, is_at_it);
    return {standing.step, root == all.end() ? 0 : static_cast<int>(root - all.begin()), std::move(standing.cover)};
}

void Handover::pass_on(const Cover& cover) {
    for (const Origin& origin : cover.origins) pass_on(origin);
}

/// Broadcasts elements from the rank that has them; the ranks that own them now keep them.
void Handover::pass_on(const Origin& origin) {
    const Parameter& q = storage_.parameters()[origin.parameter];
    const Bucket& to = storage_.bucket_of(origin.parameter);
    const auto own = std::ranges::find(to.mine, origin.parameter, &Piece::parameter);
    std::vector<std::byte> bytes;
    for (std::size_t done = 0; done < origin.count; done += chunk) {
        const std::size_t first = origin.first + done, count = std::min(chunk, origin.count - done);
        std::size_t each = size_of(q.type);  // bytes of an element with its master and states
        const std::size_t states =
            states_of(storage_.options().optimizer.kind) + has_master(storage_.options().optimizer.kind, q.type);
        each += states * size_of(state_type(q.type));
        bytes.resize(count * each);
        if (origin.rank == ranks_.rank()) {
            const Bucket& from = held_->buckets[to.index];
            const auto piece = std::ranges::find(from.mine, origin.parameter, &Piece::parameter);
            std::byte* into = bytes.data();
            for (const OwnTensor& t : own_tensors(storage_.backends(), from, piece->at + first - piece->first)) {
                t.backend->copy_now(into, t.at, count * t.size);
                into += count * t.size;
            }
        }
        ranks_.broadcast(std::span(bytes), origin.rank);
        if (own == to.mine.end()) continue;
        const std::size_t begin = std::max(first, own->first), end = std::min(first + count, own->first + own->count);
        if (begin >= end) continue;
        const std::byte* out_of = bytes.data();
        for (const OwnTensor& t : own_tensors(storage_.backends(), to, own->at + begin - own->first)) {
            t.backend->copy_now(t.at, out_of + (begin - first) * t.size, (end - begin) * t.size);
            out_of += count * t.size;
        }
        if (to.host_data != nullptr && to.host_data != to.own_data)  // config.offload updates a copy of the values
            storage_.backends().states->copy_now(to.host_data + (own->at + begin - own->first) * size_of(q.type),
                                                 bytes.data() + (begin - first) * size_of(q.type),
                                                 (end - begin) * size_of(q.type));
    }
}

}  // namespace tutti::dp
