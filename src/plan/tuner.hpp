// Chooses the algorithm of a call, the size of its tiles and the number of channels (schedule/tiling.hpp): the cheapest
// by the cost model (schedule/cost.hpp), corrected by what `tutti-tune` has measured on this machine, if it has. A
// decision is a function of what all ranks know, so all ranks decide alike without exchanging a message. Where they
// outnumber cores, one rank of a host decides for all (shared_decisions.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "plan/allowed.hpp"
#include "plan/platform.hpp"
#include "plan/shared_decisions.hpp"
#include "plan/tuning.hpp"

namespace tutti {

/// An algorithm for a call, with the way in which the call would run and its price.
struct Candidate {
    const Algorithm* algorithm = nullptr;
    std::string refusal;  // why it can't be used; if empty, what follows is valid
    TileShape shape;
    int rows = 1;           // of the program that has the most
    TileLimits limits;      // the platform's, narrowed to the choice
    Tiling tiling;          // for the bytes asked about, in bytes
    Price price;            // for those bytes
    double correction = 1;  // measured over computed time
    double time = 0;        // in microseconds: the price's time, corrected
    bool closed_form = false;

    /// The tiling of a call with `count` elements of `element` bytes by this candidate.
    Tiling tiling_of(std::size_t count, std::size_t element) const {
        Tiling t = tile(count, element, shape, limits);
        t.threads = std::min(price.threads, t.channels);
        return t;
    }
};

/// A number for the algorithm, the same on all ranks: names are unique, and the ranks compared user algorithms when
/// they met.
std::uint32_t number_of(const Algorithm& algorithm);

/// What decides how a call runs: calls with equal questions share a plan.
struct Question {
    Collective collective;
    std::size_t bytes = 0;  // of a rank's larger buffer; uneven: 0 if ranks do not know all lengths
    Rank root = 0;
    bool uneven = false;    // rows differ in length: only algorithms that are uneven_safe can do it
    bool mappable = false;  // peers can map all ranks' buffers: large messages go by reference
    bool altered = false;   // inputs are scaled on their way, or results divided
    DataType type{};        // the tuner ignores it, and call_op
    std::uint8_t call_op = 0;

    friend bool operator==(const Question&, const Question&) = default;
};

/// Shared by the communicators of a process that would make equal ones. Any thread may use it; it has a lock of its
/// own.
class Tuner {
  public:
    /// The tuner of all communicators of this process that would make an equal one, as the ranks of one communicator
    /// do: so each question is computed once for all of them. It lives as long as one of them holds it.
    static std::shared_ptr<Tuner> shared(Platform platform, Allowed allowed, bool reproducible,
                                         std::shared_ptr<const Tuning> tuning,
                                         std::shared_ptr<const UserAlgorithms> own);

    /// allowed, tuning, own (algorithms from files; nullptr if there are none) must be the same on all ranks. If none
    /// of the allowed algorithms can do what is asked for, the list is ignored for it: one setting serves a whole
    /// program.
    Tuner(Platform platform, Allowed allowed, bool reproducible, std::shared_ptr<const Tuning> tuning,
          std::shared_ptr<const UserAlgorithms> own = nullptr);
    ~Tuner();

    /// The best candidate. Sizes from one power of two to the next are decided alike. Valid as long as the tuner.
    /// Throws tuttiInvalidUsage if no algorithm can do it. shared: decisions of this host's ranks, all of which have an
    /// equal platform; nullptr: none. If another rank has decided, of the price only `threads` is known.
    const Candidate& choose(const Question& question, SharedDecisions* shared = nullptr);

    /// All algorithms that support the collective, the best first; those with a refusal last.
    std::vector<Candidate> candidates(const Question& question);

    const Platform& platform() const { return platform_; }
    const Allowed& allowed() const { return allowed_; }
    /// Whether a decision takes so long that ranks of one host had better share it.
    bool decides_slowly() const;

    /// How many steps and switches were simulated for all decisions so far: a measure of their cost.
    std::size_t played() const;

  private:
    struct Subject;  // one algorithm for one collective, with its rehearsal
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
    struct LastTile {  // the last tile priced, for one subject and question
        std::size_t bytes = SIZE_MAX;
        bool by_reference = false, cached = false;
        Price price;
    };
    using DecisionKey = std::tuple<Key, int, bool, bool>;  // with the power of two, mappable and altered
    std::uint64_t number_of(const DecisionKey& key) const;
    static Decision decision_of(const Candidate& candidate);
    std::optional<Candidate> candidate_of(const Decision& decision, const Question& question) const;
    Candidate decide(const Question& question);
    Candidate cut(const Subject& subject, const Question& question, const TileLimits& limits, LastTile& last) const;
    const char* objection(const Algorithm& algorithm, const Question& question) const;

    const Platform platform_;
    const Allowed allowed_;
    const bool reproducible_;
    const std::shared_ptr<const Tuning> tuning_;
    const std::shared_ptr<const UserAlgorithms> own_;
    mutable std::mutex mutex_;  // guards the next two
    std::map<Key, std::vector<Subject>> subjects_;
    std::map<DecisionKey, Candidate> decided_;
};

}  // namespace tutti
