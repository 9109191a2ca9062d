// Which algorithm a call gets, and in tiles of which size on how many channels its data goes: the cheapest by the cost
// model (schedule/cost.hpp), corrected by what `tutti-tune` has measured on this machine, where it has. A decision is a
// function of what all ranks know, so all of them decide alike, without a word.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "schedule/cost.hpp"
#include "tuner/allowed.hpp"
#include "tuner/tuning.hpp"

namespace tutti {

/// Where a communicator's ranks run, as all of them see it.
struct Platform {
    int ranks = 1;
    Rates rates;
    Line line{0.1, 0};                   // of the slowest transport among them
    Line near{0.1, 0};                   // between ranks of one host, where there are several
    std::vector<int> host_of;            // by part; empty: there is one host
    std::vector<int> core_of;            // by part, where each is bound to one core; empty: unknown
    std::vector<int> nodes;              // parts of each host, see Request; empty: hosts are no nodes
    std::string transport = "shm";       // its name, for what was measured
    bool sees_regions = false;           // by it peers see what is mappable of a rank's memory, and nothing else
    std::size_t cache_bytes = 32 << 20;  // of the largest cache
    std::size_t near_bytes = 32 << 20;   // of the caches that the cores have for themselves, together
    int channels = 0;                    // 0: as the model says
    int most_channels = 1;
    std::size_t most_tile = 0;  // bytes

    friend bool operator==(const Platform&, const Platform&) = default;
    bool oversubscribed() const { return ranks > rates.cores; }
    Line line_between(Rank a, Rank b) const {
        if (host_of.empty()) return line;
        return host_of[static_cast<std::size_t>(a)] == host_of[static_cast<std::size_t>(b)] ? near : line;
    }
};

/// How large data is cut.
struct Chunking {
    std::size_t tile = 0;  // bytes
    int channels = 1;
};

struct Candidate {
    const Algorithm* algorithm = nullptr;
    std::string refusal;  // why it is out of the question; what follows is valid if it is empty
    Chunking chunking;
    std::size_t chunk_bytes = 0;
    std::uint32_t tiles = 1;
    Price price;
    double correction = 1;  // measured over computed
    double time = 0;        // in microseconds: the price's, corrected
    bool closed_form = false;
};

/// What a call asks for.
struct Question {
    Collective collective;
    std::size_t bytes = 0;  // of the larger one of a rank's buffers; uneven: 0 where ranks do not know all lengths
    Rank root = 0;
    bool uneven = false;    // rows differ in length, which takes algorithms that are uneven_safe
    bool mappable = false;  // peers can map all ranks' buffers, so large messages go by reference
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
    void play(Subject& subject) const;
    void prefer_balanced(std::vector<Candidate>& sorted, std::size_t bytes) const;
    Candidate judge(const Subject& subject, const Question& question) const;
    Candidate weigh(const Subject& subject, std::size_t bytes, bool mappable) const;
    void price_by_form(Candidate& candidate, const Subject& subject, const Pieces& pieces, const Rates& rates) const;
    Candidate cut(const Subject& subject, std::size_t bytes, Chunking chunking, bool mappable) const;
    const char* objection(const Algorithm& algorithm, const Question& question) const;

    const Platform platform_;
    const Allowed allowed_;
    const bool reproducible_;
    const std::shared_ptr<const Tuning> tuning_;
    const std::shared_ptr<const UserAlgorithms> own_;
    mutable std::mutex mutex_;  // of what follows
    std::map<Key, std::vector<Subject>> subjects_;
    std::map<std::tuple<Key, int, bool>, Candidate> decided_;  // by power of two, and whether mappable
};

}  // namespace tutti
