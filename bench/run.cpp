#include "run.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "cuda.hpp"
#include "worker.hpp"

namespace perf {

namespace {

/// A figure of /proc in bytes, such as MemAvailable; 0 if it is not there.
std::size_t kernel_figure(const char* file, const std::string& name) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * 1024;
    return 0;
}

std::string processor() {
    std::ifstream lines("/proc/cpuinfo");
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    return "";
}

/// The core that this process is pinned to, or else a number for it among this run's ranks.
int core_of(int rank) {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1)
        for (int core = 0; core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &cores)) return core;
    return rank;
}

std::vector<Device> devices_of(World& world, const Options& options) {
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    char line[192];
    const int gpu = world.device_of(world.first_rank(0));
    std::snprintf(line, sizeof line, "%d %d %s %.80s", getpid(), gpu >= 0 ? -1 : core_of(-1), host,
                  gpu >= 0 ? cuda::name_of(gpu).c_str() : processor().c_str());
    std::vector<Device> devices;
    for (const std::string& text : world.gather(line)) {
        Device device{};
        int end = 0;
        char name[64] = "";
        std::sscanf(text.c_str(), "%d %d %63s %n", &device.pid, &device.core, name, &end);
        device.host = name;
        device.info = text.substr(static_cast<std::size_t>(end));
        const bool pinned = device.core >= 0;
        for (int i = 0; i < world.local_ranks(); ++i) {
            device.rank = static_cast<int>(devices.size());
            if (!pinned) device.core = options.devices > 0 ? device.rank % options.devices : device.rank;
            devices.push_back(device);
        }
    }
    return devices;
}

/// Bytes of memory for each buffer of a rank, of which it has two: the same on all ranks, of the machine that has the
/// least for each of its own. 0 if some machine does not say.
std::size_t memory_for_buffer(World& world) {
    struct Machine {
        std::size_t available = SIZE_MAX, ranks = 0;
    };
    // Hosts of other names, as containers are, may be one machine; its kernel has one id.
    std::string id;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
    const std::size_t available = kernel_figure("/proc/meminfo", "MemAvailable") / 10 * 9;
    std::map<std::string, Machine> machines;
    for (const std::string& text : world.gather(std::to_string(available) + " " + id)) {
        Machine& machine = machines[text.substr(text.find(' '))];
        machine.available = std::min<std::size_t>(machine.available, std::stoull(text));
        machine.ranks += static_cast<std::size_t>(world.local_ranks());
    }
    std::size_t least = SIZE_MAX;
    for (const auto& [of, machine] : machines) least = std::min(least, machine.available / (2 * machine.ranks));
    return least;
}

/// Sizes that do not fit into memory would end in swapping or in the kernel's killing somebody.
void fit_into_memory(Options& options, World& world) {
    const std::size_t most = memory_for_buffer(world);
    if (most == 0 || buffer_bytes(options, world.ranks()) <= most) return;
    options.max_bytes = std::min(options.max_bytes, most);
    if (world.is_main(0)) std::printf("#\n# Reducing maxBytes to %zu due to memory limitation\n", options.max_bytes);
    if (options.max_bytes < options.min_bytes)
        world.give_up(exit_internal,
                      "not even messages of " + std::to_string(options.min_bytes) + " bytes fit into memory");
}

/// Empty if it may be measured in this way.
std::string why_not(const Collective& collective, const Options& options, int ranks) {
    if (options.root >= ranks)
        return "--root " + std::to_string(options.root) + " is not among the " + std::to_string(ranks) + " ranks";
    if (!collective.in_rounds) return "";
    if ((ranks & (ranks - 1)) != 0) return std::to_string(ranks) + " ranks are no power of two";
    if (options.ranks_per_thread > 1) return "-g: each rank needs a thread of its own";
    if (options.aggregate > 1) return "-m: rounds can't be one group";
    return "";
}

void report_memory(World& world, Report& report) {
    std::size_t largest = 0, total = 0;
    for (const std::string& text : world.gather(std::to_string(kernel_figure("/proc/self/status", "VmHWM")))) {
        largest = std::max<std::size_t>(largest, std::stoull(text));
        total += std::stoull(text);
    }
    char line[96];
    std::snprintf(line, sizeof line, "%.1f MB in the largest process | Total %.1f MB",
                  static_cast<double>(largest) / 1048576, static_cast<double>(total) / 1048576);
    report.memory(line);
}

/// The library passes over algorithms that can't do what is called; who measures one wants to hear of that.
Options only_for(const Collective& collective, Options options) {
    std::string name = collective.name;
    if (name.starts_with("alltoall")) name = "all_to_all";
    const bool of_pairs = collective.in_rounds || name == "sendrecv";
    if (!options.algorithm.empty() && options.algorithm.find(':') == std::string::npos && !of_pairs)
        options.algorithm.insert(0, name + ":");
    return options;
}

/// GB/s, read plus written, of copies of this many bytes in the memory where rank 0 has its buffers: the best of some.
double copy_bandwidth(const World& world, std::size_t bytes) {
    const int device = world.device_of(world.first_rank(0));
    const Buffer from(bytes, false, device), to(bytes, false, device);
    double seconds = 1e9;
    for (int round = 0; round < 5; ++round) {
        if (device >= 0) {
            seconds = std::min(seconds, cuda::copy_seconds(device, to.data(), from.data(), bytes));
            continue;
        }
        const auto begin = std::chrono::steady_clock::now();
        std::memcpy(to.data(), from.data(), bytes);
        seconds = std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return 2 * static_cast<double>(bytes) / seconds / 1e9;
}

/// Copies are timed while nothing else happens: before the ranks' buffers are made, or after they have gone.
void time_copies(const World& world, const Options& options, Report& report) {
    if (options.copies && world.is_main(0)) report.copies(options.max_bytes, copy_bandwidth(world, options.max_bytes));
}

/// All ranks, their communicators and one table. The program's exit code.
int run_table(const char* program, const Collective& collective, Options options) {
    World world(only_for(collective, options));
    if (const std::string reason = why_not(collective, options, world.ranks()); !reason.empty()) {
        if (!world.is_main(0)) return exit_usage;
        fail(exit_usage, std::string(program) + ": " + reason);
    }
    if (options.devices == 0) fit_into_memory(options, world);
    Report report(options, program, world.is_main(0));
    on_failure([&](const std::string& reason) { report.failed(reason); });
    report.header(devices_of(world, options), world.loaded_rival(), world.rival_refusal());
    time_copies(world, options, report);
    std::vector<std::thread> threads;
    for (int t = 1; t < options.threads; ++t)
        threads.emplace_back([&, t] { Worker(world, options, collective, nullptr, t).run(); });
    std::uint64_t checksum = 0;
    {
        Worker worker(world, options, collective, &report, 0);
        worker.run();
        checksum = worker.checksum();
    }
    for (std::thread& thread : threads) thread.join();
    time_copies(world, options, report);
    if (options.memory_report) report_memory(world, report);
    report.footer();
    if (options.checksum && world.is_main(0))
        std::printf("# Checksum of rank 0's results: %016llx\n", static_cast<unsigned long long>(checksum));
    world.leave();
    on_failure(nullptr);
    return report.exit_code();
}

}  // namespace

int run(const char* program, const char* collective, int argc, char** argv) {
    const Collective* const row = collective_named(collective);
    if (row == nullptr) return std::fprintf(stderr, "%s names no collective\n", program), exit_usage;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    Options options = parse(program, argc, argv);
    if (options.algorithms.empty()) options.algorithms.emplace_back();
    int code = exit_ok;
    for (const std::string& algorithm : options.algorithms) {
        options.algorithm = algorithm;
        code = std::max(code, run_table(program, *row, options));
    }
    return code;
}

}  // namespace perf
