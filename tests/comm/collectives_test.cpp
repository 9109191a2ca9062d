// Every collective, type, op and algorithm between ranks that are threads of this process.
#include <sched.h>

#include <atomic>
#include <cmath>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/data.hpp"
#include "harness/harness.hpp"
#include "kernels/convert.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// A communicator of threads.
class Threads {
  public:
    explicit Threads(int ranks) : comms_(static_cast<size_t>(ranks)) {
        harness::must_succeed(tuttiCommInitAll(comms_.data(), ranks, nullptr), "tuttiCommInitAll");
    }
    /// With one algorithm only, where it fits.
    Threads(int ranks, const char* algorithm) : comms_(static_cast<size_t>(ranks)) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.algorithm = algorithm;
        const tuttiUniqueId id = new_id();
        harness::run(ranks, [&](int rank) {
            harness::must_succeed(tuttiCommInitRankConfig(&comms_[static_cast<size_t>(rank)], ranks, id, rank, &config),
                                  "init");
        });
    }
    /// Made by threads that have called `prepare` before.
    Threads(int ranks, const std::function<void(int rank)>& prepare) : comms_(static_cast<size_t>(ranks)) {
        const tuttiUniqueId id = new_id();
        harness::run(ranks, [&](int rank) {
            prepare(rank);
            harness::must_succeed(tuttiCommInitRank(&comms_[static_cast<size_t>(rank)], ranks, id, rank), "init");
        });
    }
    tuttiComm_t comm(int rank) const { return comms_[static_cast<size_t>(rank)]; }
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
                                          Case::What::broadcast,  Case::What::reduce,         Case::What::all_to_all,
                                          Case::What::gather,     Case::What::scatter};

constexpr Collective collective_of[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                        Collective::broadcast,  Collective::reduce,         Collective::all_to_all,
                                        Collective::gather,     Collective::scatter};

}  // namespace

TEST_CASE("every collective at sizes around every threshold, in place and not", "[exhaustive]") {
    const int ranks = GENERATE(1, 2, 3, 5, 8);
    CAPTURE(ranks);
    if (harness::sanitized && ranks > 5) return;  // that took a minute
    std::vector<Case> cases;
    for (Case::What what : all_collectives)
        for (size_t count : {0, 1, 2, 7, 12, 13, 100, 1023, 1025, 5000, 40001, 300007})
            for (Where where : {Where::out_of_place, Where::in_place})
                for (bool mapped : {false, true}) {
                    if (mapped && count < 5000) continue;
                    if (harness::sanitized && ranks > 2 && count > 100'000) continue;
                    cases.push_back({what, count, tuttiFloat32, tuttiSum, ranks - 1, where, mapped, count % 3});
                }
    Threads(ranks).run(cases);
}

TEST_CASE("every collective among ranks that a ring visits in another order than their numbers'", "[exhaustive]") {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    std::vector<size_t> cores;
    for (size_t core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, &allowed)) cores.push_back(core);
    const int ranks = 5;
    Threads threads(ranks, [&](int rank) {  // two cores, the second one's ranks first; with one there is no order
        cpu_set_t core;
        CPU_ZERO(&core);
        CPU_SET(rank < 3 ? cores.back() : cores.front(), &core);
        harness::check(sched_setaffinity(0, sizeof core, &core) == 0, "sched_setaffinity");
    });
    std::vector<Case> cases;
    for (Case::What what : all_collectives)
        for (size_t count : {1, 100, 40001})
            for (int root : {0, 4})
                for (bool mapped : {false, true})
                    cases.push_back({what, count, tuttiFloat32, tuttiSum, root, Where::out_of_place, mapped});
    threads.run(cases);
}

TEST_CASE("every type and op", "[exhaustive]") {
    std::vector<Case> cases;
    for (int type = 0; type < tuttiNumTypes; ++type)
        for (int op = 0; op < tuttiNumOps; ++op)
            for (size_t count : {1, 33, 5001})
                for (Case::What what : {Case::What::all_reduce, Case::What::reduce_scatter, Case::What::reduce})
                    cases.push_back({what, count, static_cast<tuttiDataType_t>(type), static_cast<tuttiRedOp_t>(op), 1,
                                     Where::out_of_place, false, 1});
    Threads(3).run(cases);
}

TEST_CASE("every algorithm and collective at odd sizes", "[exhaustive]") {
    for (const Algorithm& a : algorithms())
        for (const int ranks : {2, 3, 5}) {
            if (harness::sanitized && ranks != 3) continue;
            CAPTURE(a.name, ranks);
            std::vector<Case> cases;
            for (Case::What what : all_collectives) {
                if (!a.supports(collective_of[static_cast<size_t>(what)])) continue;
                for (size_t count : {1, 3, 11, 67, 1025, 30011})
                    for (Where where : {Where::out_of_place, Where::in_place})
                        cases.push_back(
                            {what, count, tuttiFloat32, tuttiAvg, ranks / 2, where, count > 10000, count % 3});
                cases.push_back({what, 5003, tuttiFloat64, tuttiSum, ranks - 1});
                cases.push_back({what, 4097, tuttiInt8, tuttiMax, 0});
            }
            if (!cases.empty()) Threads(ranks, a.name.data()).run(cases);
        }
}

TEST_CASE("what ranks give reaches the extremes of every type, in both signs and all bytes") {
    constexpr size_t count = 4000;
    for (int t = 0; t < tuttiNumTypes; ++t) {
        const auto type = static_cast<DataType>(t);
        const bool integer = is_integer(type), is_signed = has_sign(type);
        const size_t size = size_of(type);
        std::vector<unsigned char> data(count * size);
        for (const auto op : {std::optional<tuttiRedOp_t>(), {tuttiSum}, {tuttiMax}, {tuttiProd}}) {
            CAPTURE(t, op ? static_cast<int>(*op) : -1);
            harness::Data{static_cast<tuttiDataType_t>(t), op}.put_input(1, 0, count, data.data());
            std::set<double> values;
            size_t nans = 0;
            for (size_t i = 0; i < count; ++i) {
                const double value = load_as_double(type, &data[i * size]);
                std::isnan(value) ? void(++nans) : void(values.insert(value));
            }
            CHECK((nans > 0) == (!op && !integer));
            const double least = *values.begin(), most = *values.rbegin();
            CHECK((least < 0) == is_signed);
            if (integer) {
                CHECK(most == std::ldexp(1, static_cast<int>(size) * 8 - is_signed) - (size < 8));
                CHECK(least == (is_signed ? -std::ldexp(1, static_cast<int>(size) * 8 - 1) : 0));
            } else if (op != tuttiProd) {
                CHECK(*values.upper_bound(0) < (size == 1 ? 0.1 : 1e-3));
                if (op == tuttiMax) CHECK((std::isinf(most) && std::isinf(least)) == (type != DataType::float8e4m3));
            }
        }
    }
}

TEST_CASE("all types go where they belong") {
    std::vector<Case> cases;
    for (int type = 0; type < tuttiNumTypes; ++type)
        for (size_t count : {1, 33, 5001})
            for (Case::What what : {Case::What::all_to_all, Case::What::gather, Case::What::scatter})
                cases.push_back({what, count, static_cast<tuttiDataType_t>(type), tuttiSum, 2});
    Threads(3).run(cases);
}

TEST_CASE("nobody leaves a barrier before all have come") {
    for (const char* algorithm : {"dissemination", "flat"})
        for (const int ranks : {1, 2, 3, 5}) {
            CAPTURE(algorithm, ranks);
            Threads threads(ranks, algorithm);
            std::atomic<int> arrived{0};
            harness::run(ranks, [&](int rank) {
                for (int round = 1; round <= 50; ++round) {
                    ++arrived;
                    harness::must_succeed(tuttiBarrier(threads.comm(rank), nullptr), "tuttiBarrier");
                    if (arrived < round * ranks) throw std::runtime_error("a rank left the barrier too early");
                }
            });
        }
}

TEST_CASE("all to all refuses to be in place") {
    Threads threads(1);
    float data[4] = {};
    CHECK(tuttiAlltoAll(data, data, 4, tuttiFloat32, threads.comm(0), nullptr) == tuttiInvalidArgument);
}
