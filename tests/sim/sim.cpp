// Runs the library in worlds that seeds make. See --help.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <vector>

#include "job.hpp"

namespace {

constexpr int most_calls = 100;

void stay_on(unsigned core) {
    cpu_set_t one, allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    CPU_ZERO(&one);
    for (int c = 0, seen = 0; c < CPU_SETSIZE; ++c)
        if (CPU_ISSET(c, &allowed) && seen++ == static_cast<int>(core)) CPU_SET(c, &one);
    if (CPU_COUNT(&one) == 1) sched_setaffinity(0, sizeof one, &one);
}

/// Fewer calls, as long as it still goes wrong.
sim::Job shrink(sim::Job job) {
    for (std::size_t i = job.calls.size(); i-- > 0;) {
        sim::Job smaller = job;
        smaller.calls.erase(smaller.calls.begin() + static_cast<std::ptrdiff_t>(i));
        if (!sim::run_job(smaller).wrong.empty()) job = smaller;
    }
    return job;
}

void tell(const sim::Job& job, const sim::Outcome& outcome) {
    std::printf("seed %llu: %s\n  %s\n  again: %s --seed %llu\n%s\n", static_cast<unsigned long long>(job.seed),
                outcome.wrong.empty() ? "right" : outcome.wrong.c_str(), job.text().c_str(), "build/tests/sim",
                static_cast<unsigned long long>(job.seed), outcome.notes.c_str());
    std::fflush(stdout);
}

/// The seeds first, first + step, ... of one core. How many went wrong.
int run_seeds(std::uint64_t first, std::uint64_t count, unsigned core, unsigned cores, bool twice) {
    stay_on(core);
    int failed = 0;
    std::uint64_t switches = 0;
    for (std::uint64_t seed = first + core; seed < first + count; seed += cores) {
        const sim::Job job = sim::make_job(seed, most_calls);
        const sim::Outcome outcome = sim::run_job(job);
        if (twice && sim::run_job(job).trace != outcome.trace)
            std::printf("seed %llu: another trace\n", static_cast<unsigned long long>(seed)), ++failed;
        switches += outcome.switches;
        if (outcome.wrong.empty()) continue;
        ++failed;
        const sim::Job smaller = shrink(job);
        const sim::Outcome again = sim::run_job(smaller);
        if (again.wrong.empty())
            tell(job, outcome);
        else
            tell(smaller, again);
    }
    std::printf("core %u: %llu switches\n", core, static_cast<unsigned long long>(switches));
    std::fflush(stdout);
    return failed;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app(
        "Runs jobs of the library in worlds in which a seed says which thread runs when, and what time it is.");
    std::uint64_t seeds = 200, first = 1, one = 0;
    unsigned cores = static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN));
    bool twice = false;
    app.add_option("--seeds", seeds, "how many")->capture_default_str();
    app.add_option("--first", first, "the first one")->capture_default_str();
    app.add_option("--seed", one, "only this one, and tell what happens");
    app.add_option("--jobs", cores, "how many at a time")->capture_default_str()->check(CLI::Range(1u, 256u));
    app.add_flag("--twice", twice, "each seed twice: the same must happen");
    CLI11_PARSE(app, argc, argv);
    if (one != 0) {
        stay_on(0);
        const sim::Job job = sim::make_job(one, most_calls);
        const sim::Outcome outcome = sim::run_job(job);
        tell(job, outcome);
        std::printf("%llu switches, %.3f s\n", static_cast<unsigned long long>(outcome.switches),
                    static_cast<double>(outcome.time) * 1e-9);
        return outcome.wrong.empty() ? 0 : 1;
    }
    const auto began = std::chrono::steady_clock::now();
    std::vector<pid_t> workers;
    for (unsigned core = 0; core < cores; ++core) {
        const pid_t worker = fork();
        if (worker < 0) return std::perror("sim: fork"), 2;
        if (worker == 0) {
            const int failed = run_seeds(first, seeds, core, cores, twice);
            _exit(failed > 100 ? 100 : failed);
        }
        workers.push_back(worker);
    }
    int failed = 0;
    for (const pid_t worker : workers) {
        int status = 0;
        waitpid(worker, &status, 0);
        failed += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    std::printf("%llu seeds, %d failed, %.1f s\n", static_cast<unsigned long long>(seeds), failed, took);
    return failed == 0 ? 0 : 1;
}
