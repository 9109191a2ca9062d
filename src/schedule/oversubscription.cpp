#include "schedule/oversubscription.hpp"

#include <algorithm>
#include <limits>

#include "schedule/to_all.hpp"

namespace tutti {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr std::uint32_t most_tiles = 12;  // the first and the last one are not like the others
constexpr std::uint32_t few_tiles = 4;    // of many ranks, among whom one tile's chances even out
constexpr std::size_t many_ranks = 17;

class Cores {
  public:
    Cores(const Rehearsal& r, const Rates& rates, const std::function<Line(Rank, Rank)>& line,
          std::span<const int> core_of, std::uint32_t tiles, bool looks_on)
        : r_(r),
          rates_(rates),
          tiles_(tiles),
          looks_on_(looks_on),
          switching_(std::max(rates.switching, 0.01)),
          ranks_(r.programs.size()) {
        for (const PairOfRanks& c : r.matching.connections)
            alpha_.push_back(line(r.programs[c.from].rank, r.programs[c.to].rank).alpha_us);
        arrives_.assign(tiles * r.matching.messages.size(), never);
        for (std::uint32_t p = 0; p < ranks_.size(); ++p) {
            const auto core =
                core_of.empty() ? p % static_cast<std::uint32_t>(rates.cores) : static_cast<std::uint32_t>(core_of[p]);
            ranks_[p].core = core;
            if (cores_.size() <= core) cores_.resize(core + 1);
            cores_[core].seats.push_back(p);
        }
        std::erase_if(cores_, [](const Core& c) { return c.seats.empty(); });
        for (std::uint32_t p = 0; p < ranks_.size(); ++p) settle(p);
    }

    double run() {
        for (; finished_ < ranks_.size(); ++played_) step();
        return (done_[tiles_ - 2] - done_[0] - work_ / rates_.cores) / (tiles_ - 2);
    }

    std::size_t played() const { return played_; }

  private:
    struct Player {
        std::uint32_t core = 0, tile = 0, step = 0;
        double free = 0;   // since when it could go on
        double ready = 0;  // when its next step's messages are all there; never: not all are sent
    };
    struct Core {
        std::vector<std::uint32_t> seats;  // the ranks that share it
        std::size_t seat = 0;              // of the one that runs
        double now = 0;
        double looks_until = 0;
        bool cold = true;  // another rank ran before
    };

    double& arrival(std::uint32_t tile, std::uint32_t message) {
        return arrives_[tile * r_.matching.messages.size() + message];
    }
    double arrival(std::uint32_t tile, std::uint32_t message) const {
        return arrives_[tile * r_.matching.messages.size() + message];
    }

    /// Passes over what is not there, and looks when player p can go on.
    void settle(std::uint32_t p) {
        Player& player = ranks_[p];
        const Program& program = r_.programs[p];
        while (player.tile < tiles_ && player.step == program.steps.size()) {
            done_[player.tile] = std::max(done_[player.tile], player.free);
            player.step = 0;
            ++player.tile;
        }
        player.ready = player.tile == tiles_ ? never : player.free;
        if (player.tile == tiles_) {
            ++finished_;
            return;
        }
        const Step& s = program.steps[player.step];
        for (std::uint32_t i = s.first; i < s.first + s.sources; ++i)
            if (const std::uint32_t part = r_.matching.part_of[p][i]; part != Matching::none)
                player.ready = std::max(player.ready, arrival(player.tile, r_.matching.parts[part].message));
    }

    /// The core that is furthest behind goes on: its rank takes a step, looks on for a moment, or makes way for the
    /// next one.
    void step() {
        Core& core = *std::ranges::min_element(cores_, {}, &Core::now);
        const std::uint32_t p = core.seats[core.seat];
        if (ranks_[p].ready <= core.now) {
            core.now = play(p, core.now + (core.cold ? rates_.cold : 0));
            core.cold = false;
            core.looks_until = core.now + (looks_on_ && waits_for_other_cores(p) ? 2 * switching_ : 0);
        } else if (core.now < core.looks_until) {
            core.now += switching_ / 8;
        } else {
            core.now += switching_ * shake();
            core.seat = (core.seat + 1) % core.seats.size();
            core.cold = true;
            core.looks_until = 0;
        }
    }

    /// No two switches take the same time, and programs that fit together by luck alone shall not look good. Always the
    /// same numbers, by an LCG (D. Knuth: MMIX), for all ranks are to decide alike.
    double shake() {
        random_ = random_ * 6364136223846793005u + 1442695040888963407u;
        return 0.5 + static_cast<double>(random_ >> 40) / static_cast<double>(1 << 24);
    }

    bool waits_for_other_cores(std::uint32_t p) const {
        const Player& player = ranks_[p];
        if (player.tile == tiles_) return false;
        const Step& s = r_.programs[p].steps[player.step];
        for (std::uint32_t i = s.first; i < s.first + s.sources; ++i) {
            const std::uint32_t part = r_.matching.part_of[p][i];
            if (part == Matching::none) continue;
            const std::uint32_t m = r_.matching.parts[part].message;
            const std::uint32_t from = r_.matching.connections[r_.matching.messages[m].connection].from;
            if (arrival(player.tile, m) == never && ranks_[from].core == player.core) return false;
        }
        return true;
    }

    /// Player p's next step; when it ends.
    double play(std::uint32_t p, double start) {
        Player& player = ranks_[p];
        const Step& s = r_.programs[p].steps[player.step];
        const std::vector<std::uint32_t>& part_of = r_.matching.part_of[p];
        double work = rates_.step;
        const bool once = rates_.to_all && sends_to_all(r_.programs[p], s);
        const std::uint32_t end = s.first + s.sources + (once ? 0 : s.sinks);
        for (std::uint32_t i = s.first; i < end; ++i)
            if (part_of[i] != Matching::none && r_.matching.parts[part_of[i]].last) work += rates_.message;
        if (once) work += rates_.message;
        const std::uint32_t tile = player.tile;
        if (tile > 0 && tile < tiles_ - 1) work_ += work;
        player.free = start + work;
        ++player.step;
        for (std::uint32_t i = s.first + s.sources; i < s.first + s.sources + s.sinks; ++i) {
            if (part_of[i] == Matching::none || !r_.matching.parts[part_of[i]].last) continue;
            const std::uint32_t m = r_.matching.parts[part_of[i]].message;
            const std::uint32_t c = r_.matching.messages[m].connection, to = r_.matching.connections[c].to;
            arrival(tile, m) = player.free + alpha_[c];
            if (to != p && ranks_[to].ready == never && ranks_[to].tile == tile) settle(to);
        }
        settle(p);
        return player.free;
    }

    const Rehearsal& r_;
    const Rates& rates_;
    const std::uint32_t tiles_;
    const bool looks_on_;
    const double switching_;
    std::vector<double> alpha_;    // by connection
    std::vector<double> arrives_;  // by tile and message
    std::vector<Player> ranks_;
    std::vector<Core> cores_;
    std::uint64_t random_ = 1;
    double done_[most_tiles] = {};  // when the last rank had finished
    double work_ = 0;               // of the tiles in between
    std::size_t finished_ = 0;      // ranks
    std::size_t played_ = 0;
};

}  // namespace

double lost_by_sharing(const Rehearsal& rehearsal, const Rates& rates, const std::function<Line(Rank, Rank)>& line,
                       std::span<const int> core_of, std::size_t* played) {
    const bool many = rehearsal.programs.size() >= many_ranks;
    const auto run = [&](std::span<const int> placed, bool looks_on) {
        Cores cores(rehearsal, rates, line, placed, many ? few_tiles : most_tiles, looks_on);
        const double lost = cores.run();
        if (played != nullptr) *played += cores.played();
        return lost;
    };
    const auto play = [&](std::span<const int> placed) {
        const double lost = run(placed, false);
        return std::max(0.0, many ? lost : std::min(lost, run(placed, true)));
    };
    if (!core_of.empty()) return play(core_of);
    // Whom the scheduler puts together, nobody knows: each of these is as likely as the others. Among many ranks they
    // differ little.
    const std::size_t ranks = rehearsal.programs.size(), cores = std::min(ranks, static_cast<std::size_t>(rates.cores));
    std::vector<int> in_turn, together, folded;
    for (std::size_t p = 0; p < ranks; ++p) {
        const std::size_t row = p / cores, column = p % cores;
        in_turn.push_back(static_cast<int>(column));
        together.push_back(static_cast<int>(p * cores / ranks));
        folded.push_back(static_cast<int>(row % 2 == 0 ? column : cores - 1 - column));
    }
    if (many) return play(in_turn);
    return (play(in_turn) + play(together) + play(folded)) / 3;
}

}  // namespace tutti
