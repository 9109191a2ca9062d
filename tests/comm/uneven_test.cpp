// Collectives whose rows differ in length: random counts with zeros and large skews, rows in any order with gaps
// between them, every algorithm.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "harness/uneven.hpp"

using namespace tutti;
using namespace harness::uneven;
using harness::must_succeed;

namespace {

/// Threads that are the ranks of a communicator; algorithm: the only one, where it fits.
class Threads {
  public:
    explicit Threads(int ranks, const char* algorithm = nullptr, bool check = false, bool reproducible = false)
        : comms_(at(ranks)) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.algorithm = algorithm;
        config.timeoutMs = 20000;
        config.check = check;
        config.reproducible = reproducible;
        const tuttiUniqueId id = harness::new_id();
        harness::run(ranks, [&](int rank) {
            must_succeed(tuttiCommInitRankConfig(&comms_[at(rank)], ranks, id, rank, &config), "init");
        });
    }
    ~Threads() {
        for (tuttiComm_t comm : comms_) tuttiCommDestroy(comm);
    }
    Threads(const Threads&) = delete;
    int ranks() const { return static_cast<int>(comms_.size()); }
    tuttiComm_t operator[](int rank) const { return comms_[at(rank)]; }

    void run(const std::vector<Case>& cases) {
        harness::run(ranks(), [&](int rank) {
            for (const Case& c : cases) {
                Caller caller(c, rank, ranks());
                must_succeed(caller.call(comms_[at(rank)], nullptr), name_of(c.what).data());
                caller.check();
            }
        });
    }

  private:
    std::vector<tuttiComm_t> comms_;
};

}  // namespace

TEST_CASE("uneven: every collective, 1 to 9 ranks, with zeros and skews, in place and not", "[exhaustive]") {
    const int ranks = GENERATE(1, 2, 3, 4, 5, 7, 9);
    const bool mapped = GENERATE(false, true);
    CAPTURE(ranks, mapped);
    if (harness::sanitized && (ranks == 2 || ranks > 4)) return;  // that took a minute
    Threads(ranks).run(many_cases(ranks, 100u * at(ranks), mapped));
}

TEST_CASE("uneven: every algorithm that can, the others are passed over", "[exhaustive]") {
    size_t number = 0;
    for (const Algorithm& a : algorithms())
        for (const int ranks : {2, 3, 6}) {
            if (harness::sanitized && ranks != 3) continue;
            if (!a.supports(Collective::all_gather) && !a.supports(Collective::gather)) continue;
            CAPTURE(a.name, ranks);
            std::vector<Case> cases = many_cases(ranks, 17, ranks == 3 && !harness::sanitized);
            if (harness::sanitized)  // a third of them, another one for each algorithm
                for (size_t i = cases.size(); i-- > 0;)
                    if ((i + number) % 3 != 0) cases.erase(cases.begin() + static_cast<std::ptrdiff_t>(i));
            ++number;
            Threads(ranks, a.name.data()).run(cases);
        }
}

TEST_CASE("uneven: every type and op", "[exhaustive]") {
    std::vector<Case> cases;
    for (int type = 0; type < tuttiNumTypes; ++type)
        for (const Collective what : uneven_collectives)
            for (const tuttiRedOp_t op : {tuttiSum, tuttiMax}) {
                if (op == tuttiMax && what != Collective::reduce_scatter) continue;
                Counts counts(rows_in(what, 3));
                for (size_t i = 0; i < counts.size(); ++i) counts[i] = i % 3 == 1 ? 0 : 1 + i * 1000;
                cases.push_back({what, counts, static_cast<tuttiDataType_t>(type), op, 2});
            }
    Threads(3).run(cases);
}

TEST_CASE("uneven: among even ones of the same counts, also with reproducible sums and with check") {
    const bool check = GENERATE(false, true), reproducible = GENERATE(false, true);
    Threads threads(3, "ring", check, reproducible);
    harness::run(3, [&](int rank) {
        for (int round = 0; round < 5; ++round)
            for (const Collective what : uneven_collectives) {
                harness::run_case({what == Collective::all_to_all       ? harness::Case::What::all_to_all
                                   : what == Collective::gather         ? harness::Case::What::gather
                                   : what == Collective::scatter        ? harness::Case::What::scatter
                                   : what == Collective::reduce_scatter ? harness::Case::What::reduce_scatter
                                                                        : harness::Case::What::all_gather,
                                   100},
                                  threads[rank], rank, 3);
                const Case c{what, Counts(rows_in(what, 3), 100)};
                Caller caller(c, rank, 3);
                must_succeed(caller.call(threads[rank], nullptr), "call");
                caller.check();
            }
    });
    SUCCEED();
}

TEST_CASE("uneven: one thread drives all ranks in a group, several calls") {
    const int n = GENERATE(2, 4);
    const std::vector<Case> cases = many_cases(n, 5);
    Threads threads(n);
    std::vector<std::unique_ptr<Caller>> callers;
    for (size_t i = 0; i + 2 < cases.size(); i += 3) {
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        for (int r = 0; r < n; ++r)
            for (size_t k = i; k < i + 3; ++k) {
                callers.push_back(std::make_unique<Caller>(cases[k], r, n));
                REQUIRE(callers.back()->call(threads[r], nullptr) == tuttiSuccess);
            }
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
        for (const auto& caller : callers) REQUIRE_NOTHROW(caller->check());
        callers.clear();
    }
}

TEST_CASE("uneven: on streams, whose work comes when the arrays are gone") {
    const int n = 3;
    const std::vector<Case> cases = many_cases(n, 9);
    Threads threads(n);
    std::vector<tuttiStream_t> streams(at(n));
    std::vector<std::unique_ptr<Caller>> callers;
    for (int r = 0; r < n; ++r) {
        REQUIRE(tuttiStreamCreate(&streams[at(r)]) == tuttiSuccess);
        for (const Case& c : cases) {
            callers.push_back(std::make_unique<Caller>(c, r, n));
            REQUIRE(callers.back()->call(threads[r], streams[at(r)]) == tuttiSuccess);
        }
    }
    for (tuttiStream_t s : streams) REQUIRE(tuttiStreamSynchronize(s) == tuttiSuccess);
    for (const auto& caller : callers) REQUIRE_NOTHROW(caller->check());
    for (tuttiStream_t s : streams) REQUIRE(tuttiStreamDestroy(s) == tuttiSuccess);
}

TEST_CASE("uneven: ranks that disagree are told both counts, at once, and nothing is written beyond") {
    struct Difference {
        Collective what;
        size_t theirs, mine;  // what rank 1 has for rank 0, and what rank 0 thinks it has
        std::vector<std::string> words;
    };
    std::vector<Difference> differences;
    constexpr size_t tile = 16384;  // where whole tiles are equal the message must say more
    for (const auto& [theirs, mine] : {std::pair<size_t, size_t>{0, 5},
                                       {5, 0},
                                       {5, 6},
                                       {100000, tile},
                                       {tile * 3, tile * 4},
                                       {tile * 4, tile * 3},
                                       {tile + 5, tile + 6}}) {
        const std::string a = std::to_string(theirs), b = std::to_string(mine);
        for (const Collective what : {Collective::all_to_all, Collective::gather})
            differences.push_back({what, theirs, mine, {"rank 0 expects " + b, "rank 1 sends it " + a}});
        differences.push_back({Collective::scatter, theirs, mine, {"rank 0 expects " + b, "rank 1 sends it " + a}});
        for (const Collective what : {Collective::all_gather, Collective::reduce_scatter})
            differences.push_back({what, theirs, mine, {"rank 0 calls ", ", but rank ", " elements, counts #"}});
    }
    for (const Difference& d : differences) {
        CAPTURE(std::string(name_of(d.what)), d.theirs, d.mine);
        Threads threads(3);
        std::atomic<int> told{0}, gave_up{0}, rows_only{0};
        harness::run(3, [&](int rank) {
            const size_t here = rank == 0 ? d.mine : d.theirs;
            Counts counts(rows_in(d.what, 3), 2);
            if (d.what == Collective::all_to_all)
                counts[1 * 3 + 0] = here;
            else
                counts[d.what == Collective::scatter ? 0 : 1] = here;
            const Case c{d.what, counts, tuttiFloat32, tuttiSum, d.what == Collective::scatter ? 1 : 0};
            Caller caller(c, rank, 3);
            tuttiResult_t result = caller.call(threads[rank], nullptr);
            float x = 0;  // a rank that has got all that it expects is told by its next call
            if (result == tuttiSuccess)
                result = tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, threads[rank], nullptr);
            const std::string text = tuttiGetLastError(threads[rank]);
            const auto says = [&](const std::string& word) { return text.find(word) != std::string::npos; };
            // One that hears of it while it reads a peer's memory knows only that the peer has given up.
            const bool expected = result == tuttiInvalidUsage || result == tuttiRemoteError;
            told += expected && std::ranges::all_of(d.words, says);
            gave_up += expected && says("has given up");
            rows_only += caller.rows_only();
        });
        REQUIRE(told >= 1);
        REQUIRE(told + gave_up >= 3);
        REQUIRE(rows_only == 3);
    }
}
