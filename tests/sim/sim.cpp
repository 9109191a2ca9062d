// Runs the library in worlds that seeds make. See --help.
#include <dirent.h>
#include <execinfo.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "job.hpp"
#include "world.hpp"

namespace {

void stay_on(unsigned core) {
    cpu_set_t one, allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    CPU_ZERO(&one);
    for (int c = 0, seen = 0; c < CPU_SETSIZE; ++c)
        if (CPU_ISSET(c, &allowed) && seen++ == static_cast<int>(core)) CPU_SET(c, &one);
    if (CPU_COUNT(&one) == 1) sched_setaffinity(0, sizeof one, &one);
}

using Clock = std::chrono::steady_clock;

/// How long a job may take in real time. A thread that waits in the kernel, which the world does not see, would
/// otherwise stop everything without a word.
std::chrono::milliseconds longest_job{120'000};

/// Writes the stack of the thread that gets the signal to stderr.
void tell_stack(int) {
    char line[64];
    const int length = std::snprintf(line, sizeof line, "process %d, thread %ld:\n", getpid(), syscall(SYS_gettid));
    if (write(STDERR_FILENO, line, static_cast<std::size_t>(length)) != length) return;
    void* frames[40];
    backtrace_symbols_fd(frames, backtrace(frames, 40), STDERR_FILENO);
}

void crash(int signal) {
    tell_stack(signal);
    ::signal(signal, SIG_DFL);
    raise(signal);
}

/// Calls what(number) for each numbered entry of a folder of /proc.
template <class F>
void for_each_number(const std::string& folder, F&& what) {
    DIR* const open = opendir(folder.c_str());
    if (open == nullptr) return;
    while (const dirent* const entry = readdir(open))
        if (const int number = std::atoi(entry->d_name); number > 0) what(number);
    closedir(open);
}

pid_t parent_of(pid_t process) {
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("PPid:")) return std::atoi(line.c_str() + 5);
    return 0;
}

/// A job is its controller and the processes that this has made. Each of its threads tells its stack; then all are
/// killed.
void tell_and_kill(pid_t controller) {
    std::vector<pid_t> job{controller};
    for_each_number("/proc", [&](int process) {
        if (parent_of(process) == controller) job.push_back(process);
    });
    for (const pid_t process : job)
        for_each_number("/proc/" + std::to_string(process) + "/task", [process](int thread) {
            syscall(SYS_tgkill, process, thread, SIGQUIT);
            usleep(20'000);  // one after the other, or their lines would mix
        });
    for (const pid_t process : job) kill(process, SIGKILL);
}

/// Reads all that the controller of a job writes. Returns false if the job has taken too long, and was killed.
bool read_all(int from, pid_t controller, std::string& all) {
    const auto until = Clock::now() + longest_job;
    for (char part[4096];;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
        pollfd readable{from, POLLIN, 0};
        if (left <= 0 || poll(&readable, 1, static_cast<int>(left)) == 0) return tell_and_kill(controller), false;
        const ssize_t got = read(from, part, sizeof part);
        if (got <= 0) return true;
        all.append(part, static_cast<std::size_t>(got));
    }
}

/// In a process of its own, which has seen nothing before: what happens depends on the seed alone.
sim::Outcome run(const sim::Job& job, bool draw = false) {
    int ends[2];
    if (pipe(ends) != 0) std::perror("sim: pipe"), std::exit(2);
    signal(SIGQUIT, tell_stack);  // from the job's first instant
    const pid_t child = fork();
    if (child < 0) std::perror("sim: fork"), std::exit(2);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, crash);
        const sim::Outcome outcome = sim::run_job(job, draw);
        FILE* const to = fdopen(ends[1], "w");
        for (const std::uint64_t number : {outcome.trace, outcome.switches, outcome.time})
            std::fwrite(&number, sizeof number, 1, to);
        for (const std::string* text : {&outcome.wrong, &outcome.notes, &outcome.picture})
            std::fwrite(text->c_str(), text->size() + 1, 1, to);
        std::fclose(to);
        _exit(0);
    }
    close(ends[1]);
    std::string all;
    const bool ended = read_all(ends[0], child, all);
    close(ends[0]);
    waitpid(child, nullptr, 0);
    if (!ended) {
        const std::string limit = std::to_string(longest_job.count());
        return {
            "it took longer than " + limit + " ms of real time; stderr has the stacks, for addr2line", "", "", 0, 0, 0};
    }
    sim::Outcome outcome{"the simulation itself crashed", "", "", 0, 0, 0};
    std::uint64_t* const numbers[] = {&outcome.trace, &outcome.switches, &outcome.time};
    if (all.size() < sizeof(std::uint64_t) * std::size(numbers)) return outcome;
    std::size_t at = 0;
    for (std::uint64_t* number : numbers) std::memcpy(number, all.data() + at, sizeof *number), at += sizeof *number;
    for (std::string* text : {&outcome.wrong, &outcome.notes, &outcome.picture})
        *text = all.c_str() + at, at = std::min(at + text->size() + 1, all.size());
    return outcome;
}

bool fails(std::uint64_t seed, const sim::Less& less) {
    return !run(sim::make_job(seed, less)).wrong.empty();
}

constexpr std::chrono::seconds longest_shrink{60};

/// The ranks, events and calls that can be left out while the job still fails, as far as known after longest_shrink: a
/// job that never ends takes a minute each time.
sim::Less shrink(std::uint64_t seed) {
    sim::Less less;
    const auto until = Clock::now() + longest_shrink;
    const auto attempt = [&](auto&& change) {
        if (Clock::now() > until) return;
        sim::Less smaller = less;
        change(smaller);
        if (fails(seed, smaller)) less = std::move(smaller);
    };
    attempt([](sim::Less& l) { l.weather = false; });
    attempt([](sim::Less& l) { l.blow = false; });
    const int ranks = sim::make_job(seed, less).ranks;
    for (int fewer = 2; fewer < ranks && less.ranks == 0; ++fewer) attempt([&](sim::Less& l) { l.ranks = fewer; });
    for (std::size_t i = sim::make_job(seed, less).calls.size(); i-- > 0;)
        attempt([&](sim::Less& l) { l.without.insert(i); });
    return less;
}

struct Where {
    std::string program, pictures;  // what runs, and the folder for its pictures
};

void tell(std::uint64_t seed, const sim::Less& less, const sim::Outcome& outcome, const Where& where) {
    const std::string file = where.pictures + "/sim-" + std::to_string(seed) + ".svg";
    std::ofstream(file) << outcome.picture;
    std::printf("seed %llu: %s\n  %s\n  again: %s --seed %llu%s\n  picture: %s\n%s\n",
                static_cast<unsigned long long>(seed), outcome.wrong.empty() ? "right" : outcome.wrong.c_str(),
                sim::make_job(seed, less).text().c_str(), where.program.c_str(), static_cast<unsigned long long>(seed),
                less.text().c_str(), file.c_str(), outcome.notes.c_str());
    std::fflush(stdout);
}

/// What the processes for the cores share.
struct Tally {
    std::atomic<std::uint64_t> failed, switches, first_failed;
};

/// The seeds of one core: first, first + step, ..., dealt to the cores in turn.
void run_seeds(std::uint64_t first, std::uint64_t count, std::uint64_t step, unsigned core, unsigned cores, bool twice,
               bool until_failure, const Where& where, Tally& tally) {
    stay_on(core);
    for (std::uint64_t i = core; i < count; i += cores) {
        const std::uint64_t seed = first + i * step;
        if (until_failure && seed > tally.first_failed) return;
        const sim::Job job = sim::make_job(seed);
        const sim::Outcome outcome = run(job);
        tally.switches += outcome.switches;
        if (twice && run(job).trace != outcome.trace)
            std::printf("seed %llu: another trace\n", static_cast<unsigned long long>(seed)), ++tally.failed;
        if (outcome.wrong.empty()) continue;
        ++tally.failed;
        for (std::uint64_t least = tally.first_failed;
             seed < least && !tally.first_failed.compare_exchange_weak(least, seed);) {
        }
        std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), outcome.wrong.c_str());
        std::fflush(stdout);  // making it smaller takes its time
        if (until_failure) continue;
        const bool ended = outcome.switches > 0;
        const sim::Less less = ended ? shrink(seed) : sim::Less{};
        const sim::Outcome again = ended ? run(sim::make_job(seed, less)) : sim::Outcome{};
        if (again.wrong.empty())
            tell(seed, {}, outcome, where);
        else
            tell(seed, less, again, where);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE) && personality(ADDR_NO_RANDOMIZE) != -1)
        execv("/proc/self/exe", argv);  // what depends on addresses is to happen again
    CLI::App app(
        "Runs jobs of the library in worlds in which a seed says which thread runs when, and what time it is.");
    std::uint64_t seeds = 200, first = 1, step = 1, one = 0;
    unsigned cores = static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN));
    bool twice = false, until_failure = false, mutants = false, without_blow = false, without_weather = false;
    sim::Less less;
    std::vector<std::size_t> without;
    Where where{argv[0], "/tmp"};
    constexpr auto most = 1000000000000000000ul;  // what is negative is more
    app.add_option("--seeds", seeds, "how many")->capture_default_str()->check(CLI::Range(1ul, most));
    app.add_option("--first", first, "the first one")->capture_default_str()->check(CLI::Range(0ul, most));
    app.add_option("--step", step, "from one to the next")->capture_default_str()->check(CLI::Range(1ul, most));
    app.add_option("--seed", one, "only this one, and tell what happens")->check(CLI::Range(0ul, most));
    app.add_option("--jobs", cores, "how many at a time")->capture_default_str()->check(CLI::Range(1u, 256u));
    app.add_option("--pictures", where.pictures, "the folder for pictures of failures")->capture_default_str();
    app.add_option("--ranks", less.ranks, "with --seed: so many ranks")->check(CLI::Range(1ul, most));
    app.add_option("--without", without, "with --seed: not these calls, counted from 0")->delimiter(',');
    app.add_flag("--without-blow", without_blow, "with --seed: nobody is killed or stopped");
    app.add_flag("--without-weather", without_weather, "with --seed: no network of its own, and nothing is lacking");
    app.add_option_function<unsigned>(
           "--limit", [](unsigned ms) { longest_job = std::chrono::milliseconds(ms); },
           "how long a job may take, in ms of real time")
        ->default_str("120000");
    app.add_flag("--twice", twice, "each seed twice: the same must happen");
    app.add_flag("--until-failure", until_failure, "end with the first seed that fails, and say only that");
    app.add_flag("--mutants", mutants, "put known defects back into the library, and see each of them found");
    CLI11_PARSE(app, argc, argv);
    void* frame = nullptr;
    backtrace(&frame, 1);  // loads what it needs, which a handler of signals must not
    if (mutants)
        return execlp("python3", "python3", TUTTI_MUTANTS, TUTTI_BUILD, nullptr), std::perror("sim: python3"), 2;
    if (one != 0) {
        stay_on(0);
        less.without.insert(without.begin(), without.end());
        less.blow = !without_blow;
        less.weather = !without_weather;
        sim::Job job = sim::make_job(one, less);
        job.places = true;
        const sim::Outcome outcome = run(job, true);
        tell(one, less, outcome, where);
        std::printf("%llu switches, %.3f s\n", static_cast<unsigned long long>(outcome.switches),
                    static_cast<double>(outcome.time) * 1e-9);
        return outcome.wrong.empty() ? 0 : 1;
    }
    const auto began = Clock::now();
    auto* const tally =
        static_cast<Tally*>(mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (tally == MAP_FAILED) return std::perror("sim: mmap"), 2;
    tally->first_failed = sim::never;
    std::vector<pid_t> workers;
    for (unsigned core = 0; core < cores; ++core) {
        const pid_t worker = fork();
        if (worker < 0) return std::perror("sim: fork"), 2;
        if (worker == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_seeds(first, seeds, step, core, cores, twice, until_failure, where, *tally);
            _exit(0);
        }
        workers.push_back(worker);
    }
    for (const pid_t worker : workers) {
        int status = 0;
        waitpid(worker, &status, 0);
        if (status != 0) ++tally->failed;
    }
    rusage used{};
    getrusage(RUSAGE_CHILDREN, &used);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    const double took = std::chrono::duration<double>(Clock::now() - began).count();
    std::printf("%llu seeds, %llu failed, %.1f s (%.1f s of user, %.1f s of kernel), %llu switches\n",
                static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(tally->failed.load()), took,
                seconds(used.ru_utime), seconds(used.ru_stime),
                static_cast<unsigned long long>(tally->switches.load()));
    if (until_failure && tally->failed > 0)
        std::printf("found by seed %llu\n", static_cast<unsigned long long>(tally->first_failed.load()));
    return tally->failed == 0 ? 0 : 1;
}
