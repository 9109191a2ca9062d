#include "run/guard.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "run/say.hpp"

namespace run {

namespace {

[[noreturn]] void watch(int from) {
    setsid();  // a signal for the terminal's job is not for the guard
    prctl(PR_SET_NAME, "tutti-run-guard");
    const int nothing = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) dup2(nothing, fd);  // nobody shall wait for the guard to close a pipe
    std::vector<pid_t> groups;
    pid_t pid;
    while (read(from, &pid, sizeof pid) == sizeof pid) {
        if (pid > 0) {
            groups.push_back(pid);
        } else {
            std::erase(groups, -pid);
        }
    }
    for (const pid_t group : groups) kill(-group, SIGKILL);
    _exit(0);
}

}  // namespace

void Guard::start() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) die("cannot make a pipe");
    pid_ = fork();
    if (pid_ < 0) die("cannot start the guard");
    if (pid_ == 0) {
        close(ends[1]);
        watch(ends[0]);
    }
    close(ends[0]);
    to_guard_ = ends[1];
}

void Guard::forget() const {
    close(to_guard_);
}

void Guard::note(pid_t pid) const {
    if (write(to_guard_, &pid, sizeof pid) < 0) return;  // no guard any more: PR_SET_PDEATHSIG remains
}

void Guard::stop() const {
    close(to_guard_);
    waitpid(pid_, nullptr, 0);
}

}  // namespace run
