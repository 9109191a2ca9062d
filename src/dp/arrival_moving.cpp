// tuttiDpMove with config.onArrival. Workers leave their servers, so that all gradients that were sent are applied.
// Then every part goes from its server to the one that has it among the new ranks.
#include <algorithm>
#include <cstring>
#include <set>

#include "dp/handover.hpp"
#include "dp/on_arrival.hpp"

namespace tutti::dp {

/// What a rank brings to a move.
struct OnArrival::Comer {
    int former;       // its rank so far
    int moves;        // that it has made: more than others if a move has failed on those only
    bool counts;      // false: a newcomer
    bool works;       // it has pulled values
    long long steps;  // that it has made
    long long clock;  // Clients' clock, which also counts what has overflowed
    double rate;
    ScaleState scale;
};

/// The plan of a move, the same on all ranks.
class OnArrival::Move {
  public:
    /// Collective.
    Move(const Ranks& ranks, const Comer& mine) : ranks_(ranks), all_(ranks.exchange(mine)) {
        if (std::ranges::none_of(all_, &Comer::counts)) {
            const long long most = std::ranges::max(all_, {}, &Comer::steps).steps;
            std::ranges::find(all_, most, &Comer::steps)->counts = true;
        }
        for (std::size_t r = 0; r < all_.size(); ++r) {
            const Comer& its = all_[r];
            if (its.moves == mine.moves && its.counts == mine.counts) former.push_back(its.former);
            if (!its.counts) continue;
            furthest(root, r);
            if (its.works) furthest(newest, r);
        }
        if (newest >= 0) root = newest;
    }

    const Comer& mine() const { return all_[static_cast<std::size_t>(ranks_.rank())]; }
    const Comer& roots() const { return all_[static_cast<std::size_t>(root)]; }
    /// How many clocks this rank is ahead of the slowest worker so far; as the root is, if it has not worked.
    long long ahead() const {
        long long least = roots().clock;
        for (const Comer& its : all_)
            if (its.counts && its.works) least = std::min(least, its.clock);
        return (mine().counts && mine().works ? mine() : roots()).clock - least;
    }
    /// Finds out who keeps which part. Throws on all ranks if a part is lost for good. Collective.
    void ask(const ps::Node& node) {
        const std::vector<ps::PartPlace>& parts = node.table().parts;
        std::vector<std::uint8_t> kept(parts.size());
        for (std::size_t p = 0; p < kept.size(); ++p) kept[p] = mine().counts && node.keeps(p);
        const std::vector<std::uint8_t> table = ranks_.gather(std::span<const std::uint8_t>(kept));
        for (std::size_t p = 0; p < parts.size(); ++p) {
            int from = -1, moves = -1;
            for (std::size_t r = 0; r < all_.size(); ++r)
                if (table[r * parts.size() + p] && all_[r].moves > moves)
                    from = static_cast<int>(r), moves = all_[r].moves;
            keepers.push_back(from);
            if (from >= 0) continue;
            lost.insert(parts[p].key);
            if (newest < 0)
                fail(tuttiInvalidUsage,
                     "tuttiDpMove: the server of '%s' has died, and no worker that knows its values is among the ranks",
                     node.table().keys[parts[p].key].name.c_str());
        }
    }

    std::vector<int> former;     // the ranks so far of those of the layer that this rank has been in
    int newest = -1;             // the worker with the most steps that is no newcomer; -1 if there is none
    int root = -1;               // the same, or a server if there is no worker
    std::vector<int> keepers;    // by part: the rank of its former server; -1 if it has died
    std::set<std::size_t> lost;  // keys with parts whose server has died

  private:
    void furthest(int& so_far, std::size_t rank) const {
        if (so_far < 0 || all_[static_cast<std::size_t>(so_far)].steps < all_[rank].steps)
            so_far = static_cast<int>(rank);
    }

    const Ranks& ranks_;
    std::vector<Comer> all_;
};

/// Passes all parts on to their new servers. A part whose server has died gets the values of a worker, and no states.
void OnArrival::hand_over(const Move& move, const Ranks& ranks, const ps::Settings& settings, const ps::Table& table,
                          ps::Server* server) const {
    TUTTI_ASSERT(table.parts.size() == move.keepers.size());
    std::vector<std::byte> bytes;
    for (std::size_t p = 0; p < table.parts.size(); ++p) {
        const ps::PartPlace& place = table.parts[p];
        const bool bare = move.keepers[p] < 0;
        const int from = bare ? move.newest : move.keepers[p];
        const int to = settings.server_ranks[static_cast<std::size_t>(place.server)];
        if (ranks.rank() != from && ranks.rank() != to) continue;
        bytes.resize(bare ? place.bytes() : ps::Snapshot(settings, place).bytes);
        if (from == ranks.rank() && bare)
            here_->copy_now(bytes.data(), values_[trained_[place.key]] + place.first * size_of(place.type),
                            bytes.size());
        else if (from == ranks.rank())
            node_->read(p, bytes.data());
        if (from != to) from == ranks.rank() ? ranks.send(bytes, to) : ranks.receive(bytes, from);
        if (to != ranks.rank()) continue;
        bare ? void(std::memcpy(server->initial(p), bytes.data(), bytes.size())) : server->write(p, bytes.data());
    }
}

/// All ranks get the same notes, and what is not trained. Those that did not work get settings of a rank that did.
void OnArrival::settle(const Move& move, const Ranks& ranks) {
    for (std::size_t p = 0; p < values_.size(); ++p) {
        if (registration_.parameters[p].is_trained()) continue;
        std::vector<std::byte> still = fetched(p);
        ranks.broadcast(std::span(still), move.root);
        here_->copy_now(values_[p], still.data(), still.size());
    }
    share_notes(ranks, notes_, statistics_.all().steps);
    if (move.mine().counts && move.mine().works) return;
    registration_.options.optimizer.learningRate = move.roots().rate;
    if (loss_scale_.is_on()) loss_scale_.restore(move.roots().scale);
    statistics_.change([&](auto& all) { all.steps = move.roots().steps; });
}

/// Refuses a communicator on another device than this layer's. nullopt if the move is possible.
std::optional<Error> OnArrival::elsewhere(tuttiComm_t comm) const {
    int device = TUTTI_DEVICE_CPU;
    must(tuttiCommDevice(comm, &device));
    if (device == device_) return std::nullopt;
    return Error(
        tuttiInvalidArgument,
        text("tuttiDpMove: the layer's memory is on device %d, but its rank of the new communicator is on device "
             "%d (-1: a CPU)",
             device_, device));
}

void OnArrival::move(tuttiComm_t comm) {
    int size = 0;
    must(tuttiCommCount(comm, &size));
    ps::Node::Request request = node_request("tuttiDpMove", elsewhere(comm), size);
    Ranks ranks;
    ps::Node::join(ranks, comm, request);
    moving_ = true;
    Move plan(ranks, {node_->rank(), moves_, moves_ > 0 || !alone_, node_->works(), statistics_.all().steps,
                      node_->statistics().clock, options().optimizer.learningRate, loss_scale_.state()});
    guarded([&] { wait_for_sends(); });  // what servers that have died did not get is lost
    node_->stop_working(plan.former);
    ranks.barrier();  // all workers have left
    node_->stop_serving();
    iteration_.phase = Phase::idle;
    plan.ask(*node_);
    if (!options().serves_only(ranks.rank(), size)) make_gradients();
    request.fill = [&](const ps::Settings& settings, const ps::Table& table, ps::Server* server) {
        hand_over(plan, ranks, settings, table, server);
    };
    auto next = std::make_unique<ps::Node>(std::move(request), comm);
    settle(plan, ranks);
    ranks.barrier();  // so that all ranks have moved, or none; unless one dies just now
    statistics_.change([&, had = statistics()](auto& all) {
        all.applied = had.applied, all.missed = had.missed, all.largestStaleness = had.largestStaleness;
        all.restarted += static_cast<long long>(plan.lost.size());
    });
    std::swap(node_, next);
    next.reset();
    moving_ = false;
    ++moves_;
    if (!node_->works()) return;
    ps::Client& client = node_->client("tuttiDpMove");
    client.set_learning_rate(options().optimizer.learningRate);
    pull_values("tuttiDpMove");
    // Who is to make as many steps as the others makes fewer now, and the others must not wait for it at the end.
    if (options().staleness < 0) return;
    for (long long k = plan.ahead(); k > 0; --k) client.clock();
}

}  // namespace tutti::dp
