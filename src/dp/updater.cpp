#include "dp/updater.hpp"

namespace tutti::dp {

void Updater::begin() {
    Backend& jobs = *storage_.backends().jobs;
    if (storage_.backends().offloads) {
        for (const Bucket& b : storage_.buckets()) jobs.copy(b.host_grad, b.own_grad, b.own_count * size_of(b.type));
        jobs.settle();  // so that nothing reads host_data any more, too
    }
    for (std::size_t p = 0; p < counts.size(); ++p) counts[p] += !iteration_.skipped(p);
}

void Updater::update(const Bucket& b, const tuttiDpOptimizer_t& optimizer, double unscale) {
    const Backends& backends = storage_.backends();
    const auto group_of = [&](const Piece& piece) { return storage_.parameters()[piece.parameter].group; };
    // Where values lie as gradients and states do, neighbours are updated in one pass, with the gaps between them.
    const bool side_by_side = b.own_data != nullptr && optimizer.kind != tuttiDpCallback;
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
        const tuttiDpGroup_t& group = storage_.options().own_groups[static_cast<std::size_t>(group_of(piece))];
        const Update how{&optimizer, optimizer.learningRate * group.learningRateFactor, group.weightDecay,
                         counts[piece.parameter], unscale};
        std::byte* const at = storage_.value_of(b, piece);
        std::byte* const values = backends.offloads ? b.host_data + piece.at * size_of(b.data_type) : at;
        const std::byte* grads = (backends.offloads ? b.host_grad : b.own_grad) + piece.at * size_of(b.type);
        backends.states->update(how, piece, b.data_type, values, b.type, grads, b.states);
        if (backends.offloads) backends.jobs->copy(at, values, piece.count * size_of(b.data_type));
    }
}

}  // namespace tutti::dp
