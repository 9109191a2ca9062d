// What launchers and PMIx tell a process, and NCCL_COMM_ID.
#include "base/config.hpp"
#include "bootstrap/launch.hpp"
#include "bootstrap/pmix.hpp"
#include "bootstrap/rendezvous.hpp"
#include "fuzz.hpp"
#include "surroundings.hpp"

using namespace tutti;

namespace {

void check(const Launch& launch) {
    TUTTI_ASSERT(launch.ranks >= 1 && launch.ranks <= 1 << 20 && launch.rank >= 0 && launch.rank < launch.ranks);
    TUTTI_ASSERT(launch.local_ranks >= 0 && launch.local_ranks <= launch.ranks);
    TUTTI_ASSERT(launch.local_rank >= 0 && launch.local_rank < std::max(launch.local_ranks, launch.ranks));
}

/// A number of PMIx has 32 bits.
std::int64_t number(const std::string& digits) {
    return static_cast<std::uint32_t>(std::strtoul(digits.c_str(), nullptr, 10));
}

}  // namespace

FUZZ_TARGET(launchers) {
    static constexpr const char* names[] = {"RANK",
                                            "WORLD_SIZE",
                                            "LOCAL_RANK",
                                            "LOCAL_WORLD_SIZE",
                                            "MASTER_ADDR",
                                            "MASTER_PORT",
                                            "PMI_RANK",
                                            "PMI_SIZE",
                                            "MPI_LOCALRANKID",
                                            "MPI_LOCALNRANKS",
                                            "PMI_FD",
                                            "TUTTI_SECRET",
                                            "SLURM_PROCID",
                                            "SLURM_NTASKS",
                                            "SLURM_LOCALID",
                                            "SLURM_NNODES",
                                            "SLURM_STEP_NUM_NODES",
                                            "SLURM_JOB_ID",
                                            "SLURM_STEP_ID",
                                            "OMPI_COMM_WORLD_RANK",
                                            "OMPI_COMM_WORLD_SIZE",
                                            "OMPI_COMM_WORLD_LOCAL_RANK",
                                            "OMPI_COMM_WORLD_LOCAL_SIZE",
                                            "TORCHELASTIC_USE_AGENT_STORE",
                                            "TORCHELASTIC_RESTART_COUNT",
                                            "PMIX_RANK"};
    static const bool known = (config(), true);  // before the environment changes
    TUTTI_ASSERT(known);
    std::map<std::string, std::string> variables;
    for (int i = 0; i < 10 && !in.empty(); ++i) variables[names[in.below(std::size(names))]] = in.line();
    const std::string place = in.line();
    const fuzz::Surroundings surroundings(std::move(variables));
    fuzz::accepts([] {
        const Launch launch = Launch::from_environment();
        check(launch);
        bootstrap::Rendezvous::of(launch.identity);
    });
    fuzz::accepts([&] { bootstrap::Rendezvous::of(Identity::at(place)); });
    fuzz::accepts([&] {
        bootstrap::Pmix::Process said{};
        for (std::int64_t* n : {&said.rank, &said.ranks, &said.local_rank, &said.local_ranks}) *n = number(in.line());
        Launch launch;
        bootstrap::read_numbers(said, launch);
        check(launch);
    });
}
