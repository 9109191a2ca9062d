// tutti-tune: measures every algorithm on this machine, so that the tuner need not compute alone.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "base/result.hpp"
#include "tuner/tuning.hpp"
#include "tutti/tutti.h"

namespace {

using namespace tutti;
using Clock = std::chrono::steady_clock;

struct Arguments {
    std::vector<int> ranks;
    std::vector<std::string> ops;
    std::vector<std::string> transports{"shm", "local"};
    double seconds = 0.006;  // per figure
    int max_power = 24;      // of the bytes
    std::string out;
    bool quiet = false;
};

struct Failed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void check(tuttiResult_t result) {
    if (result != tuttiSuccess) throw Failed(tuttiGetLastError(nullptr));
}

/// What ranks and parent share: pages that a fork keeps.
struct Board {
    std::atomic<int> rounds;
    double times[64];
    tuttiUniqueId id;
    std::atomic<double> figures[64];  // microseconds by power of two of the bytes; 0: none
};

/// One collective with buffers for it, as `count` floats per row. Calls take turns over more memory than caches hold,
/// as those of a program with other things to do find theirs cold.
struct Subject {
    Collective op;
    int ranks;
    std::vector<float> all_input, all_output;
    std::size_t largest = 0, next = 0;  // floats of a call's larger buffer; where the next call's begin

    void call(std::size_t count, tuttiComm_t comm) {
        if (next + largest > all_input.size()) next = 0;
        float* const input = all_input.data() + next;
        float* const output = all_output.data() + next;
        next += (largest + 15) / 16 * 16;
        switch (op) {
            case Collective::all_reduce:
                return check(tuttiAllReduce(input, output, count, tuttiFloat32, tuttiSum, comm, nullptr));
            case Collective::reduce_scatter:
                return check(tuttiReduceScatter(input, output, count, tuttiFloat32, tuttiSum, comm, nullptr));
            case Collective::all_gather:
                return check(tuttiAllGather(input, output, count, tuttiFloat32, comm, nullptr));
            case Collective::broadcast:
                return check(tuttiBroadcast(input, output, count, tuttiFloat32, 0, comm, nullptr));
            case Collective::reduce:
                return check(tuttiReduce(input, output, count, tuttiFloat32, tuttiSum, 0, comm, nullptr));
            case Collective::all_to_all:
                return check(tuttiAlltoAll(input, output, count, tuttiFloat32, comm, nullptr));
            case Collective::gather:
                return check(tuttiGather(input, output, count, tuttiFloat32, 0, comm, nullptr));
            case Collective::scatter:
                return check(tuttiScatter(input, output, count, tuttiFloat32, 0, comm, nullptr));
            case Collective::barrier:
                return check(tuttiBarrier(comm, nullptr));
            case Collective::send:
            case Collective::recv:
                break;
        }
        throw Failed("no collective to measure");
    }
};

double microseconds(Clock::duration d) {
    return std::chrono::duration<double, std::micro>(d).count();
}

/// The shortest of three batches, each as long as its slowest rank: what else runs on the machine only adds. All ranks
/// call this alike.
double measure(Subject& subject, std::size_t count, tuttiComm_t comm, int rank, Board& board, double seconds) {
    const auto meet = [&] { check(tuttiBarrier(comm, nullptr)); };
    const auto batch = [&](int rounds) {
        meet();
        const auto begin = Clock::now();
        for (int i = 0; i < rounds; ++i) subject.call(count, comm);
        board.times[rank] = microseconds(Clock::now() - begin) / rounds;
        meet();
        return *std::max_element(board.times, board.times + subject.ranks);
    };
    const double first = std::min(batch(1), batch(1));
    if (rank == 0) board.rounds = static_cast<int>(std::clamp(seconds * 1e6 / 3 / std::max(first, 0.05), 1.0, 20000.0));
    meet();
    const int rounds = board.rounds;
    double best = first;
    for (int i = 0; i < 3; ++i) {
        best = std::min(best, batch(rounds));
        meet();  // before anybody writes times again
    }
    return best;
}

/// All sizes of one algorithm, from the smallest on; stops where it can't win any more.
void run_rank(const Arguments& args, Collective op, int ranks, int rank, tuttiComm_t comm, Board& board,
              const std::vector<double>& best) {
    const std::size_t most = op == Collective::barrier ? 64 : std::size_t{1} << args.max_power;
    const std::size_t room = std::max(most, (std::size_t{128} << 20) / static_cast<std::size_t>(ranks));
    Subject subject{op, ranks, std::vector<float>(room / 4, 1.0F), std::vector<float>(room / 4, 0.0F)};
    int behind = 0;
    for (int power = 3; power <= args.max_power; ++power) {
        const std::size_t bytes = std::size_t{1} << power;
        const std::size_t row = row_per_rank(op) ? bytes / static_cast<std::size_t>(ranks) : bytes;
        if (row < 4) continue;
        subject.largest = bytes / 4;
        const double time = measure(subject, row / 4, comm, rank, board, args.seconds);
        if (rank == 0) board.figures[power] = time;
        check(tuttiBarrier(comm, nullptr));
        const auto p = static_cast<std::size_t>(power);
        behind = best[p] > 0 && board.figures[p] > 3 * best[p] ? behind + 1 : 0;
        if (behind == 3 || op == Collective::barrier) return;
    }
}

tuttiConfig_t configuration(const std::string& algorithm, const std::string& transport) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.algorithm = algorithm.c_str();
    config.transport = transport.c_str();
    config.timeoutMs = 60000;
    return config;
}

/// Ranks as processes (shm) or as threads of one (local), in children: this process stays without a thread.
bool run_all(const Arguments& args, Collective op, const Algorithm& algorithm, const std::string& transport, int ranks,
             Board& board, const std::vector<double>& best) {
    for (auto& f : board.figures) f = 0;
    const std::string named = algorithm.name.data();
    const auto guarded = [&](auto&& body) {
        try {
            body();
            return 0;
        } catch (const std::exception& error) {
            std::fprintf(stderr, "tutti-tune: %s, %d ranks: %s\n", named.c_str(), ranks, error.what());
            return 1;
        }
    };
    const tuttiConfig_t config = configuration(named, transport);
    const auto as_rank = [&](int rank, tuttiComm_t comm) {
        run_rank(args, op, ranks, rank, comm, board, best);
        check(tuttiCommDestroy(comm));
    };
    std::vector<pid_t> children;
    if (transport == "local") {
        const pid_t child = fork();
        if (child == 0)
            _exit(guarded([&] {
                tuttiUniqueId id;
                check(tuttiGetUniqueId(&id));
                std::vector<std::thread> threads;
                std::atomic<int> failures{0};
                for (int r = 0; r < ranks; ++r)
                    threads.emplace_back([&, r] {
                        failures += guarded([&] {
                            tuttiComm_t comm = nullptr;
                            check(tuttiCommInitRankConfig(&comm, ranks, id, r, &config));
                            as_rank(r, comm);
                        });
                    });
                for (std::thread& t : threads) t.join();
                if (failures > 0) throw Failed("it failed");
            }));
        children.push_back(child);
    } else {
        int ready[2];
        if (pipe(ready) != 0) throw Failed("pipe failed");
        for (int r = 0; r < ranks; ++r) {
            const pid_t child = fork();
            if (child == 0)
                _exit(guarded([&] {
                    char go = 0;
                    if (r == 0) {
                        check(tuttiGetUniqueId(&board.id));
                        for (int other = 1; other < ranks; ++other)
                            if (write(ready[1], &go, 1) != 1) throw Failed("write failed");
                    } else if (read(ready[0], &go, 1) != 1) {
                        throw Failed("read failed");
                    }
                    tuttiComm_t comm = nullptr;
                    check(tuttiCommInitRankConfig(&comm, ranks, board.id, r, &config));
                    as_rank(r, comm);
                }));
            children.push_back(child);
        }
        close(ready[0]);
        close(ready[1]);
    }
    bool good = true;
    for (const pid_t child : children) {
        int status = 0;
        good &= child > 0 && waitpid(child, &status, 0) == child && status == 0;
    }
    return good;
}

std::vector<Collective> wanted(const Arguments& args) {
    std::vector<Collective> ops;
    for (int c = 0; c < collectives; ++c) {
        const auto op = static_cast<Collective>(c);
        if (op == Collective::send || op == Collective::recv) continue;
        if (args.ops.empty() || std::ranges::find(args.ops, name_of(op)) != args.ops.end()) ops.push_back(op);
    }
    if (ops.size() < args.ops.size()) throw CLI::ValidationError("--op", "names a collective that there is not");
    return ops;
}

int tune(const Arguments& args) {
    const std::vector<Collective> ops = wanted(args);
    std::size_t total = 0, done = 0;
    for (const Collective op : ops)
        for (const Algorithm& a : algorithms()) total += a.supports(op) * args.ranks.size() * args.transports.size();
    void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw Failed("mmap failed");
    Board& board = *new (shared) Board;
    Tuning tuning;
    const auto begin = Clock::now();
    bool good = true;
    for (const std::string& transport : args.transports)
        for (const int ranks : args.ranks)
            for (const Collective op : ops) {
                std::vector<double> best(64, 0.0);
                for (const Algorithm& a : algorithms()) {
                    if (!a.supports(op)) continue;
                    ++done;
                    if (!args.quiet)
                        std::fprintf(stderr, "\r%3zu %%  %s, %d ranks, %s by %s%20s", 100 * done / total,
                                     transport.c_str(), ranks, name_of(op).data(), a.name.data(), "");
                    good &= run_all(args, op, a, transport, ranks, board, best);
                    for (std::size_t p = 0; p < best.size(); ++p) {
                        const double us = board.figures[p];
                        if (us == 0) continue;
                        best[p] = best[p] > 0 ? std::min(best[p], us) : us;
                        tuning.add(op, std::string(a.name), transport, ranks,
                                   {op == Collective::barrier ? 0 : std::size_t{1} << p, us});
                    }
                }
            }
    if (!args.quiet) std::fprintf(stderr, "\n");
    if (!good) {
        std::fprintf(stderr, "tutti-tune: something failed; nothing was written\n");
        return 1;
    }
    tuning.write(args.out);
    std::printf("%.0f s; wrote %s\n", microseconds(Clock::now() - begin) / 1e6, args.out.c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Arguments args;
    args.out = Tuning::default_path();
    CLI::App app{
        "Measures every algorithm on this machine, which should do nothing else meanwhile, and keeps the figures "
        "where\n"
        "communicators find them. Not needed: without them the tuner computes.",
        "tutti-tune"};
    app.add_option("-n,--ranks", args.ranks, "numbers of ranks (2, 4, 8)")->check(CLI::Range(2, 64));
    app.add_option("--op", args.ops, "collectives (all)");
    app.add_option("--transport", args.transports, "shm (ranks are processes), local (threads) (both)")
        ->check(CLI::IsMember({"shm", "local"}));
    app.add_option("--seconds", args.seconds, "for each figure (0.006)")->check(CLI::Range(1e-4, 10.0));
    app.add_option("--max-power", args.max_power, "largest size as a power of two (24: 16 MiB)")
        ->check(CLI::Range(3, 32));
    app.add_option("--out", args.out, "the file (TUTTI_TUNING, or one in the cache directory)");
    app.add_flag("--quiet", args.quiet, "no progress");
    try {
        app.parse(argc, argv);
        if (args.ranks.empty()) args.ranks = {2, 4, 8};
        if (args.out.empty())
            throw CLI::ValidationError("--out", "is needed: TUTTI_TUNING is none, or there is no HOME");
        return tune(args);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tutti-tune: %s\n", error.what());
        return 1;
    }
}
