// Every collective, type, op and algorithm between ranks that are threads of this process.
#include <vector>

#include "algorithms/algorithms.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using harness::Case;
using harness::Where;

namespace {

/// A communicator of threads.
class Threads {
  public:
    explicit Threads(int ranks) : comms_(static_cast<size_t>(ranks)) {
        harness::require_success(tuttiCommInitAll(comms_.data(), ranks, nullptr), "tuttiCommInitAll");
    }
    ~Threads() {
        for (tuttiComm_t comm : comms_) tuttiCommDestroy(comm);
    }
    void run(const std::vector<Case>& cases) {
        const int n = static_cast<int>(comms_.size());
        harness::run(n, [&](int rank) {
            for (const Case& c : cases) harness::run_case(c, comms_[static_cast<size_t>(rank)], rank, n);
        });
    }

  private:
    std::vector<tuttiComm_t> comms_;
};

constexpr Case::What all_collectives[] = {Case::What::all_reduce, Case::What::reduce_scatter, Case::What::all_gather,
                                          Case::What::broadcast, Case::What::reduce};

}  // namespace

TEST_CASE("every collective at sizes around every threshold, in place and not") {
    const int ranks = GENERATE(1, 2, 3, 5, 8);
    CAPTURE(ranks);
    std::vector<Case> cases;
    for (Case::What what : all_collectives)
        for (size_t count : {0, 1, 2, 7, 12, 13, 100, 1023, 1025, 5000, 40001, 300007})
            for (Where where : {Where::out_of_place, Where::in_place})
                for (bool mapped : {false, true}) {
                    if (mapped && count < 5000) continue;
                    cases.push_back({what, count, tuttiFloat32, tuttiSum, ranks - 1, where, mapped, count % 3});
                }
    Threads(ranks).run(cases);
}

TEST_CASE("every type and op") {
    std::vector<Case> cases;
    for (int type = 0; type < tuttiNumTypes; ++type)
        for (int op = 0; op < tuttiNumOps; ++op)
            for (size_t count : {1, 33, 5001})
                for (Case::What what : {Case::What::all_reduce, Case::What::reduce_scatter, Case::What::reduce})
                    cases.push_back({what, count, static_cast<tuttiDataType_t>(type), static_cast<tuttiRedOp_t>(op), 1,
                                     Where::out_of_place, false, 1});
    Threads(3).run(cases);
}
