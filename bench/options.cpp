#include "options.hpp"
#include "cuda.hpp"
#include "sizes.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace perf {

namespace {

using Invalid = CLI::ValidationError;

std::size_t parse_size(const std::string& flag, const std::string& text) {
    const std::optional<std::size_t> size = size_of_text(text);
    if (!size) throw Invalid(flag, "'" + text + "' is no size; " + what_sizes_are);
    return *size;
}

std::string type_names() {
    std::string names;
    for (const tuttiDataType_t type : all_types()) names += (names.empty() ? "" : " ") + std::string(name_of(type));
    return names;
}

bool is_rank_zero() {
    for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
        if (const char* value = std::getenv(name)) return std::string_view(value) == "0";
    return true;
}

/// Everything that is given as text first.
struct Texts {
    std::string op = "sum";
    std::string type = "float";
    std::string device = "cpu";
    std::string memory = "private";
    int average = 1;
    int blocking = 0;
    int null_stream = 1;
    int graphs = 0;
    int registration = 0;
    int cta_policy = 0;
    int device_api = 0;
    int device_ctas = 0;
};

void add_nccl_options(CLI::App& app, Options& o, Texts& t) {
    const auto size = [&](const char* names, std::size_t& to, const char* text) {
        app.add_option_function<std::string>(
            names, [&to, names](const auto& v) { to = parse_size(names, v); }, text);
    };
    const CLI::Range positive(1, 1 << 30), not_negative(0, 1 << 30);
    app.add_option("-t,--nthreads", o.threads, "threads per process (1)")->check(CLI::Range(1, 1024));
    app.add_option("-g,--ngpus", o.ranks_per_thread, "ranks per thread (1)")->check(CLI::Range(1, 1024));
    size("-b,--minbytes", o.min_bytes, "smallest size (32M)");
    size("-e,--maxbytes", o.max_bytes, "largest size (32M)");
    size("-i,--stepbytes", o.step_bytes, "from size to size: add this (1M)");
    app.add_option("-f,--stepfactor", o.step_factor, "from size to size: multiply by this, beats -i (off)")
        ->check(positive);
    app.add_option("-n,--iters", o.iterations, "timed iterations (20)")->check(positive);
    app.add_option("-w,--warmup_iters", o.warmup, "untimed iterations at the largest and smallest size (1)")
        ->check(not_negative);
    app.add_option("-m,--agg_iters", o.aggregate, "operations per iteration, in a group (1)")->check(positive);
    app.add_option("-N,--run_cycles", o.cycles, "times to print the table, 0: for ever (1)")->check(not_negative);
    app.add_option("-p,--parallel_init", o.parallel_init, "threads initialise concurrently (0)");
    app.add_option("-c,--check", o.checks, "checked iterations per row, 0: none (1)")->check(not_negative);
    app.add_option("-o,--op", t.op, "sum, prod, min, max, avg, mulsum, all (sum)");
    app.add_option("-d,--datatype", t.type, type_names() + " all (float)");
    app.add_option("-r,--root", o.root, "root, -1: each rank in turn (0)")->check(CLI::Range(-1, 1 << 30));
    app.add_option("-z,--blocking", t.blocking, "1: complete each operation on all ranks before the next (0)");
    app.add_option("-y,--stream_null", t.null_stream, "1: the null stream, here and now; 0: a stream per rank (1)");
    app.add_option("-T,--timeout", o.timeout_seconds, "seconds that an operation may wait for its peers (600)")
        ->check(CLI::Range(0, 2'000'000));
    app.add_option("-G,--cudagraph", t.graphs, "replays of a CUDA graph that has all iterations; 0: no graph (0)");
    app.add_option("-C,--report_cputime", o.cpu_time, "report the time to issue, not to finish (0)");
    app.add_option("-S,--report_timestamps", o.timestamps, "append the time of day to each row (0)");
    app.add_option("-a,--average", t.average, "time of 0: rank 0, 1: mean, 2: min, 3: max of all ranks (1)");
    app.add_option("-I,--per_iter_timing", o.per_iteration, "append min, max, p99, variation of the iterations (0)");
    app.add_option("-K,--per_iter_skip", o.skip_iterations, "first iterations that -I leaves out (0)")
        ->check(not_negative);
    app.add_option("-R,--local_register", t.registration,
                   "1: register the buffers; 2: as symmetric windows on GPUs; --memory registered");
    app.add_option("-u,--unalign", o.unalign, "start the buffers so many elements past alignment (0)")
        ->check(CLI::Range(0, 4096));
    app.add_option("-M,--memory_report", o.memory_report, "print the processes' memory at the end (0)");
    app.add_option("-J,--output_file,--json", o.json, "write the results to this file too; never overwrites");
    app.add_option("-x,--cta_policy", t.cta_policy, "2: copy engines run what they can, in windows of -R 2 (0)");
    app.add_option("-D,--device_implementation", t.device_api, "refused: CPU ranks have no device kernels");
    app.add_option("-V,--device_cta_count", t.device_ctas, "ignored: CPU ranks have no CTAs");
}

void add_own_options(CLI::App& app, Options& o, Texts& t) {
    app.add_option("--algo", o.algorithms,
                   "the only algorithm to use, or a list as TUTTI_ALGO takes it (the library's choice); again: a table "
                   "and a JSON file each, one after the other")
        ->allow_extra_args(false);
    app.add_flag("--reproducible", o.reproducible, "sums in rank order: the same bits whatever else is chosen");
    app.add_flag("--checksum", o.checksum, "print one checksum of all results on random data");
    app.add_flag("--copies", o.copies, "time copies of the largest size inside rank 0's memory, too");
    app.add_option("--transport", o.transport, "the only transport to use (the library's choice)");
    app.add_option("--threads-per-rank", o.threads_per_rank, "threads that share a rank's large calls (TUTTI_THREADS)")
        ->check(CLI::Range(1, 8));
    app.add_option("--device", t.device, "cpu, cuda, mixed: rank 0 on the CPU and the others on GPUs (cpu)");
    app.add_option("--memory", t.memory, "private: malloc (default); mapped: tuttiMemAlloc; registered");
    app.add_option("--vs", o.rival, "race another library: nccl, or nccl=/path/libnccl.so.2; both take turns");
    app.add_flag("--error", o.error, "append each row's largest error against fp64, on random data");
    app.add_option("--min_bw", o.min_bandwidth, "fail (7) if the mean bus bandwidth is below 0.9 of this");
}

int in_range(const char* flag, int value, int last, const char* why) {
    if (value < 0 || value > last)
        throw Invalid(flag, std::to_string(value) + " is not in 0.." + std::to_string(last) + why);
    return value;
}

void interpret(Options& o, const Texts& t) {
    if (t.op == "all") {
        o.ops = all_ops();
    } else if (const auto op = op_named(t.op)) {
        o.ops = {*op};
    } else {
        throw Invalid("--op", "unknown operation '" + t.op + "'; known: sum prod min max avg mulsum all");
    }
    if (t.type == "all") {
        o.types = all_types();
    } else if (const auto type = type_named(t.type)) {
        o.types = {*type};
    } else {
        throw Invalid("--datatype", "unknown type '" + t.type + "'; known: " + type_names() + " all");
    }
    if (o.min_bytes > o.max_bytes)
        throw Invalid("--minbytes",
                      std::to_string(o.min_bytes) + " is more than --maxbytes " + std::to_string(o.max_bytes));
    if (o.step_factor <= 1 && o.step_bytes == 0 && o.min_bytes < o.max_bytes)
        throw Invalid("--stepbytes", "with steps of 0 bytes the largest size is never reached");
    o.average = static_cast<Average>(in_range("--average", t.average, 3, ""));
    o.blocking = in_range("--blocking", t.blocking, 1, ": the other modes of nccl-tests concern GPUs") == 1;
    o.null_stream = in_range("--stream_null", t.null_stream, 1, "") == 1;
    if (t.graphs < 0) throw Invalid("--cudagraph", "a number of replays, or 0, was expected");
    if (t.graphs != 0 && t.device != "cuda") throw Invalid("--cudagraph", "CPU ranks have no CUDA graphs");
    if (t.graphs != 0 && o.per_iteration)
        throw Invalid("--per_iter_timing", "the iterations in a CUDA graph have no times of their own");
    o.graphs = t.graphs;
    if (t.device != "cpu" && t.memory == "mapped") throw Invalid("--memory", "peers can map all GPU memory");
    if (!o.rival.empty() && o.rival != "nccl" && !o.rival.starts_with("nccl="))
        throw Invalid("--vs", "'" + o.rival + "' was given; nccl or nccl=/path/libnccl.so.2 was expected");
    if (!o.rival.empty() && (o.per_iteration || o.error || o.checksum))
        throw Invalid("--vs", "a race has no columns for -I, --error and --checksum");
    if (t.device_api != 0) throw Invalid("--device_implementation", "CPU ranks have no device kernels");
    o.cta_policy = in_range("--cta_policy", t.cta_policy, 2, "");
    if (t.cta_policy != 0 && t.device != "cuda") o.notes.push_back("-x ignored: CPU ranks have no CTAs");
    if (t.device_ctas != 0) o.notes.push_back("-V ignored: CPU ranks have no CTAs");
    if (t.memory != "private" && t.memory != "mapped" && t.memory != "registered")
        throw Invalid("--memory", "unknown kind '" + t.memory + "'; known: private mapped registered");
    o.mapped = t.memory == "mapped";
    o.registered = t.memory == "registered" || in_range("--local_register", t.registration, 2, "") != 0;
    o.windows = t.registration == 2 && t.device == "cuda";
    if (o.blocking && o.null_stream)
        o.notes.push_back("-z 1 adds a barrier only: on the null stream every operation has finished when it returns");
    if (t.device != "cpu" && t.device != "cuda" && t.device != "mixed")
        throw Invalid("--device", "unknown device '" + t.device + "'; known: cpu cuda mixed");
    o.mixed = t.device == "mixed";
}

}  // namespace

std::size_t Options::next(std::size_t bytes) const {
    if (step_factor <= 1) return step_bytes > 0 ? bytes + step_bytes : SIZE_MAX;
    if (bytes == 0) return 1;
    return bytes > SIZE_MAX / step_factor ? SIZE_MAX : bytes * step_factor;
}

Options understood(const char* program, int argc, char** argv) {
    Options options;
    Texts texts;
    CLI::App app("", program);
    add_nccl_options(app, options, texts);
    add_own_options(app, options, texts);
    try {
        app.parse(argc, argv);
        interpret(options, texts);
    } catch (const CLI::CallForHelp&) {
        throw NotUnderstood{exit_ok, app.help()};
    } catch (const CLI::Error& error) {
        throw NotUnderstood{exit_usage, std::string(program) + ": " + error.what() + "\n" + app.help()};
    }
    options.device = texts.device;
    options.arguments.assign(argv, argv + argc);
    return options;
}

Options parse(const char* program, int argc, char** argv) try {
    Options options = understood(program, argc, argv);
    if (options.device == "cpu") return options;
    std::string why;
    options.devices = cuda::devices(options.threads * options.ranks_per_thread, why);
    if (options.devices > 0) return options;
    throw NotUnderstood{exit_no_device, std::string(program) + ": --device " + options.device + ": " + why + "\n"};
} catch (const NotUnderstood& because) {
    // Once per job, not once per rank.
    if (is_rank_zero()) std::fputs(because.text.c_str(), because.code == exit_ok ? stdout : stderr);
    std::exit(because.code);
}

std::vector<std::string> reported_environment() {
    std::vector<std::string> found;
    for (char** variable = environ; *variable; ++variable) {
        const std::string_view text = *variable;
        if (text.starts_with("TUTTI_SECRET=")) continue;
        for (const std::string_view head :
             {"TUTTI_", "RANK=", "WORLD_SIZE=", "LOCAL_", "MASTER_", "OMPI_COMM_WORLD_", "PMI_", "SLURM_"})
            if (text.starts_with(head)) {
                found.emplace_back(text);
                break;
            }
    }
    return found;
}

}  // namespace perf
