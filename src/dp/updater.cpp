#include "dp/updater.hpp"

#include <algorithm>

namespace tutti::dp {

/// The arguments of a piece's update.
struct Updater::Place {
    Update how;
    std::byte* at;               // where the layer keeps the piece's values
    std::byte* values;           // the same, or with config.offload their copy on the host
    const std::byte* gradients;  // in the same memory as `values`
};

Updater::Place Updater::place_of(const Bucket& b, const Piece& piece, const tuttiDpOptimizer_t& optimizer,
                                 double unscale, long long count) const {
    const bool offloads = storage_.backends().offloads;
    const auto group = static_cast<std::size_t>(storage_.parameters()[piece.parameter].group);
    const tuttiDpGroup_t& its = storage_.options().own_groups[group];
    std::byte* const at = storage_.value_of(b, piece);
    const std::vector<std::size_t>& shape = storage_.parameters()[piece.parameter].shape;
    const bool whole = storage_.options().whole();
    const bool is_matrix = optimizer.kind == tuttiDpMuon && shape.size() > 1 && !its.adamW;
    return {{&optimizer, optimizer.learningRate * its.learningRateFactor, its.weightDecay, count, unscale, whole,
             is_matrix ? shape[0] : 0},
            at,
            offloads ? b.host_data + piece.at * size_of(b.data_type) : at,
            (offloads ? b.host_grad : b.own_grad) + piece.at * size_of(b.type)};
}

void Updater::begin() {
    Backend& jobs = *storage_.backends().jobs;
    if (!storage_.backends().offloads) return;
    for (const Bucket& b : storage_.buckets()) jobs.copy(b.host_grad, b.own_grad, b.own_count * size_of(b.type));
    jobs.settle();  // the gradients have arrived, and earlier copies from host_data are done
}

void Updater::count() {
    for (std::size_t p = 0; p < counts.size(); ++p) counts[p] += !iteration_.skipped(p);
}

std::vector<Norms> Updater::measure(const tuttiDpOptimizer_t& optimizer, double unscale) {
    std::vector<Norms> all(counts.size());
    for (const Bucket& b : storage_.buckets())
        for (const Piece& piece : b.mine) {
            if (iteration_.skipped(piece.parameter)) continue;
            const Place place = place_of(b, piece, optimizer, unscale, counts[piece.parameter] + 1);
            dp::measure(place.how, piece, storage_.parameters()[piece.parameter].count, b.data_type, place.values,
                        b.type, place.gradients, b.states, all[piece.parameter]);
        }
    return all;
}

void Updater::set_norms(std::span<const Norms> norms) {
    ratios_.clear();
    for (const Norms& its : norms) ratios_.push_back(trust_ratio(its));
}

/// Updates a piece; on a host with all threads, if it is long enough. Each element is updated by itself, so
/// the bits do not depend on the threads.
void Updater::share_out(const Bucket& b, const Piece& piece, const Place& place) {
    constexpr std::size_t least = std::size_t{1} << 14;  // elements, which take longer than to wake a thread
    const Backends& backends = storage_.backends();
    const bool divides =
        (!backends.on_gpu || backends.offloads) && !place.how.whole && place.how.optimizer->kind != tuttiDpCallback;
    const std::size_t parts = divides ? std::clamp<std::size_t>(piece.count / least, 1, threads_.size()) : 1;
    const auto cut = [&](std::size_t i) { return i == parts ? piece.count : piece.count / parts * i / 64 * 64; };
    threads_.each(parts, [&](std::size_t i) {
        const std::size_t from = cut(i);
        backends.states->update(place.how, {piece.parameter, piece.first + from, cut(i + 1) - from, piece.at + from},
                                b.data_type, place.values + from * size_of(b.data_type), b.type,
                                place.gradients + from * size_of(b.type), b.states);
    });
}

void Updater::update(const Bucket& b, const tuttiDpOptimizer_t& optimizer, double unscale) {
    const Backends& backends = storage_.backends();
    const auto group_of = [&](const Piece& piece) { return storage_.parameters()[piece.parameter].group; };
    const bool lamb = optimizer.kind == tuttiDpLamb;
    // If values have the same layout as gradients and states, neighbours are updated in one pass, with the gaps
    // between.
    const bool side_by_side =
        b.own_data != nullptr && optimizer.kind != tuttiDpCallback && !lamb && !storage_.options().whole();
    for (std::size_t i = 0, next; i < b.mine.size(); i = next) {
        next = i + 1;
        Piece piece = b.mine[i];
        if (iteration_.skipped(piece.parameter)) continue;
        for (; side_by_side && next < b.mine.size(); ++next) {
            const Piece& neighbour = b.mine[next];
            if (iteration_.skipped(neighbour.parameter) || group_of(neighbour) != group_of(piece) ||
                counts[neighbour.parameter] != counts[piece.parameter])
                break;
            piece.count = neighbour.at + neighbour.count - piece.at;
        }
        const Place place = place_of(b, piece, optimizer, unscale, counts[piece.parameter]);
        if (lamb)
            apply(place.how, ratios_[piece.parameter], piece, b.data_type, place.values, b.type, place.gradients,
                  b.states);
        else
            share_out(b, piece, place);
        if (backends.offloads) backends.jobs->copy(place.at, place.values, piece.count * size_of(b.data_type));
    }
}

}  // namespace tutti::dp
