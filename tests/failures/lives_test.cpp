// Communicators that come and go, processes that fork and end, signals.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "base/config.hpp"
#include "base/log.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/folder.hpp"
#include "harness/harness.hpp"
#include "walk.hpp"

using namespace tutti;
using namespace tutti::failing;

namespace {

std::vector<tuttiComm_t> joined(Way way, int ranks) {
    if (way == Way::local) return harness::make_comms(ranks);
    const tuttiUniqueId id = harness::new_id();
    const tuttiConfig_t config = config_of(way);
    std::vector<tuttiComm_t> comms(static_cast<std::size_t>(ranks));
    tuttiGroupStart();
    for (int r = 0; r < ranks; ++r) tuttiCommInitRankConfig(&comms[static_cast<std::size_t>(r)], ranks, id, r, &config);
    harness::must_succeed(tuttiGroupEnd(), "tuttiCommInitRankConfig");
    return comms;
}

/// Made, used and destroyed; every second time a part of it as well.
void live(Way way, bool split) {
    const std::vector<tuttiComm_t> comms = joined(way, 2);
    harness::run(2, [&](int r) {
        const tuttiComm_t comm = comms[static_cast<std::size_t>(r)];
        harness::check(sums_up(comm), "sum");
        tuttiComm_t part = nullptr;
        if (split) {
            harness::must_succeed(tuttiCommSplit(comm, 0, r, &part, nullptr), "split");
            harness::check(sums_up(part), "sum of the part");
            harness::must_succeed(tuttiCommDestroy(part), "destroy");
        }
        harness::must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

std::set<std::string> descriptors() {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        all.insert(entry.path().filename().string());
    return all;
}

struct Taken {
    long descriptors, threads, maps, bytes;
};
Taken taken() {
    Taken t{};
    t.descriptors = static_cast<long>(descriptors().size());
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++t.threads;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) ++t.maps;
    t.bytes = static_cast<long>(mallinfo2().uordblks);
    return t;
}

/// The same after so many lives as after half of them.
void live_often(int lives) {
    const auto some = [&] {
        for (int i = 0; i < lives / 2; ++i)
            live(i % 8 == 0 ? Way::shm : i % 8 == 1 ? Way::tcp : Way::local, i % 4 == 0);
        Taken t = taken();
        for (int tries = 0; tries < 1000 && t.descriptors > 12; ++tries) usleep(1000), t = taken();
        return t;
    };
    const Taken before = some(), after = some();
    CHECK(after.descriptors <= before.descriptors);
    CHECK(after.threads <= before.threads);
    CHECK(after.maps <= before.maps + 8);             // of malloc's arenas
    CHECK(after.bytes <= before.bytes + 256 * 1024);  // what threads keep in hand
}

/// This program again, with a hidden test.
int run_again(const char* name) {
    pid_t child = 0;
    const std::string self = harness::this_program();
    const char* const arguments[] = {self.c_str(), name, nullptr};
    if (posix_spawn(&child, self.c_str(), nullptr, nullptr, const_cast<char**>(arguments), environ) != 0) return -1;
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

std::vector<tuttiComm_t> to_destroy;

}  // namespace

TEST_CASE("a thousand communicators leave nothing behind") {
    live_often(1000);
}
TEST_CASE("a hundred thousand communicators leave nothing behind", "[.][full]") {
    live_often(100'000);
}

TEST_CASE("signals disturb nothing that waits") {
    struct Storm {
        Storm() {
            struct sigaction action {};
            action.sa_handler = [](int) {};  // without SA_RESTART
            sigaction(SIGALRM, &action, &before_);
            const itimerval often{{0, 300}, {0, 300}};
            setitimer(ITIMER_REAL, &often, nullptr);
        }
        ~Storm() {
            const itimerval never{};
            setitimer(ITIMER_REAL, &never, nullptr);
            sigaction(SIGALRM, &before_, nullptr);
        }
        struct sigaction before_ {};
    };
    for (const Way way : {Way::local, Way::shm, Way::tcp}) {
        const Storm storm;
        for (int i = 0; i < 5; ++i) live(way, true);
        const std::vector<tuttiComm_t> comms = joined(way, 2);
        harness::run(2, [&](int r) {
            const tuttiComm_t comm = comms[static_cast<std::size_t>(r)];
            for (int i = 0; i < 20; ++i) {
                if (i % 5 == r) usleep(5000);  // the other one sleeps
                harness::run_case({harness::Case::What::all_reduce, 30'000}, comm, r, 2);
            }
            harness::must_succeed(tuttiCommDestroy(comm), "destroy");
        });
    }
}

TEST_CASE("no program that is executed inherits a descriptor") {
    const std::set<std::string> before = descriptors();
    for (const Way way : {Way::shm, Way::tcp}) {
        const std::vector<tuttiComm_t> comms = joined(way, 2);
        harness::run(2, [&](int r) { harness::check(sums_up(comms[static_cast<std::size_t>(r)]), "sum"); });
        int looked_at = 0;
        for (const std::string& fd : descriptors()) {
            const int flags = before.contains(fd) ? -1 : fcntl(std::stoi(fd), F_GETFD);
            if (flags < 0) continue;  // the one of this look at the folder
            ++looked_at;
            INFO("descriptor " << fd << ": " << std::filesystem::read_symlink("/proc/self/fd/" + fd));
            CHECK((flags & FD_CLOEXEC) != 0);
        }
        CHECK(looked_at > 3);
        for (const tuttiComm_t comm : comms) REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
    }
}

TEST_CASE("a process that forks goes on, whatever becomes of its child") {
    for (const Way way : {Way::local, Way::shm, Way::tcp}) {
        const std::vector<tuttiComm_t> comms = joined(way, 2);
        const auto sum = [&] {
            harness::run(2, [&](int r) { harness::check(sums_up(comms[static_cast<std::size_t>(r)]), "sum"); });
        };
        sum();
        for (const bool exits : {true, false}) {
            const pid_t child = fork();
            if (child == 0 && exits) _exit(0);
            if (child == 0) execl("/bin/true", "true", nullptr), _exit(1);
            int status = -1;
            REQUIRE(waitpid(child, &status, 0) == child);
            CHECK(status == 0);
            sum();
        }
        for (const tuttiComm_t comm : comms) REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
    }
}

TEST_CASE("a process ends although it has communicators, whoever ends it") {
    for (const char* end : {"exit without destroy", "exit from a thread", "destroy at exit"}) {
        INFO(end);
        CHECK(run_again(end) == 0);
    }
}

TEST_CASE("the first line of the log is written although there is no memory") {
    const harness::Folder folder;
    const std::string host(40, 'h'), file = folder.path + "/log of " + host + " 100%% %p";
    setenv("TUTTI_DEBUG_FILE", file.c_str(), 1);
    setenv("TUTTI_DEBUG", "a level that takes more room than a short text", 1);
    CHECK(run_again("a line without memory") == 0);
    unsetenv("TUTTI_DEBUG_FILE");
    unsetenv("TUTTI_DEBUG");
    std::string all;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path)) {
        CHECK(entry.path().filename().string().starts_with("log of " + host + " 100% "));
        std::getline(std::ifstream(entry.path()), all, '\0');
    }
    CHECK(all.find("TUTTI_DEBUG is 'A LEVEL THAT TAKES MORE ROOM THAN A SHORT TEXT'") != std::string::npos);
    CHECK(all.find("TUTTI WARN there is no memory left\n") != std::string::npos);
}
TEST_CASE("a line without memory", "[.]") {
    config();  // read while there is memory
    arm(Kind::memory, When::from_then);
    log(Level::warn, "there is no %s left", "memory");
    const Outcome outcome = disarm();
    CHECK(outcome.failed == 0);
}

TEST_CASE("exit without destroy", "[.]") {
    for (const Way way : {Way::local, Way::shm, Way::tcp}) CHECK(sums_up(joined(way, 1)[0]));
    joined(Way::shm, 2);
    joined(Way::tcp, 2);
    tuttiStream_t stream;
    tuttiStreamCreate(&stream);
    std::exit(0);
}
TEST_CASE("exit from a thread", "[.]") {
    joined(Way::shm, 2);
    std::thread([] {
        joined(Way::tcp, 2);
        std::exit(0);
    }).join();
}
TEST_CASE("destroy at exit", "[.]") {
    std::atexit([] {
        for (const tuttiComm_t comm : to_destroy)
            if (tuttiCommDestroy(comm) != tuttiSuccess) _exit(5);
    });
    for (const Way way : {Way::local, Way::shm, Way::tcp})
        for (const tuttiComm_t comm : joined(way, 2)) to_destroy.push_back(comm);
    std::exit(0);
}
