// Environment variables: numbers, TUTTI_ALGO and NCCL_ALGO, TUTTI_FAULT, and all others that are read at the start.
#include "base/config.hpp"
#include "fuzz.hpp"
#include "plan/allowed.hpp"
#include "surroundings.hpp"
#include "transport/faulty.hpp"

using namespace tutti;

FUZZ_TARGET(environment) {
    std::map<std::string, std::string> variables;
    const std::span<const Variable> table = tutti::variables();
    for (int i = 0; i < 6 && !in.empty(); ++i) {
        const char* const name = table[in.below(static_cast<std::uint32_t>(table.size()))].name;
        variables[name] = in.line();
    }
    const std::string list = in.line();
    const fuzz::Surroundings surroundings(variables);
    fuzz::accepts([&] {
        const Config c = read_config();
        TUTTI_ASSERT(c.timeout_ms > 0 && c.sockets >= 0 && c.sockets <= 16 && c.channels >= 0 && c.channels <= 8);
        TUTTI_ASSERT(c.round_trip_us >= -1 && c.round_trip_us <= 60'000'000);
        TUTTI_ASSERT(c.ib_gid_index >= -1 && c.ib_gid_index <= 255 && c.spin_us >= -1);
        if (!environment("TUTTI_ALGO")) TUTTI_ASSERT(fuzz::accepts([&] { Allowed::parse(c.algorithm); }));
        FaultPlan::parse(c.fault);
    });
    fuzz::accepts([&] {
        const Allowed allowed = Allowed::parse(list);
        for (const Algorithm& a : algorithms()) allowed.allows(Collective::all_reduce, a);
    });
    fuzz::accepts([&] {
        const FaultPlan plan = FaultPlan::parse(list);
        TUTTI_ASSERT(plan.delay_one_in >= 0 && plan.tear_one_in >= 0 && plan.drop_one_in >= 0);
    });
}
