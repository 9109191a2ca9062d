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

void share_notes(const Ranks& ranks, Notes& notes, long long steps) {
    std::string all;  // keys and texts in turn, each followed by a 0
    for (const auto& [key, note] : notes) (all += key + '\0') += note + '\0';
    ranks.broadcast(all, ranks.furthest(steps, !notes.empty()));
    Notes its;
    for (std::size_t at = 0; at < all.size();) {
        const std::string key = all.c_str() + at;
        at += key.size() + 1;
        at += (its[key] = all.c_str() + at).size() + 1;
    }
    notes = std::move(its);
}

void Handover::take_back() noexcept {
    if (held_) storage_.restore(std::move(*held_));
    held_.reset();
}

Standing Handover::begin(const Progress& progress, std::span<const std::size_t> order) {
    take_back();
    const Holding mine{storage_.shards(), progress.updated, !progress.half, newcomer_, progress.received};
    held_.emplace(storage_.reshape(ranks_.shards(), order));
    const std::vector<Holding> all = ranks_.exchange(mine);
    return storage_.options().asynchronous() ? newest_parts(storage_.parameters(), order, storage_.dealing(1), all)
                                             : last_whole_step(storage_.parameters(), order, storage_.dealing(1), all);
}

void Handover::pass_on(const Cover& cover) {
    for (const Origin& origin : cover.origins) pass_on(origin);
}

/// Broadcasts elements from the rank that has them; the ranks that own them now keep them.
void Handover::pass_on(const Origin& origin) {
    const Parameter& q = storage_.parameters()[origin.parameter];
    const Bucket& to = storage_.bucket_of(origin.parameter);
    const auto own = std::ranges::find(to.mine, origin.parameter, &Piece::parameter);
    const tuttiDpOptimizerKind_t kind = storage_.options().optimizer.kind;
    const int masters = has_master(kind, q.type);
    // Of the values, the master and the states, in this order, the first so many are sent.
    const auto sent = static_cast<std::size_t>(origin.bare ? 1 : 1 + masters + (origin.anew ? 0 : states_of(kind)));
    const std::size_t size = size_of(q.type);
    std::vector<std::byte> bytes;
    for (std::size_t done = 0; done < origin.count; done += chunk) {
        const std::size_t first = origin.first + done, count = std::min(chunk, origin.count - done);
        bytes.resize(count * (size + (sent - 1) * size_of(state_type(q.type))));
        if (origin.rank == ranks_.rank() && origin.bare) {
            storage_.backends().values->copy_now(bytes.data(), held_->values_at[origin.parameter] + first * size,
                                                 bytes.size());
        } else if (origin.rank == ranks_.rank()) {
            const Bucket& from = held_->buckets[to.index];
            const auto piece = std::ranges::find(from.mine, origin.parameter, &Piece::parameter);
            auto tensors = own_tensors(storage_.backends(), from, piece->at + first - piece->first);
            tensors.resize(sent);
            std::byte* into = bytes.data();
            for (const OwnTensor& t : tensors) {
                t.backend->copy_now(into, t.at, count * t.size);
                into += count * t.size;
            }
        }
        ranks_.broadcast(std::span(bytes), origin.rank);
        if (own == to.mine.end()) continue;
        const std::size_t begin = std::max(first, own->first), end = std::min(first + count, own->first + own->count);
        if (begin < end) keep(origin, to, own->at + begin - own->first, bytes, {begin - first, end - begin, count});
    }
}

/// Keeps a part of what was sent, from element `at` of the owned range on.
void Handover::keep(const Origin& origin, const Bucket& to, std::size_t at, std::span<const std::byte> bytes,
                    Slice slice) {
    const Backends& backends = storage_.backends();
    const std::size_t size = size_of(to.data_type);
    const std::byte* out_of = bytes.data();
    for (const OwnTensor& t : own_tensors(backends, to, at)) {
        if (out_of == bytes.data() + bytes.size()) break;
        t.backend->copy_now(t.at, out_of + slice.first * t.size, slice.count * t.size);
        out_of += slice.sent * t.size;
    }
    if (to.host_data != nullptr && to.host_data != to.own_data)  // config.offload updates a copy of the values
        backends.states->copy_now(to.host_data + at * size, bytes.data() + slice.first * size, slice.count * size);
    if (!origin.bare || to.states.master == nullptr) return;
    const DataType type = state_type(to.data_type);
    backends.states->convert(type, to.states.master + at * size_of(type), to.data_type, to.own_data + at * size,
                             slice.count);
    backends.states->settle();
}

}  // namespace tutti::dp
