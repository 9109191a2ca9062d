#include "schedule/oversubscription.hpp"

#include <algorithm>
#include <limits>

#include "schedule/to_all.hpp"

namespace tutti {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr std::uint32_t most_tiles = 12;  // the first and the last are not counted
constexpr std::uint32_t few_tiles = 4;    // among many ranks, where chance evens out within a tile
constexpr std::size_t many_ranks = 17;

/// The steps of all ranks, reduced to what the simulation needs. Computed once and played several times.
struct Score {
    struct Note {
        std::uint32_t message, peer;  // peer: the program that it comes from or goes to
        double alpha;                 // latency
    };
    struct Turn {
        double work;
        std::uint32_t first, received, sent;  // first note; messages waited for, then messages sent
    };
    std::vector<Note> notes;
    std::vector<std::vector<Turn>> turns;  // by program
    std::size_t messages;
    double work = 0;  // of all ranks

    Score(const Rehearsal& r, const Rates& rates, const std::function<Line(Rank, Rank)>& line)
        : messages(r.matching.messages.size()) {
        std::vector<double> alpha;  // by connection
        for (const PairOfRanks& c : r.matching.connections)
            alpha.push_back(line(r.programs[c.from].rank, r.programs[c.to].rank).alpha_us);
        for (std::uint32_t p = 0; p < r.programs.size(); ++p) {
            std::vector<Turn>& its = turns.emplace_back();
            its.reserve(r.programs[p].steps.size());
            for (const Step& s : r.programs[p].steps) work += its.emplace_back(turn(r, rates, alpha, p, s)).work;
        }
    }

  private:
    Turn turn(const Rehearsal& r, const Rates& rates, const std::vector<double>& alpha, std::uint32_t p,
              const Step& s) {
        const bool once = rates.to_all && sends_to_all(r.programs[p], s);
        Turn turn{rates.step, static_cast<std::uint32_t>(notes.size()), 0, 0};
        for (std::uint32_t i = s.first; i < s.first + s.sources + s.sinks; ++i) {
            const std::uint32_t part = r.matching.part_of[p][i];
            if (part == Matching::none) continue;
            const bool receives = i < s.first + s.sources, last = r.matching.parts[part].last;
            if (last && (receives || !once)) turn.work += rates.message;
            if (!receives && !last) continue;
            const std::uint32_t message = r.matching.parts[part].message, c = r.matching.messages[message].connection;
            const PairOfRanks& pair = r.matching.connections[c];
            notes.push_back({message, receives ? pair.from : pair.to, alpha[c]});
            ++(receives ? turn.received : turn.sent);
        }
        if (once) turn.work += rates.message;
        return turn;
    }
};

/// Simulates the cores: the one that is furthest behind in time acts next.
class Cores {
  public:
    Cores(const Score& score, const Rates& rates, std::span<const int> core_of, std::uint32_t tiles)
        : score_(score),
          rates_(rates),
          tiles_(tiles),
          switching_(std::max(rates.switching, 0.01)),
          arrives_(tiles * score.messages, never),
          ranks_(score.turns.size()) {
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

    /// Runs until all ranks have finished the last counted tile. Returns the time lost per tile, or `enough` as soon as
    /// the result is certain to be no less.
    double run(double enough) {
        const double counted = tiles_ - 2;
        for (; through_[tiles_ - 2] < ranks_.size(); ++played_) {
            Core& core = *std::ranges::min_element(cores_, {}, &Core::now);
            if (through_[0] == ranks_.size() && core.now > done_[0] + counted * (enough + score_.work / rates_.cores))
                return enough;
            step(core);
        }
        return (done_[tiles_ - 2] - done_[0] - work_ / rates_.cores) / counted;
    }

    std::size_t played() const { return played_; }

  private:
    struct Player {
        std::uint32_t core = 0, tile = 0, step = 0;
        double free = 0;   // when its last step ended
        double ready = 0;  // when its next step can begin; never: some message has not been sent
    };
    struct Core {
        std::vector<std::uint32_t> seats;  // the ranks that share it
        std::size_t seat = 0;              // index of the rank that runs
        double now = 0;
        bool cold = true;  // another rank ran before
    };

    /// When the message of the player's tile arrives.
    double& arrival(const Player& player, const Score::Note& note) {
        return arrives_[player.tile * score_.messages + note.message];
    }
    const Score::Turn& turn_of(std::uint32_t p) const { return score_.turns[p][ranks_[p].step]; }
    std::span<const Score::Note> received(const Score::Turn& turn) const {
        return {score_.notes.data() + turn.first, turn.received};
    }
    std::span<const Score::Note> sent(const Score::Turn& turn) const {
        return {score_.notes.data() + turn.first + turn.received, turn.sent};
    }

    /// Ends tiles that player p has finished, and computes when its next step can begin.
    void settle(std::uint32_t p) {
        Player& player = ranks_[p];
        const std::size_t turns = score_.turns[p].size();
        while (player.tile < tiles_ && player.step == turns) {
            done_[player.tile] = std::max(done_[player.tile], player.free);
            ++through_[player.tile];
            player.step = 0;
            ++player.tile;
        }
        player.ready = player.tile == tiles_ ? never : player.free;
        if (player.tile == tiles_) return;
        for (const Score::Note& note : received(turn_of(p)))
            player.ready = std::max(player.ready, arrival(player, note));
    }

    /// Advances a core: its rank executes a step, or yields to the next rank.
    void step(Core& core) {
        const std::uint32_t p = core.seats[core.seat];
        if (ranks_[p].ready <= core.now) {
            core.now = play(p, core.now + (core.cold ? rates_.cold : 0));
            core.cold = false;
        } else {
            core.now += switching_ * shake();
            core.seat = (core.seat + 1) % core.seats.size();
            core.cold = true;
            // On long paths all ranks wait for thousands of switches: skip most of them.
            if (core.seat == 0) core.now = std::max(core.now, next_turn() - 32 * switching_);
        }
    }

    /// The earliest time at which some rank can go on.
    double next_turn() const { return std::ranges::min(ranks_, {}, &Player::ready).ready; }

    /// A random factor of the time of a switch, 0.5 to 1.5, so that programs do not look good by lucky timing. The same
    /// sequence on all ranks, which must decide alike: an LCG (D. Knuth: MMIX).
    double shake() {
        random_ = random_ * 6364136223846793005u + 1442695040888963407u;
        return 0.5 + static_cast<double>(random_ >> 40) / static_cast<double>(1 << 24);
    }

    /// Executes player p's next step and returns when it ends.
    double play(std::uint32_t p, double start) {
        Player& player = ranks_[p];
        const Score::Turn& turn = turn_of(p);
        if (player.tile > 0 && player.tile < tiles_ - 1) work_ += turn.work;
        player.free = start + turn.work;
        ++player.step;
        for (const Score::Note& note : sent(turn)) {
            arrival(player, note) = player.free + note.alpha;
            const Player& peer = ranks_[note.peer];
            if (note.peer != p && peer.ready == never && peer.tile == player.tile) settle(note.peer);
        }
        settle(p);
        return player.free;
    }

    const Score& score_;
    const Rates& rates_;
    const std::uint32_t tiles_;
    const double switching_;
    std::vector<double> arrives_;  // by tile and message
    std::vector<Player> ranks_;
    std::vector<Core> cores_;
    std::uint64_t random_ = 1;
    double done_[most_tiles] = {};          // by tile: when the last rank finished it
    std::size_t through_[most_tiles] = {};  // by tile: how many ranks have finished it
    double work_ = 0;                       // of the counted tiles
    std::size_t played_ = 0;
};

}  // namespace

double lost_by_sharing(const Rehearsal& rehearsal, const Rates& rates, const std::function<Line(Rank, Rank)>& line,
                       std::span<const int> core_of, std::size_t* played, double enough) {
    const bool many = rehearsal.programs.size() >= many_ranks;
    const Score score(rehearsal, rates, line);
    const auto play = [&](std::span<const int> placed, double most) {
        Cores cores(score, rates, placed, many ? few_tiles : most_tiles);
        const double lost = cores.run(most);
        if (played != nullptr) *played += cores.played();
        return std::max(0.0, lost);
    };
    if (!core_of.empty()) return play(core_of, enough);
    // The scheduler's placement is unknown, so average over three. Among many ranks they differ little.
    const std::size_t ranks = rehearsal.programs.size(), cores = std::min(ranks, static_cast<std::size_t>(rates.cores));
    std::vector<int> in_turn, together, folded;
    for (std::size_t p = 0; p < ranks; ++p) {
        const std::size_t row = p / cores, column = p % cores;
        in_turn.push_back(static_cast<int>(column));
        together.push_back(static_cast<int>(p * cores / ranks));
        folded.push_back(static_cast<int>(row % 2 == 0 ? column : cores - 1 - column));
    }
    if (many) return play(in_turn, enough);
    double lost = 0;
    for (const std::vector<int>* deal : {&in_turn, &together, &folded})
        if (lost < 3 * enough) lost += play(*deal, 3 * enough - lost);
    return lost / 3;
}

}  // namespace tutti
