// tutti-tune: measures every algorithm on this machine, or the paths between hosts, so that the tuner need not compute
// alone.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "base/cores.hpp"
#include "base/result.hpp"
#include "plan/tuning.hpp"
#include "tune/hosts.hpp"
#include "tune/options.hpp"
#include "tutti/tutti.h"

namespace {

using namespace tutti;
using namespace tune;
using Clock = std::chrono::steady_clock;

constexpr int turns = 5;   // that the algorithms take for each figure, which is the median of theirs
constexpr double far = 3;  // times the best: what takes so long in its first turn gets no other
constexpr int most_algorithms = 32;

struct Failed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void check(tuttiResult_t result) {
    if (result != tuttiSuccess) throw Failed(tuttiGetLastError(nullptr));
}

/// What ranks and parent share: pages that a fork keeps.
struct Board {
    tuttiUniqueId id;
    int calls[most_algorithms];  // of the next turn; 0: none. Rank 0 writes it, as all that follows but times
    double times[most_ranks];
    double figures[collectives][most_powers][most_algorithms];  // microseconds; 0: none
    std::atomic<int> done;                                      // sizes, of all collectives: the parent's progress
};

/// One collective, as `count` floats per row of two buffers. Calls take the same buffers again and again, as
/// benchmarks do and the model expects.
void call(Collective op, const float* input, float* output, std::size_t count, tuttiComm_t comm) {
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

double microseconds(Clock::duration d) {
    return std::chrono::duration<double, std::micro>(d).count();
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

/// One of the ranks that measure: it has a communicator for each algorithm, so that these can take turns; what else
/// the machine does, and the state that it is in, then concerns all of them alike.
class Rank {
  public:
    Rank(const Options& args, int ranks, int rank, tuttiComm_t whole, Board& board)
        : ranks_(ranks),
          rank_(rank),
          seconds_(args.seconds),
          whole_(whole),
          board_(board),
          input_(std::size_t{1} << (args.max_power - 2), 1.0F),
          output_(input_.size(), 0.0F) {}

    void measure(Collective op, const std::vector<int>& powers) {
        std::vector<Contender> contenders;
        for (std::size_t i = 0; i < algorithms().size(); ++i)
            if (algorithms()[i].supports(op)) contenders.push_back({i, communicator(algorithms()[i]), {}, first_guess});
        for (const int power : powers) {
            for (Contender& c : contenders) c.times.clear();
            for (int turn = 0; turn < turns; ++turn) {
                meet();  // all have read the last plan
                if (rank_ == 0) plan(contenders, turn);
                meet();
                for (std::size_t i = 0; i < contenders.size(); ++i)
                    take_turn(contenders[(i + static_cast<std::size_t>(turn)) % contenders.size()], op, power);
            }
            if (rank_ == 0) write_down(contenders, op, power);
        }
        for (Contender& c : contenders) check(tuttiCommDestroy(c.comm));
    }

  private:
    static constexpr double first_guess = 20;  // microseconds

    struct Contender {
        std::size_t index;  // in algorithms()
        tuttiComm_t comm;
        std::vector<double> times;  // of this size, by turn
        double guess;               // what a call takes: the figure of the size before
    };

    tuttiComm_t communicator(const Algorithm& algorithm) {
        const std::string name(algorithm.name);
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.algorithm = name.c_str();
        config.timeoutMs = 60000;
        config.blocking = 1;
        tuttiComm_t comm = nullptr;
        check(tuttiCommSplit(whole_, 0, rank_, &comm, &config));
        return comm;
    }

    void meet() { check(tuttiBarrier(whole_, nullptr)); }

    /// How many calls each gets in this turn.
    void plan(const std::vector<Contender>& contenders, int turn) {
        double best = 0;
        for (const Contender& c : contenders)
            if (!c.times.empty() && (best == 0 || c.times.front() < best)) best = c.times.front();
        for (const Contender& c : contenders) {
            const double time = c.times.empty() ? c.guess : c.times.front();
            const bool too_far = turn > 0 && c.times.front() > far * best;
            board_.calls[c.index] =
                too_far ? 0 : static_cast<int>(std::clamp(seconds_ * 1e6 / turns / time, 1.0, 20000.0));
        }
    }

    /// A call to warm up, then as many as were planned; they last as long as for the slowest rank.
    void take_turn(Contender& c, Collective op, int power) {
        const int calls = board_.calls[c.index];
        if (calls == 0) return;
        const std::size_t count = row_count(op, power, ranks_);
        call(op, input_.data(), output_.data(), count, c.comm);
        meet();
        const auto begin = Clock::now();
        for (int i = 0; i < calls; ++i) call(op, input_.data(), output_.data(), count, c.comm);
        board_.times[rank_] = microseconds(Clock::now() - begin) / calls;
        meet();
        if (rank_ == 0) c.times.push_back(*std::max_element(board_.times, board_.times + ranks_));
        // The next turn begins with a meeting: nobody writes a time before rank 0 has read this one's.
    }

    /// The median of an algorithm's turns, each beside what the others took in that turn: the machine may have been
    /// slow for a while.
    void write_down(std::vector<Contender>& contenders, Collective op, int power) {
        std::vector<double> usual(turns);
        for (std::size_t turn = 0; turn < usual.size(); ++turn) {
            std::vector<double> times;
            for (const Contender& c : contenders)
                if (c.times.size() == usual.size()) times.push_back(c.times[turn]);  // the best one has all its turns
            usual[turn] = median(times);
        }
        const double overall = median(usual);
        for (Contender& c : contenders) {
            for (std::size_t turn = 0; turn < c.times.size(); ++turn) c.times[turn] /= usual[turn];
            c.guess = median(c.times) * overall;
            board_.figures[static_cast<int>(op)][power][c.index] = c.guess;
        }
        ++board_.done;
    }

    const int ranks_, rank_;
    const double seconds_;
    const tuttiComm_t whole_;
    Board& board_;
    std::vector<float> input_, output_;
};

/// Ranks are bound to cores in turn, as launchers do, so that no figure depends on where the system has put them.
void bind_to_core(int rank) {
    const std::vector<int> cores = cores_of_caller();
    if (!cores.empty())  // and it is allowed
        bind_caller_to(std::span(&cores[static_cast<std::size_t>(rank) % cores.size()], 1));
}

void run_rank(const Options& args, const std::string& transport, int ranks, int rank, Board& board) {
    bind_to_core(rank);
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.transport = transport.c_str();
    config.timeoutMs = 60000;
    config.blocking = 1;  // whatever NCCL_COMM_BLOCKING says
    tuttiComm_t whole = nullptr;
    check(tuttiCommInitRankConfig(&whole, ranks, board.id, rank, &config));
    Rank measuring(args, ranks, rank, whole, board);
    for (const Collective op : args.ops) measuring.measure(op, powers_of(args, op, ranks));
    check(tuttiCommDestroy(whole));
}

int guarded(int ranks, const std::string& transport, const std::function<void()>& body) {
    try {
        body();
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "\ntutti-tune: %s, %d ranks: %s\n", transport.c_str(), ranks, error.what());
        return 1;
    }
}

/// The children that are the ranks: processes (shm), or threads of one (local). This process stays without a thread.
std::vector<pid_t> start_ranks(const Options& args, const std::string& transport, int ranks, Board& board) {
    const auto as_rank = [&](int rank) {
        return guarded(ranks, transport, [&] { run_rank(args, transport, ranks, rank, board); });
    };
    const auto child = [](const std::function<int()>& body) {
        const pid_t pid = fork();
        if (pid == 0) _exit(body());
        if (pid < 0) throw Failed("fork failed");
        return pid;
    };
    if (transport == "local")
        return {child([&] {
            if (guarded(ranks, transport, [&] { check(tuttiGetUniqueId(&board.id)); }) != 0) return 1;
            std::atomic<int> failures{0};
            std::vector<std::thread> threads;
            for (int r = 0; r < ranks; ++r) threads.emplace_back([&, r] { failures += as_rank(r); });
            for (std::thread& t : threads) t.join();
            return failures == 0 ? 0 : 1;
        })};
    int ready[2];
    if (pipe(ready) != 0) throw Failed("pipe failed");
    std::vector<pid_t> children;
    for (int r = 0; r < ranks; ++r)
        children.push_back(child([&, r] {
            const int prepared = guarded(ranks, transport, [&] {
                close(ready[r == 0 ? 0 : 1]);
                char go = 0;
                if (r == 0) check(tuttiGetUniqueId(&board.id));
                for (int other = 1; r == 0 && other < ranks; ++other)
                    if (write(ready[1], &go, 1) != 1) throw Failed("write failed");
                if (r != 0 && read(ready[0], &go, 1) != 1) throw Failed("rank 0 has no id for the others");
            });
            return prepared != 0 ? prepared : as_rank(r);
        }));
    close(ready[0]);
    close(ready[1]);
    return children;
}

/// Waits for all of them; whether all succeeded.
bool finished(std::vector<pid_t> children, const std::function<void()>& say_progress) {
    bool good = true;
    while (!children.empty()) {
        int status = 0;
        const pid_t ended = waitpid(-1, &status, WNOHANG);
        good &= ended <= 0 || status == 0;
        std::erase(children, ended);
        say_progress();
        if (ended <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return good;
}

void keep(Tuning& tuning, const Board& board, const std::string& transport, int ranks) {
    for (int op = 0; op < collectives; ++op)
        for (int power = 0; power < most_powers; ++power)
            for (std::size_t i = 0; i < algorithms().size(); ++i)
                if (const double us = board.figures[op][power][i]; us > 0) {
                    const auto collective = static_cast<Collective>(op);
                    tuning.add(collective, std::string(algorithms()[i].name), transport, ranks,
                               {collective == Collective::barrier ? 0 : std::size_t{1} << power, us});
                }
}

int measure(const Options& args) {
    TUTTI_ASSERT(algorithms().size() <= most_algorithms);
    std::signal(SIGCHLD, SIG_DFL);  // if whoever started us ignores it, no child could be waited for
    const int total = sizes(args);
    int done = 0;
    void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw Failed("mmap failed");
    Tuning tuning = known_in(args.out);
    const auto begin = Clock::now();
    for (const std::string& transport : args.transports)
        for (const int ranks : args.ranks) {
            Board& board = *new (shared) Board{};
            int shown = -1;
            const bool good = finished(start_ranks(args, transport, ranks, board), [&] {
                const int share = 100 * (done + board.done) / total;
                if (args.quiet || share == std::exchange(shown, share)) return;
                std::fprintf(stderr, "\r%3d %%  %s, %d ranks  ", share, transport.c_str(), ranks);
            });
            if (!good) {
                std::fprintf(stderr, "\ntutti-tune: something failed; nothing was written\n");
                return 1;
            }
            done += board.done;
            keep(tuning, board, transport, ranks);
        }
    if (!args.quiet) std::fprintf(stderr, "\n");
    tuning.write(args.out);
    std::printf("%.0f s; wrote %s\n", microseconds(Clock::now() - begin) / 1e6, args.out.c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const Options options = understood(argc, argv, Tuning::default_path());
        if (!options.hosts) return measure(options);
        measure_paths(options);
        return 0;
    } catch (const NotUnderstood& because) {
        return because.say();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tutti-tune: %s\n", error.what());
        return 1;
    }
}
