// Which algorithm a call gets, and in tiles of which size on how many channels its data goes (schedule/tiling.hpp): the
// cheapest by the cost model (schedule/cost.hpp), corrected by what `tutti-tune` has measured on this machine, where it
// has. A decision is a function of what all ranks know, so all of them decide alike, without a word.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "plan/allowed.hpp"
#include "plan/platform.hpp"
#include "plan/tuning.hpp"

namespace tutti {

struct Candidate {
    const Algorithm* algorithm = nullptr;
    std::string refusal;  // why it is out of the question; what follows is valid if it is empty
    TileShape shape;
    TileLimits limits;      // the platform's, narrowed to what is chosen
    Tiling tiling;          // of the bytes that were asked about, in bytes
    Price price;            // of these
    double correction = 1;  // measured over computed
    double time = 0;        // in microseconds: the price's, corrected
    bool closed_form = false;

    /// How a call of this candidate runs: tiling, but for the count and element that it has.
    Tiling tiling_of(std::size_t count, std::size_t element) const {
        Tiling t = tile(count, element, shape, limits);
        t.threads = std::min(price.threads, t.channels);
        return t;
    }
};

/// What of a call decides how it runs: calls of which this is equal have one plan.
struct Question {
    Collective collective;
    std::size_t bytes = 0;  // of the larger one of a rank's buffers; uneven: 0 where ranks do not know all lengths
    Rank root = 0;
    bool uneven = false;    // rows differ in length, which takes algorithms that are uneven_safe
    bool mappable = false;  // peers can map all ranks' buffers, so large messages go by reference
    bool altered = false;   // inputs are multiplied on their way, or results divided
    DataType type{};        // of no concern to the tuner, as the last one
    std::uint8_t call_op = 0;

    friend bool operator==(const Question&, const Question&) = default;
};

/// Any thread may ask at any time.
class Tuner {
  public:
    /// The same tuner for all communicators of this process that would make equal ones, as the ranks of one
    /// communicator do: so each question is computed once for all of them. It lives as long as one of them.
    static std::shared_ptr<Tuner> shared(Platform platform, Allowed allowed, bool reproducible,
                                         std::shared_ptr<const Tuning> tuning,
                                         std::shared_ptr<const UserAlgorithms> own);

    /// allowed, tuning, own (algorithms from files; nullptr: none): the same on all ranks. A list of allowed ones of
    /// which none is capable of what is asked for does not hold for it: one setting serves a whole program.
    Tuner(Platform platform, Allowed allowed, bool reproducible, std::shared_ptr<const Tuning> tuning,
          std::shared_ptr<const UserAlgorithms> own = nullptr);
    ~Tuner();

    /// bytes: of the larger one of a rank's buffers. Sizes from one power of two to the next are decided alike. Valid
    /// as long as the tuner.
    /// uneven: rows differ in length, which takes algorithms that are uneven_safe; where ranks do not know all lengths,
    /// bytes is 0 on all of them.
    const Candidate& choose(const Question& question);

    /// All that support the collective, the best first; those that are out of the question last.
    std::vector<Candidate> candidates(const Question& question);

    const Platform& platform() const { return platform_; }

    /// Steps and switches that have been simulated for all decisions so far: what they have cost.
    std::size_t played() const;

  private:
    struct Subject;  // an algorithm for one collective, rehearsed
    using Key = std::tuple<Collective, bool, Rank>;
    Key key_of(const Question& question) const;
    std::vector<Subject>& subjects(const Question& question);
    std::vector<const Algorithm*> capable_of(Collective collective, Rank root) const;
    ClosedForm form_of(const Algorithm& algorithm, Collective collective) const;
    ClosedForm busiest_form_of(const Algorithm& algorithm, Collective collective) const;
    std::vector<Subject> rehearse(const Question& question) const;
    std::vector<Candidate> judge_all(const Question& question);
    static void refuse_lavish(std::vector<Subject>& subjects);
    void cast(Subject& subject, Rank root) const;
    void play(Subject& subject, double enough) const;
    void prefer_balanced(std::vector<Candidate>& sorted, std::size_t bytes) const;
    Candidate judge(const Subject& subject, const Question& question) const;
    TileLimits limits_of(const Question& question) const;
    Candidate weigh(const Subject& subject, const Question& question) const;
    void price_by_form(Candidate& candidate, const Subject& subject, const Tiling& tiling, const Rates& rates,
                       Cached cached) const;
    struct LastTile {  // that was priced, of one subject and question
        std::size_t bytes = SIZE_MAX;
        bool by_reference = false, cached = false;
        Price price;
    };
    Candidate cut(const Subject& subject, const Question& question, const TileLimits& limits, LastTile& last) const;
    const char* objection(const Algorithm& algorithm, const Question& question) const;

    const Platform platform_;
    const Allowed allowed_;
    const bool reproducible_;
    const std::shared_ptr<const Tuning> tuning_;
    const std::shared_ptr<const UserAlgorithms> own_;
    mutable std::mutex mutex_;  // of what follows
    std::map<Key, std::vector<Subject>> subjects_;
    std::map<std::tuple<Key, int, bool, bool>, Candidate> decided_;  // by power of two; whether mappable, and altered
};

}  // namespace tutti
