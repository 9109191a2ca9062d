// The command line of the *_perf programs: nccl-tests' flags, and what Tutti adds.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "numbers.hpp"

namespace perf {

// nccl-tests' exit codes.
enum ExitCode {
    exit_ok = 0,
    exit_internal = 1,
    exit_no_device = 2,
    exit_library = 3,
    exit_timeout = 4,
    exit_usage = 6,
    exit_wrong = 7
};

/// How the ranks' times become one (-a).
enum class Average { rank0, mean, min, max };

struct Options {
    int threads = 1;
    int ranks_per_thread = 1;
    int threads_per_rank = 0;  // that share its large calls; 0: as the library says
    std::size_t min_bytes = 32u << 20;
    std::size_t max_bytes = 32u << 20;
    std::size_t step_bytes = 1u << 20;
    std::size_t step_factor = 1;  // 1: step_bytes counts
    int iterations = 20;
    int warmup = 1;
    int aggregate = 1;
    int cycles = 1;  // 0: for ever
    bool parallel_init = false;
    int checks = 1;
    std::vector<Op> ops{Op::sum};
    std::vector<tuttiDataType_t> types{tuttiFloat};
    int root = 0;  // -1: all in turn
    bool blocking = false;
    bool null_stream = true;
    int timeout_seconds = 0;  // 0: the library's
    bool cpu_time = false;
    bool timestamps = false;
    Average average = Average::mean;
    bool per_iteration = false;
    int skip_iterations = 0;
    bool memory_report = false;
    int unalign = 0;  // elements
    double min_bandwidth = -1;
    bool mapped = false;
    bool registered = false;
    bool windows = false;        // registered as symmetric windows
    int cta_policy = 0;          // as tuttiConfig_t
    std::string device = "cpu";  // as given
    int devices = 0;             // CUDA devices to use in turn; 0: CPU ranks
    bool mixed = false;          // rank 0 is on the CPU all the same
    bool on_gpu(int rank) const { return devices > 0 && !(mixed && rank == 0); }
    int graphs = 0;  // replays of a graph of all iterations; 0: no graph
    bool error = false;
    std::vector<std::string> algorithms;  // of each table that is to be printed, in TUTTI_ALGO's words
    std::string algorithm;                // of this table; empty: the library's choice
    std::string transport;
    bool reproducible = false;
    bool checksum = false;
    bool copies = false;  // time copies inside one memory, too
    std::string rival;    // as given to --vs; empty: no race
    std::string json;
    std::vector<std::string> notes;      // what was accepted but means nothing here
    std::vector<std::string> arguments;  // as given

    /// The size of the row after `bytes`; more than any if there is a single one.
    std::size_t next(std::size_t bytes) const;
};

/// Why a line is not carried out.
struct NotUnderstood {
    int code;
    std::string text;
};

/// Looks at no machine. Throws NotUnderstood.
Options understood(const char* program, int argc, char** argv);

/// Exits with 6, a reason and the usage if the line can't be understood; 0 after --help; 2 for --device cuda
/// where there is none.
Options parse(const char* program, int argc, char** argv);

/// Variables that tell a reader of the JSON report how a run was set up. Secrets are not among them.
std::vector<std::string> reported_environment();

}  // namespace perf
