// tutti-run: starts N ranks of a program on this host, tells them apart by the variables that torchrun's users know,
// and sees to it that none outlives the job. It links nothing of Tutti: any program that reads these variables can be
// started.
//
//   tutti-run -+- rank 0   (each rank leads a process group of its own, so that it can be ended with all that it
//   started)
//              +- rank 1
//              +- guard    (ends the ranks' groups if tutti-run itself is killed)

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cores.hpp"
#include "run/guard.hpp"
#include "run/options.hpp"
#include "run/output.hpp"
#include "run/say.hpp"
#include "run/surroundings.hpp"

namespace {

using namespace run;
using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;

// Time for the ranks to print their own error after one of them failed, and then to leave after SIGTERM.
constexpr auto grace = std::chrono::seconds(2);
constexpr int most_kills = 5;  // SIGKILLs, a grace apart: who waits in the kernel may not end even then
constexpr std::array passed_on = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

struct Rank {
    pid_t pid = -1;
    bool running = false;
    std::array<Output, 2> outputs;
};

/// How the first failing rank ended, or why the job was stopped.
struct Failure {
    int code = 0;
    std::string text;
};

/// Whether this process was started with the signal ignored, as by nohup. So are its ranks.
bool is_ignored(int signal) {
    struct sigaction action {};
    return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

class Job {
  public:
    explicit Job(const Options& options) : options_(options), ranks_(options.ranks) {}

    int run() {
        block_signals();
        guard_.start();
        set_common_variables(options_);
        if (options_.timeout > 0)
            stop_at_ = Clock::now() +
                       std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout));
        start_all();
        while (running() > 0) {
            wait_for_events();
            keep_deadlines();
        }
        for (Rank& rank : ranks_)
            for (Output& output : rank.outputs) output.finish(writable_);
        guard_.stop();
        close(reports_);
        if (failure_) return failure_->code;
        return borne_ && !succeeded_ ? borne_->code : 0;
    }

  private:
    struct StartError {
        int rank;
        int error;
    };

    // Signals arrive as data, so that there is one loop and no handler.
    void block_signals() {
        std::signal(SIGCHLD, SIG_DFL);  // if whoever started us ignores it, nobody would hear of a rank's end
        sigset_t set;
        sigemptyset(&set);
        for (const int signal : passed_on)
            if (!is_ignored(signal)) sigaddset(&set, signal);
        sigaddset(&set, SIGCHLD);
        sigprocmask(SIG_BLOCK, &set, &original_mask_);
        signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (signals_ < 0) die("cannot receive signals");
        std::signal(SIGPIPE, SIG_IGN);  // a closed output ends the ranks that write to it, see Output
    }

    /// Does not wait until the ranks have become CMD: that may take long where its file is on another host.
    void start_all() {
        int report[2];
        if (pipe2(report, O_CLOEXEC) != 0) die("cannot make a pipe");
        reports_ = report[0];
        fcntl(reports_, F_SETFL, O_NONBLOCK);
        cores_ = tutti::cores_of_caller();
        if (cores_.empty()) die("cannot read the cores of this process");
        for (int r = 0; r < options_.ranks && !failure_; ++r) start(r, report[1]);
        close(report[1]);
    }

    /// A rank that can't become CMD reports that before it ends.
    void take_report() {
        StartError failed;
        if (read(reports_, &failed, sizeof failed) != sizeof failed) return;
        const int code = failed.error == ENOENT ? exit_not_found : exit_not_executable;
        fail({code, "cannot run '" + options_.command[0] + "': " + std::strerror(failed.error)});
        stop_at_ = kill_at_ = Clock::now();
    }

    void start(int r, int report) {
        Rank& rank = ranks_[r];
        std::array<int, 2> outputs = {1, 2};
        for (int i = 0; i < 2 && options_.prefix; ++i) {
            outputs[i] = rank.outputs[i].open(r, i + 1);
            if (outputs[i] < 0) return not_started(r, "cannot make a pipe");
        }
        const pid_t parent = getpid();
        rank.pid = fork();
        if (rank.pid == 0) become(r, outputs, parent, report);
        if (rank.pid < 0) {
            not_started(r, "cannot start");
        } else {
            setpgid(rank.pid, rank.pid);  // here and in the child: whoever is first
            rank.running = true;
            guard_.note(rank.pid);
        }
        for (int i = 0; i < 2 && options_.prefix; ++i) close(outputs[i]);
    }

    void not_started(int r, const char* why) {
        fail({1, std::string(why) + " (rank " + std::to_string(r) + "): " + std::strerror(errno)});
        stop_at_ = kill_at_ = Clock::now();
    }

    /// The child's way from fork to CMD.
    [[noreturn]] void become(int r, std::array<int, 2> outputs, pid_t parent, int report) {
        setpgid(0, 0);
        guard_.forget();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);  // it died before the line above
        std::signal(SIGPIPE, SIG_DFL);
        sigprocmask(SIG_SETMASK, &original_mask_, nullptr);
        // Only rank 0 reads our input, and no rank a terminal: it is in the background there, and would be stopped.
        if (r != 0 || isatty(0)) dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
        for (int i = 0; i < 2; ++i)
            if (outputs[i] != i + 1) dup2(outputs[i], i + 1);
        if (options_.bind) tutti::bind_caller_to(std::span(&cores_[r % cores_.size()], 1));
        set("RANK", std::to_string(r));
        set("LOCAL_RANK", std::to_string(r));
        std::vector<char*> argv;
        for (const auto& word : options_.command) argv.push_back(const_cast<char*>(word.c_str()));
        argv.push_back(nullptr);
        execvp(argv[0], argv.data());
        const StartError failed{r, errno};
        if (write(report, &failed, sizeof failed) < 0) _exit(1);
        _exit(exit_not_found);
    }

    long running() const {
        return std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
    }

    void fail(Failure failure) {
        if (failure_) return;
        say("%s", failure.text.c_str());
        failure_ = std::move(failure);
    }

    void signal_all(int signal) const {
        for (const Rank& rank : ranks_)
            if (rank.running) kill(-rank.pid, signal);
    }

    // ---- events

    void wait_for_events() {
        std::vector<pollfd> polled = {{signals_, POLLIN, 0}};
        std::vector<Output*> readers;
        for (Rank& rank : ranks_)
            for (Output& output : rank.outputs)
                if (output.from() >= 0) {
                    polled.push_back({output.from(), POLLIN, 0});
                    readers.push_back(&output);
                }
        poll(polled.data(), polled.size(), milliseconds_to_next_deadline());
        for (std::size_t i = 0; i < readers.size(); ++i)
            if (polled[i + 1].revents) readers[i]->pass_on(writable_);
        take_signals();
    }

    /// What Writable promises. All else goes on meanwhile.
    bool wait_until_writable(int fd) {
        for (;;) {
            std::array<pollfd, 2> polled = {{{signals_, POLLIN, 0}, {fd, POLLOUT, 0}}};
            poll(polled.data(), polled.size(), milliseconds_to_next_deadline());
            take_signals();
            keep_deadlines();
            if (polled[1].revents) return true;
            if (running() > 0 || !leave_at_ || Clock::now() < *leave_at_) continue;
            fail({1, "nobody reads the output"});
            return false;
        }
    }

    void take_signals() {
        signalfd_siginfo info;
        while (read(signals_, &info, sizeof info) == sizeof info) receive(static_cast<int>(info.ssi_signo));
    }

    void receive(int signal) {
        if (signal == SIGCHLD) return reap();
        signal_all(signal);
        const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
        if (ends && std::exchange(asked_to_end_, true) && !kill_at_) {
            fail({128 + signal, std::string("asked again to end: ") + strsignal(signal)});
            stop_at_ = Clock::now();
        }
        if (signal != SIGTSTP) return;
        const auto stopped = Clock::now();
        kill(getpid(), SIGSTOP);  // until SIGCONT, which is passed on in its turn
        const auto paused = Clock::now() - stopped;
        for (Deadline* deadline : {&stop_at_, &kill_at_})
            if (*deadline) **deadline += paused;
    }

    void reap() {
        // Of several that ended since the last look, a killed one is the cause and the others the consequence.
        std::vector<std::pair<int, siginfo_t>> failed;
        siginfo_t info{};
        while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
            const auto rank =
                std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& r) { return r.pid == info.si_pid; });
            if (rank != ranks_.end()) {
                // As long as the rank is a zombie its number can't be another group's: end what it has left behind.
                kill(-info.si_pid, SIGKILL);
                rank->running = false;
                guard_.note(-info.si_pid);
                if (info.si_status != 0) failed.push_back({static_cast<int>(rank - ranks_.begin()), info});
                succeeded_ |= info.si_status == 0;
            }
            waitpid(info.si_pid, nullptr, 0);
            info.si_pid = 0;
        }
        take_report();
        std::stable_sort(failed.begin(), failed.end(), [](const auto& a, const auto& b) {
            return (a.second.si_code != CLD_EXITED) > (b.second.si_code != CLD_EXITED);
        });
        for (const auto& [rank, how] : failed) rank_failed(rank, how);
    }

    void rank_failed(int r, const siginfo_t& how) {
        if (failure_) return;
        const std::string who = "rank " + std::to_string(r) + " (pid " + std::to_string(how.si_pid) + ") ";
        Failure failure;
        if (how.si_code == CLD_EXITED)
            failure = {how.si_status, who + "exited with code " + std::to_string(how.si_status)};
        else
            failure = {128 + how.si_status, who + "was killed by signal " + std::to_string(how.si_status) + " (" +
                                                strsignal(how.si_status) + ")"};
        if (options_.keep_going && !asked_to_end_) {
            say("%s", failure.text.c_str());
            if (!borne_) borne_ = std::move(failure);
            return;
        }
        fail(std::move(failure));
        stop_at_ = Clock::now() + grace;
    }

    // ---- deadlines

    int milliseconds_to_next_deadline() const {
        const Deadline& next = running() == 0 ? leave_at_ : kill_at_ ? kill_at_ : stop_at_;
        if (!next) return -1;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
        return static_cast<int>(std::clamp<long>(left, 0, 1000 * 1000));
    }

    std::string running_ranks() const {
        std::string list;
        for (std::size_t r = 0; r < ranks_.size(); ++r)
            if (ranks_[r].running) list += (list.empty() ? "" : ", ") + std::to_string(r);
        return list;
    }

    void keep_deadlines() {
        const auto now = Clock::now();
        if (running() == 0) {
            if (!leave_at_ && (asked_to_end_ || overdue_)) leave_at_ = now + grace;
            return;
        }
        if (kill_at_ && now >= *kill_at_) {
            if (kills_++ == most_kills) return leave_behind();
            signal_all(SIGKILL);
            kill_at_ = now + grace;
        } else if (!kill_at_ && stop_at_ && now >= *stop_at_) {
            overdue_ = !failure_;
            if (overdue_) fail({exit_timeout, "not finished in time (--timeout)"});
            say("stopping rank %s", running_ranks().c_str());
            signal_all(SIGTERM);
            signal_all(SIGCONT);  // a stopped rank could not follow
            kill_at_ = now + grace;
        }
    }

    void leave_behind() {
        say("rank %s does not end, not even by SIGKILL; tutti-run does", running_ranks().c_str());
        for (Rank& rank : ranks_) rank.running = false;
    }

    const Options& options_;
    std::vector<Rank> ranks_;
    std::vector<int> cores_;
    int reports_ = -1;  // StartErrors come here
    Guard guard_;
    sigset_t original_mask_{};
    int signals_ = -1;
    int kills_ = 0;  // SIGKILLs so far
    bool asked_to_end_ = false;
    bool overdue_ = false;  // --timeout has passed
    std::optional<Failure> failure_;
    std::optional<Failure> borne_;  // --keep-going: the first one
    bool succeeded_ = false;        // a rank has
    Deadline stop_at_;              // SIGTERM for all then
    Deadline kill_at_;              // and SIGKILL then
    Deadline leave_at_;             // no rank runs, and the job was to end: output that nobody reads is dropped then
    const Writable writable_ = [this](int fd) { return wait_until_writable(fd); };
};

}  // namespace

int main(int argc, char** argv) {
    // Whoever closed our input or output shall not find one of our pipes there.
    for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR))
        if (fd > 2) {
            close(fd);
            break;
        }
    const Options options = parse(argc, argv);
    if (options.quiet) be_quiet();
    return Job(options).run();
}
