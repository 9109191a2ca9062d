// init_bench: how long ranks take to join, by phase, and what a rank then holds: 64, 256, 1024, ... ranks, each in a
// light process of its own, that meet as those of a cluster do: rank 0 opens the rendezvous, and all control
// connections are TCP, on the loopback; between "hosts" (TUTTI_HOSTID) of some ranks each data is, too. They share this
// machine's cores, so what a rank's own processor would take is in the columns of CPU time, and what is predicted of
// larger jobs comes from that.
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/memory.hpp"
#include "base/os.hpp"
#include "base/result.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/service.hpp"
#include "bootstrap/session.hpp"
#include "comm/driver.hpp"
#include "init_memory.hpp"

namespace {

using namespace tutti;
using namespace init_bench;
using namespace std::chrono_literals;

enum Phase { let_in, attached, table, communicator, first_call, later_call, left, phases };
constexpr const char* phase_names[] = {"met rank 0", "parent", "table", "communicator", "1st call", "2nd call", "left"};

/// What a rank tells of itself; times since all were told to begin.
struct Account {
    double ms[phases];
    double join_cpu_ms, all_cpu_ms;
    int sockets, descriptors, threads;
    long joined_kib, private_kib;
    long joined_held, called_held;  // in KiB, with what is shared and the kernel's
    char error[400];
};

/// Shared by all processes of a run.
struct Board {
    std::atomic<std::uint32_t> arrived[5], open[5];
    std::atomic<std::uint32_t> failed;
    Clock::time_point begin;
};

/// Until all have come, or one has failed.
void barrier(Board& board, int number, int ranks) {
    auto& open = board.open[number];
    if (board.arrived[number].fetch_add(1) + 1 == static_cast<std::uint32_t>(ranks)) {
        if (number == 0) board.begin = Clock::now();
        open.store(1);
        futex_wake_all(open);
    }
    while (open.load() == 0) {
        if (board.failed.load() != 0) _exit(1);
        futex_wait(open, 0, 1s);
    }
}

double cpu_ms() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto ms = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
    };
    return ms(used.ru_utime) + ms(used.ru_stime);
}

/// A number of /proc/self/FILE, such as "Threads:".
long number_in(const char* file, const std::string& name) {
    std::ifstream lines(std::string("/proc/self/") + file);
    for (std::string word; lines >> word;)
        if (long value = 0; word == name && lines >> value) return value;
    return -1;
}

void count_descriptors(Account& report) {
    report.sockets = report.descriptors = 0;
    if (DIR* const all = opendir("/proc/self/fd")) {
        while (const dirent* const entry = readdir(all)) {
            char target[64] = "";
            const std::string path = std::string("/proc/self/fd/") + entry->d_name;
            if (entry->d_name[0] == '.' || readlink(path.c_str(), target, sizeof target - 1) < 0) continue;
            ++report.descriptors;
            report.sockets += std::strncmp(target, "socket:", 7) == 0;
        }
        closedir(all);
        --report.descriptors;  // of the folder itself
    }
}

/// Beside page tables, the kernel has about 64 KiB for a process of two threads, and 4 KiB for a socket.
long held_kib(Account& report) {
    count_descriptors(report);
    return number_in("smaps_rollup", "Pss:") + number_in("status", "VmPTE:") + 64 + 4 * report.descriptors;
}

void be_rank(Board& board, Account& report, const Identity& identity, Rank rank, int ranks, bool calls) {
    const auto note = [&](Phase phase, Deadline when) {
        report.ms[phase] = std::chrono::duration<double, std::milli>(when - board.begin).count();
    };
    barrier(board, 0, ranks);
    const double before = cpu_ms();
    std::unique_ptr<Communicator> comm = Communicator::join(identity, rank, ranks, Options::from(nullptr));
    note(communicator, Clock::now());
    report.join_cpu_ms = cpu_ms() - before;
    const JoinTimes times = comm->session().join_times();
    note(let_in, times.let_in), note(attached, times.attached), note(table, times.complete);
    barrier(board, 1, ranks);  // to look at memory takes a while, which others that still join would pay
    report.joined_kib = number_in("smaps_rollup", "Private_Dirty:");
    report.joined_held = held_kib(report);
    barrier(board, 2, ranks);
    for (const Phase phase : {first_call, later_call}) {
        if (!calls) break;
        float mine = static_cast<float>(rank % 7), sum = 0, expected = 0;
        for (int r = 0; r < ranks; ++r) expected += static_cast<float>(r % 7);
        Operation operation;
        operation.collective = Collective::all_reduce;
        operation.type = DataType::float32;
        operation.count = 1;
        operation.input = &mine, operation.output = &sum;
        const Deadline begin = Clock::now();
        run_one(*comm, operation);
        report.ms[phase] = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
        if (sum != expected) fail(tuttiInternalError, "the sum is %g, not %g", double(sum), double(expected));
    }
    barrier(board, 3, ranks);
    report.threads = static_cast<int>(number_in("status", "Threads:"));
    report.private_kib = number_in("smaps_rollup", "Private_Dirty:");
    report.called_held = held_kib(report);
    barrier(board, 4, ranks);
    const Deadline begin = Clock::now();
    comm->leave();
    comm.reset();
    report.ms[left] = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    report.all_cpu_ms = cpu_ms() - before;
}

template <class T>
T* shared(std::size_t count) {
    void* const at =
        mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) fail_errno("no memory for %zu reports", count);
    return new (at) T[count]{};
}

/// A port that is free, and not one of those that the system gives to whoever asks for any.
bootstrap::Address free_port() {
    bootstrap::Address place = bootstrap::Address::loopback();
    for (int tries = 0;; ++tries) {
        place.port = static_cast<std::uint16_t>(20'000 + (getpid() + tries) % 10'000);
        try {
            bootstrap::listen_at(place);
            return place;
        } catch (const bootstrap::AddressTaken&) {
            if (tries == 1000) throw;
        }
    }
}

/// Where the ranks of a run meet: over TCP alone.
Identity meeting_point() {
    bootstrap::Rendezvous rendezvous;
    rendezvous.flags = bootstrap::Rendezvous::rank0_opens | bootstrap::Rendezvous::tcp_only;
    rendezvous.secret = bootstrap::Secret::random();
    rendezvous.tcp = free_port();
    return rendezvous.identity();
}

/// False, and why on the standard error, if a rank has failed.
bool run(int ranks, int per_host, bool calls, std::span<Account> reports) {
    Board& board = *shared<Board>(1);
    if (ranks > per_host) setenv("TUTTI_SOCKET_IFNAME", "lo", 1);
    const Identity identity = meeting_point();
    std::fflush(stdout);
    std::set<pid_t> alive;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t child = fork();
        if (child < 0) {
            std::fprintf(stderr, "init_bench: rank %d could not be started: %s\n", rank, std::strerror(errno));
            board.failed.store(1);
            break;
        }
        if (child > 0) {
            alive.insert(child);
            continue;
        }
        setenv("TUTTI_HOSTID", ("host " + std::to_string(rank / per_host)).c_str(), 1);
        Account& report = reports[static_cast<std::size_t>(rank)];
        try {
            be_rank(board, report, identity, rank, ranks, calls);
        } catch (const std::exception& e) {
            std::snprintf(report.error, sizeof report.error, "rank %d: %s", rank, e.what());
            board.failed.store(1);
            _exit(1);
        }
        std::_Exit(0);
    }
    bool good = board.failed.load() == 0;
    while (!alive.empty()) {
        int status = 0;
        const pid_t ended = wait(&status);
        alive.erase(ended);
        if (status == 0 && good) continue;
        good = false;
        for (const pid_t process : alive) kill(process, SIGKILL);
    }
    for (const Account& report : reports)
        if (report.error[0] != 0) {
            std::fprintf(stderr, "init_bench: %s\n", report.error);
            break;
        }
    munmap(&board, sizeof board);
    return good;
}

template <class Get>
double most(std::span<const Account> reports, Get&& get) {
    return static_cast<double>(get(*std::ranges::max_element(reports, {}, get)));
}
template <class Get>
double mean(std::span<const Account> reports, Get&& get) {
    double sum = 0;
    for (const Account& r : reports) sum += static_cast<double>(get(r));
    return sum / static_cast<double>(reports.size());
}

struct Totals {
    int ranks;
    double rank0_cpu, cpu, kib;
    Held held;
};

Totals print(int ranks, bool calls, std::span<const Account> reports) {
    std::printf("%7d", ranks);
    for (int phase = 0; phase < phases; ++phase)
        if (!calls && (phase == first_call || phase == later_call))
            std::printf(" %12s", "-");
        else
            std::printf(" %12.1f", most(reports, [&](const Account& r) { return r.ms[phase]; }));
    const Totals row{ranks,
                     reports[0].join_cpu_ms,
                     mean(reports, [](const Account& r) { return r.join_cpu_ms; }),
                     mean(reports, [](const Account& r) { return r.joined_kib; }),
                     {ranks, mean(reports, [](const Account& r) { return r.joined_held; }),
                      mean(reports, [](const Account& r) { return r.called_held; })}};
    std::printf(" | %8.1f %8.1f | %5.0f %5.0f %4.0f %4.0f %5.0f %5.0f | %8.0f %8.0f\n", row.rank0_cpu, row.cpu,
                mean(reports, [](const Account& r) { return r.sockets; }),
                most(reports, [](const Account& r) { return r.sockets; }),
                mean(reports, [](const Account& r) { return r.descriptors; }),
                most(reports, [](const Account& r) { return r.descriptors; }),
                mean(reports, [](const Account& r) { return r.threads; }),
                most(reports, [](const Account& r) { return r.threads; }), row.kib,
                mean(reports, [](const Account& r) { return r.private_kib; }));
    std::fflush(stdout);
    return row;
}

/// What of the next row fits into memory, of which it tells.
Extent extent_of(int ranks, const Held& small, const Held& large, std::size_t available) {
    constexpr double gib = 1 << 30;
    const Affordable row = affordable(ranks, small, large, available);
    const double there = static_cast<double>(available) / gib;
    if (row.extent == Extent::join_only)
        std::printf(
            "# %d ranks join only: with their links they would hold about %.1f GiB, of %.1f that are available\n",
            ranks, row.called / gib, there);
    if (row.extent == Extent::nothing)
        std::printf("# no row of %d ranks: to join alone takes about %.1f GiB, of %.1f that are available\n", ranks,
                    row.joined / gib, there);
    return row.extent;
}

/// By a straight line through the two largest rows.
void predict(const Totals& a, const Totals& b, int ranks) {
    const auto at = [&](double Totals::*what) {
        return b.*what + (b.*what - a.*what) / (b.ranks - a.ranks) * (ranks - b.ranks);
    };
    std::printf(
        "\n%d ranks, each with a core of its own, by the line through the last two rows: rank 0 takes %.1f s of CPU "
        "time to join, the others %.2f s, and they hold %.1f MiB each\n",
        ranks, at(&Totals::rank0_cpu) / 1e3, at(&Totals::cpu) / 1e3, at(&Totals::kib) / 1024);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("How long ranks take to join, by phase, and what they then hold: 64, 256, 1024, ... of them");
    int largest = 1024, smallest = 64, per_host = 8, predicted = 131'072;
    app.add_option("-n,--ranks", largest, "How many ranks at most")->check(CLI::Range(2, 1 << 20));
    app.add_option("--from", smallest, "The first row's")->check(CLI::Range(2, 1 << 20));
    app.add_option("--per-host", per_host, "So many ranks share memory")->check(CLI::Range(1, 1 << 20));
    bool join_only = false;
    app.add_flag("--join-only", join_only, "No collectives, whose links take about 1 MiB a rank");
    std::size_t memory_mib = 0;
    app.add_option("--memory", memory_mib, "MiB that count as available; 0: as the kernel says");
    app.add_option("--predict", predicted, "How many ranks to predict the costs of")->check(CLI::Range(2, 1 << 20));
    CLI11_PARSE(app, argc, argv);
    signal(SIGCHLD, SIG_DFL);  // if whoever started us ignores it, no child could be waited for
    setenv("TUTTI_INIT_TIMEOUT_MS", "600000", 0);

    std::printf(
        "until the slowest rank was there, in ms since all were told to begin; calls and leaving by themselves; CPU "
        "time to join of rank 0 and of a rank (mean), in ms; sockets, descriptors, threads: mean and most; private "
        "memory once joined and after the calls, mean, in KiB\n%7s",
        "ranks");
    for (const char* name : phase_names) std::printf(" %12s", name);
    std::printf(" | %8s %8s | %11s %9s %11s | %17s\n", "CPU 0", "CPU", "sockets", "descr.", "threads", "memory");
    std::vector<Totals> rows;
    constexpr int rehearsed_ranks =
        64;  // up to which a first call rehearses all programs, in memory that later rows lack
    std::vector<Held> measured;
    for (int ranks = std::min(smallest, largest);; ranks = std::min(ranks * 4, largest)) {
        const bool enough = measured.size() > 1;
        const Extent extent =
            extent_of(ranks, enough ? measured[measured.size() - 2] : known_small,
                      enough ? measured.back() : known_large, memory_mib > 0 ? memory_mib << 20 : available_memory());
        if (extent == Extent::nothing) break;
        const bool calls = !join_only && extent == Extent::whole;
        const std::span reports(shared<Account>(static_cast<std::size_t>(ranks)), static_cast<std::size_t>(ranks));
        if (!run(ranks, per_host, calls, reports)) return 1;
        rows.push_back(print(ranks, calls, reports));
        munmap(reports.data(), reports.size_bytes());
        if (calls && ranks > rehearsed_ranks) measured.push_back(rows.back().held);
        if (ranks == largest) break;
    }
    if (rows.size() > 1) predict(rows[rows.size() - 2], rows.back(), predicted);
    return rows.empty() || rows.back().ranks < largest ? 1 : 0;
}
