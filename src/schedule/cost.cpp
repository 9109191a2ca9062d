#include "schedule/cost.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"
#include "schedule/simulate.hpp"
#include "schedule/to_all.hpp"

namespace tutti {
namespace {

/// Plays one tile. With r.order, steps wait for their messages; without, only work is added up.
class Clock {
  public:
    Clock(const Rehearsal& r, const Tiling& tiling, const Rates& rates, const std::function<Line(Rank, Rank)>& line,
          Cached cached, std::span<const int> core_of)
        : r_(r),
          rates_(rates),
          line_(line),
          core_of_(core_of),
          cores_(core_of.empty() ? 1 : 1 + std::ranges::max(core_of)),
          bytes_(static_cast<double>(tiling.tile)),
          slice_extra_(cached.buffers ? 0 : rates.memory),
          message_extra_(cached.messages ? 0 : rates.memory),
          refers_(rates.references && tiling.by_reference),
          free_(r.programs.size()),
          busy_(r.programs.size()),
          arrives_(r.matching.messages.size()) {
        for (const PairOfRanks& c : r.matching.connections)
            alpha_.push_back(line(r.programs[c.from].rank, r.programs[c.to].rank).alpha_us);
    }

    Price run() {
        for (const StepRef turn : r_.order) take(turn);
        for (std::size_t p = 0; r_.order.empty() && p < r_.programs.size(); ++p)
            for (const Step& s : r_.programs[p].steps) free_[p] = busy_[p] += work_of(r_.programs[p], s);
        price_.chain = *std::ranges::max_element(free_);
        price_.busiest = *std::ranges::max_element(busy_);
        for (const double b : busy_) price_.work += b;
        std::vector<double> of_core(core_of_.empty() ? 0 : static_cast<std::size_t>(cores_));
        for (std::size_t p = 0; p < core_of_.size(); ++p) of_core[static_cast<std::size_t>(core_of_[p])] += busy_[p];
        for (const double its : of_core) price_.core = std::max(price_.core, its);
        return price_;
    }

  private:
    void take(StepRef turn) {
        const Program& p = r_.programs[turn.program];
        const Step& s = p.steps[turn.step];
        const std::vector<std::uint32_t>& part_of = r_.matching.part_of[turn.program];
        const double before = free_[turn.program], work = work_of(p, s);
        double ready = before;
        for (std::uint32_t i = s.first; i < s.first + s.sources; ++i)
            if (part_of[i] != Matching::none) ready = std::max(ready, arrives_[r_.matching.parts[part_of[i]].message]);
        price_.waits += ready > before;
        const double end = ready + work;
        free_[turn.program] = end;
        busy_[turn.program] += work;
        for (std::uint32_t i = s.first + s.sources; i < s.first + s.sources + s.sinks; ++i)
            if (part_of[i] != Matching::none) {
                const std::uint32_t m = r_.matching.parts[part_of[i]].message;
                arrives_[m] = end + alpha_[r_.matching.messages[m].connection];
            }
    }

    double work_of(const Program& p, const Step& s) {
        const bool passes = refers_ && moves_by_reference(p, s);
        const bool once = rates_.to_all && !(refers_ && r_.pull_safe) && sends_to_all(p, s);
        bool written = false;
        double work = rates_.step;
        for (std::uint32_t i = s.first; i < s.first + s.sources + s.sinks; ++i) {
            const bool source = i < s.first + s.sources;
            const Operand& o = p.operands[i];
            const bool sends = !source && o.place == Place::peer;
            if (once && sends && std::exchange(written, true)) continue;
            const double extra = o.place == Place::peer ? message_extra_ : slice_extra_;
            double per_byte = (source ? rates_.load : rates_.store) + extra;
            if (sends) per_byte += rates_.between_cores * (once ? cores_ - 1 : are_apart(p.rank, o.index));
            if (o.place == Place::peer) {
                const Line line = source ? line_(o.index, p.rank) : line_(p.rank, o.index);
                if (!o.more) work += rates_.message + line.handling_us;
                if (source) per_byte += line.us_per_byte;
            }
            if (passes) continue;
            work += per_byte * bytes_;
            price_.far += extra * bytes_;
        }
        return work;
    }

    bool are_apart(Rank a, Rank b) const {
        return !core_of_.empty() && core_of_[static_cast<std::size_t>(a)] != core_of_[static_cast<std::size_t>(b)];
    }

    /// True if the step moves no bytes itself: a slice that is only sent is read by its receivers, and a message that
    /// is only received has been stored by its sender.
    bool moves_by_reference(const Program& p, const Step& s) const {
        const Operand& from = p.operands[s.first];
        const auto sinks = p.sinks(s);
        if (s.sources != 1 || from.more) return false;
        if (from.place == Place::peer)
            return r_.push_safe && std::ranges::none_of(sinks, [](Operand o) { return o.place == Place::peer; });
        return r_.pull_safe && std::ranges::all_of(sinks, [](Operand o) { return o.place == Place::peer && !o.more; });
    }

    const Rehearsal& r_;
    const Rates& rates_;
    const std::function<Line(Rank, Rank)>& line_;
    const std::span<const int> core_of_;
    const int cores_;
    const double bytes_, slice_extra_, message_extra_;
    const bool refers_;
    std::vector<double> alpha_;        // by connection
    std::vector<double> free_, busy_;  // by program
    std::vector<double> arrives_;      // by message
    Price price_;
};

}  // namespace

Rehearsal Rehearsal::of(std::vector<Program> programs) {
    Rehearsal r;
    r.programs = std::move(programs);
    r.peers = peers_of(r.programs);
    r.rehearse();
    return r;
}

void Rehearsal::rehearse() {
    matching = match(programs);
    TUTTI_ASSERT(matching.error.empty());
    Run run = simulate(programs, matching, 0);
    TUTTI_ASSERT(run.blocked.empty());
    order = std::move(run.order);
    played += order.size();
}

Peers peers_of(std::span<const Program> programs) {
    Peers peers;
    std::vector<std::size_t> last;  // by peer: number, from 1, of the last program that sends to it
    for (std::size_t number = 1; number <= programs.size(); ++number) {
        const Program& p = programs[number - 1];
        last.resize(static_cast<std::size_t>(p.ranks));
        int its = 0;
        for (const Step& step : p.steps)
            for (const Operand& o : p.sinks(step)) {
                if (o.place != Place::peer) continue;
                its += std::exchange(last[static_cast<std::size_t>(o.index)], number) != number;
            }
        peers.pairs += static_cast<std::size_t>(its);
        peers.most = std::max(peers.most, its);
    }
    return peers;
}

void add_tiles(Price& price, std::uint32_t tiles, int channels, int ranks, const Rates& rates) {
    const auto time = [&](int threads, int cores) {
        const int ranks_at_work = std::min(ranks, cores);
        const int at_work = static_cast<int>(std::min<long long>(static_cast<long long>(ranks) * threads, cores));
        // While a chain goes on, some core may have nothing to do. Brent's theorem bounds that; half of the bound is
        // what two cores lose whose ranks are bound to them (docs/tuning.md).
        const double beyond = std::max(0.0, price.chain - price.work / ranks);
        const double idle = price.core > 0 ? beyond / 2 * (1 - 1.0 / ranks_at_work) : 0;
        const double first =
            std::max(price.chain, std::max(price.work / ranks_at_work, price.core) + price.lost + idle);
        const double of_cores = std::max(price.work / at_work, price.core) + price.lost / channels;
        const double of_memory = price.far / std::min(at_work, rates.streams);
        return first + (tiles - 1.0) * std::max({price.busiest / threads, price.chain / channels, of_cores, of_memory});
    };
    const int most = std::min(rates.threads, channels), cores = rates.insists ? 1 << 30 : rates.cores;
    price.threads = most > 1 && time(most, cores) + rates.sharing < time(1, cores) ? most : 1;
    price.time = time(price.threads, rates.cores) + (price.threads > 1 ? rates.sharing : 0);
}

Price price_of_tile(const Rehearsal& rehearsal, const Tiling& tiling, const Rates& rates,
                    const std::function<Line(Rank, Rank)>& line, Cached cached, std::span<const int> core_of) {
    Price p = Clock(rehearsal, tiling, rates, line, cached, core_of).run();
    p.lost = rehearsal.lost;
    return p;
}

}  // namespace tutti
