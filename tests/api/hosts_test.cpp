// Communicators of ranks on several hosts that are shrunk, split, grown and suspended, also after deaths. A host is
// what TUTTI_HOSTID says, so each rank is this program once more, as a process of its own: it runs the hidden test
// below.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "tutti/tutti.h"

using namespace tutti;

namespace {

using Hosts = std::vector<std::string>;

constexpr const char* hidden_name = "a rank on a host of its own";
constexpr std::chrono::seconds longest{90};  // that a test's processes live

struct Expected {
    const char* what;
};
void expect(bool fine, const char* what) {
    if (!fine) throw Expected{what};
}
void expect(tuttiResult_t result, const char* what) {
    expect(result == tuttiSuccess, what);
}

// ---- what a rank does

int sum(tuttiComm_t comm) {
    int one = 1, sum = 0;
    return tuttiAllReduce(&one, &sum, 1, tuttiInt32, tuttiSum, comm, nullptr) == tuttiSuccess ? sum : -1;
}

/// Until it fails.
tuttiResult_t work(tuttiComm_t comm) {
    float x = 1;
    tuttiResult_t result = tuttiSuccess;
    while (result == tuttiSuccess) result = tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiMax, comm, nullptr);
    return result;
}

std::vector<int> failed_ranks(tuttiComm_t comm) {
    std::vector<int> all(16);
    int count = 0;
    expect(tuttiCommGetFailedRanks(comm, all.data(), 16, &count), "failed ranks");
    all.resize(static_cast<std::size_t>(count));
    std::ranges::sort(all);
    return all;
}

tuttiComm_t shrink(tuttiComm_t comm, std::vector<int> without, int flags) {
    tuttiComm_t part = nullptr;
    expect(tuttiCommShrink(comm, without.data(), static_cast<int>(without.size()), &part, nullptr, flags), "shrink");
    return part;
}

void destroy(tuttiComm_t comm) {
    expect(tuttiCommDestroy(comm), "destroy");
}

void die() {
    kill(getpid(), SIGKILL);
}

/// Two hosts of three are left, and then a part of them.
void host_and_rank_0_die(int rank, tuttiComm_t comm) {
    sum(comm);  // may fail already
    if (rank == 0 || rank == 1 || rank == 5) die();
    expect(work(comm) == tuttiRemoteError, "an error");
    expect(strstr(tuttiGetLastError(comm), "rank ") != nullptr, "a name in the text");
    const tuttiComm_t left = shrink(comm, {}, TUTTI_SHRINK_ABORT);
    const std::vector<int> named = failed_ranks(comm);
    expect(!named.empty(), "somebody who died is named");
    for (const int r : named) expect(r == 0 || r == 1 || r == 5, "only who died is named");
    destroy(comm);
    expect(sum(left) == 4, "a sum of those that are left");
    int now = -1;
    expect(tuttiCommUserRank(left, &now), "rank");
    tuttiComm_t part = nullptr;
    expect(tuttiCommSplit(left, now % 2, 0, &part, nullptr), "split what was shrunk");
    expect(sum(part) == 2, "a sum of a part");
    destroy(part);
    sum(left);  // rank 0 dies after all have split; it may fail already
    if (now == 0) die();
    expect(work(left) == tuttiRemoteError, "a second error");
    expect(failed_ranks(left) == std::vector{0}, "the second death is named");
    const tuttiComm_t last = shrink(left, {0}, TUTTI_SHRINK_ABORT);
    expect(sum(last) == 3, "a sum after the second shrink");
    destroy(left), destroy(last);
}

void excluded_without_an_error(int rank, tuttiComm_t comm) {
    expect(sum(comm) == 5, "a sum");
    if (rank == 0 || rank == 3) return destroy(comm);
    const tuttiComm_t part = shrink(comm, {0, 3}, TUTTI_SHRINK_DEFAULT);
    expect(sum(part) == 3, "a sum of some");
    expect(sum(part) == 3, "another one");
    destroy(part), destroy(comm);
}

void split_after_an_error(int rank, tuttiComm_t comm) {
    sum(comm);  // may fail already
    if (rank == 2) expect(tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT), "revoke");
    if (rank != 2) expect(work(comm) == tuttiRemoteError, "an error by another rank's revocation");
    if (rank != 2) expect(tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT), "revoke");
    tuttiComm_t part = nullptr;
    expect(tuttiCommSplit(comm, rank % 2, -rank, &part, nullptr), "split");
    expect(sum(part) == 2, "a sum of a part over two hosts");
    destroy(part), destroy(comm);
}

std::string path_of(const std::string& name) {
    return std::string(getenv("TUTTI_TEST_PLACE")) + "/" + name;
}

void await_file(const std::string& name) {
    for (int tries = 0; access(path_of(name).c_str(), R_OK) != 0; ++tries) {
        expect(tries < 20000, "a file to be there");
        usleep(1000);
    }
}

/// One that replaces a dead one: rank 3 is it, as another process.
void grows_again(int rank, tuttiComm_t comm) {
    sum(comm);
    if (rank == 1) die();
    expect(work(comm) == tuttiRemoteError, "an error");
    const tuttiComm_t left = shrink(comm, {}, TUTTI_SHRINK_ABORT);
    destroy(comm);
    int now = -1;
    expect(tuttiCommUserRank(left, &now), "rank");
    if (now == 0) {
        tuttiUniqueId id;
        expect(tuttiCommGetUniqueId(left, &id), "unique id");
        FILE* const file = fopen(path_of("id.new").c_str(), "w");
        expect(file != nullptr && fwrite(&id, sizeof id, 1, file) == 1 && fclose(file) == 0, "a file");
        expect(rename(path_of("id.new").c_str(), path_of("id").c_str()) == 0, "its name");
    }
    expect(sum(left) == 2, "the id is there");
    tuttiComm_t more = nullptr;
    expect(tuttiCommGrow(left, 3, nullptr, -1, &more, nullptr), "grow");
    expect(sum(more) == 3, "a sum with the newcomer");
    destroy(left), destroy(more);
}
void comes_new(int, tuttiComm_t) {
    tuttiUniqueId id;
    await_file("id");
    FILE* const file = fopen(path_of("id").c_str(), "r");
    expect(file != nullptr && fread(&id, sizeof id, 1, file) == 1 && fclose(file) == 0, "the id");
    tuttiComm_t more = nullptr;
    expect(tuttiCommGrow(nullptr, 3, &id, 2, &more, nullptr), "come new");
    expect(sum(more) == 3, "a sum as a newcomer");
    destroy(more);
}

void suspends_and_resumes(int rank, tuttiComm_t comm) {
    expect(sum(comm) == 4, "a sum");
    expect(tuttiCommSuspend(comm), "suspend");
    expect(tuttiCommResume(comm), "resume");
    expect(sum(comm) == 4, "a sum after that");
    expect(tuttiCommSuspend(comm), "suspend again");
    expect(std::ofstream(path_of(std::to_string(rank))).good(), "a file that says so");
    if (rank == 0) {  // in whose process they were to meet
        for (const char* other : {"1", "2", "3"}) await_file(other);
        die();
    }
    expect(tuttiCommResume(comm) == tuttiRemoteError, "no resumption");
    expect(failed_ranks(comm) == std::vector{0}, "who died is named");
    destroy(comm);
}

const std::map<std::string, void (*)(int, tuttiComm_t)> parts = {{"host and rank 0 die", host_and_rank_0_die},
                                                                 {"excluded", excluded_without_an_error},
                                                                 {"split after an error", split_after_an_error},
                                                                 {"grows again", grows_again},
                                                                 {"comes new", comes_new},
                                                                 {"suspends", suspends_and_resumes}};

// ---- how ranks start

/// A directory for the test, which goes with it.
struct Place {
    Place() { harness::check(mkdtemp(path) != nullptr, "a temporary directory"); }
    ~Place() { std::filesystem::remove_all(path); }
    char path[32] = "/tmp/tutti-hosts-XXXXXX";
};

/// Processes of the test. Those that have not ended when it does are killed.
class Children {
  public:
    Children() = default;
    Children(const Children&) = delete;
    ~Children() {
        for (const pid_t child : pids_) {
            if (child <= 0) continue;
            kill(child, SIGKILL);
            waitpid(child, nullptr, 0);
        }
    }
    void add(pid_t child) {
        pids_.push_back(child);
        REQUIRE(child > 0);
    }
    std::size_t count() const { return pids_.size(); }
    /// As waitpid() gives it; nullopt: the process has not ended until then.
    std::optional<int> status_of(std::size_t which, std::chrono::steady_clock::time_point deadline) {
        for (;;) {
            int status = 0;
            const bool late = std::chrono::steady_clock::now() >= deadline;
            const pid_t ended = waitpid(pids_[which], &status, WNOHANG);
            if (ended == pids_[which]) {
                pids_[which] = 0;
                return status;
            }
            REQUIRE(ended == 0);
            if (late) return std::nullopt;
            usleep(1000);
        }
    }

  private:
    std::vector<pid_t> pids_;
};

pid_t start(const std::string& part, const std::string& host, const std::string& id, int rank, int ranks,
            const Place& place) {
    const std::string self = harness::this_program();
    const pid_t child = fork();
    if (child != 0) return child;
    const std::map<std::string, std::string> variables = {
        {"TUTTI_HOSTID", host},           {"TUTTI_TEST_PART", part},      {"TUTTI_TEST_ID", id},
        {"TUTTI_TEST_PLACE", place.path}, {"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(ranks)}};
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    execl(self.c_str(), "test-api", hidden_name, static_cast<char*>(nullptr));
    _exit(127);
}

/// Ranks on these hosts do that; those of victims are to be killed by it. newcomers: processes that come later.
void on_hosts(const Hosts& hosts, const std::string& part, const std::vector<int>& victims, int newcomers = 0) {
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    std::string hex;
    for (const char c : id.internal) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
        hex += digits;
    }
    const Place place;
    Children children;
    const int ranks = static_cast<int>(hosts.size());
    for (int rank = 0; rank < ranks; ++rank)
        children.add(start(part, hosts[static_cast<std::size_t>(rank)], hex, rank, ranks, place));
    for (int i = 0; i < newcomers; ++i) children.add(start("comes new", "new", "", -1, 0, place));
    const auto deadline = std::chrono::steady_clock::now() + longest;
    for (std::size_t rank = 0; rank < children.count(); ++rank) {
        const std::optional<int> ended = children.status_of(rank, deadline);
        if (!ended) {
            FAIL_CHECK("rank " << rank << " has not ended within " << longest.count() << " s, and is killed");
            continue;
        }
        const int status = *ended;
        CAPTURE(rank, status);
        if (std::ranges::count(victims, static_cast<int>(rank)) > 0)
            CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        else
            CHECK(status == 0);
    }
}

}  // namespace

TEST_CASE(hidden_name, "[.rank]") {
    if (getenv("TUTTI_TEST_PART") == nullptr) return;  // it was not start() that has started this
    const int rank = atoi(getenv("RANK")), ranks = atoi(getenv("WORLD_SIZE"));
    tuttiComm_t comm = nullptr;
    try {
        if (ranks > 0) {
            const std::string hex = getenv("TUTTI_TEST_ID");
            tuttiUniqueId id;
            for (std::size_t i = 0; i < sizeof id.internal; ++i)
                id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.initTimeoutMs = 20000;
            expect(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config), "init");
        }
        parts.at(getenv("TUTTI_TEST_PART"))(rank, comm);
        _exit(0);
    } catch (const Expected& expected) {
        fprintf(stderr, "rank %d: expected: %s; last error: %s\n", rank, expected.what, tuttiGetLastError(nullptr));
        _exit(1);
    }
}

TEST_CASE("a whole host, rank 0 and one of another host die: one shrink leaves all of them out, and all goes on") {
    on_hosts({"a", "a", "b", "b", "c", "c", "b"}, "host and rank 0 die", {0, 1, 5, 2});
}

TEST_CASE("communicators of several hosts are shrunk without an error") {
    on_hosts({"a", "b", "a", "c", "b"}, "excluded", {});
}

TEST_CASE("a revoked communicator of several hosts is split") {
    on_hosts({"a", "a", "b", "b"}, "split after an error", {});
}

TEST_CASE("a rank of several hosts that died is replaced by one of a new host") {
    on_hosts({"a", "b", "c"}, "grows again", {1}, 1);
}

TEST_CASE("a communicator of several hosts is suspended and resumed; a death meanwhile is an error that names it") {
    on_hosts({"a", "a", "b", "b"}, "suspends", {0});
}
