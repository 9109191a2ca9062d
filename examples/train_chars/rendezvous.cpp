#include "rendezvous.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <thread>

#include "trainer.hpp"

namespace {

struct Request {
    std::uint64_t number;
};

struct Answer {
    std::uint64_t number;  // the request's
    tuttiUniqueId id;
    int ranks;  // with the newcomer
};

constexpr int newcomer_ms = 10'000;  // it waits for the answer, so it comes at once, or not any more

/// Waits for what done() says, a minute at most.
template <class Done>
void wait_for(const char* what, Done done) {
    for (int tries = 0; !done(); ++tries) {
        if (tries == 6000) throw std::runtime_error(std::string("a minute has passed, and ") + what);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

/// A file that only this user can read, and that appears as a whole. False: `unless_there` is set, and it is there.
template <class Content>
bool write_file(const std::string& path, const Content& content, bool unless_there) {
    const std::string beside = path + "." + std::to_string(getpid());
    unlink(beside.c_str());  // left behind by a process that had this number
    const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool written = fd >= 0 && write(fd, &content, sizeof content) == static_cast<ssize_t>(sizeof content);
    if (fd >= 0) close(fd);
    if (!written) throw std::runtime_error("'" + beside + "' can't be written");
    const int done = unless_there ? link(beside.c_str(), path.c_str()) : std::rename(beside.c_str(), path.c_str());
    const bool there = done != 0 && unless_there && errno == EEXIST;
    unlink(beside.c_str());
    if (done != 0 && !there) throw std::runtime_error("'" + path + "' can't be written");
    return !there;
}

/// False: there is no such file.
template <class Content>
bool read_file(const std::string& path, Content& content) {
    const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    const bool whole = read(fd, &content, sizeof content) == static_cast<ssize_t>(sizeof content);
    close(fd);
    if (!whole) throw std::runtime_error("'" + path + "' is no file of train_chars");
    return true;
}

/// On rank 0: answers a request, if there is one. 1 if there is; 0 also if it can't be answered, which is said.
int answer(const std::string& rendezvous, tuttiComm_t comm, int ranks) {
    const std::string request = rendezvous + ".request";
    try {
        Request of{};
        if (!read_file(request, of)) return 0;
        unlink(request.c_str());
        Answer answer{of.number, {}, ranks + 1};
        must(tuttiCommGetUniqueId(comm, &answer.id));
        write_file(rendezvous + ".id", answer, false);
        return 1;
    } catch (const std::runtime_error& error) {
        std::fprintf(stderr, "\nno newcomer is let in: %s\n", error.what());
        return 0;
    }
}

}  // namespace

tuttiComm_t admit(const std::string& rendezvous, tuttiComm_t comm) {
    int rank = 0, ranks = 1;
    must(tuttiCommUserRank(comm, &rank));
    must(tuttiCommCount(comm, &ranks));
    int answered = rank == 0 ? answer(rendezvous, comm, ranks) : 0;
    must(tuttiBroadcast(&answered, &answered, 1, tuttiInt32, 0, comm, nullptr));
    if (answered == 0) return nullptr;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.reproducible = 1;
    config.initTimeoutMs = newcomer_ms;
    tuttiComm_t grown = nullptr;
    const tuttiResult_t result = tuttiCommGrow(comm, ranks + 1, nullptr, -1, &grown, &config);
    if (result == tuttiSuccess) return grown;
    const std::string why = tuttiGetLastError(nullptr);
    int dead = -1;
    must(tuttiCommGetFailedRank(comm, &dead));
    if (dead >= 0) throw std::runtime_error(why);  // one of these ranks, not the newcomer
    if (rank == 0) {
        unlink((rendezvous + ".id").c_str());
        std::fprintf(stderr, "\nthe newcomer did not come: %s\n", why.c_str());
    }
    return nullptr;
}

tuttiComm_t join(const std::string& rendezvous) {
    const std::string request = rendezvous + ".request", id = rendezvous + ".id";
    std::random_device random;
    const Request mine{(std::uint64_t{random()} << 32) | random()};
    wait_for("another newcomer still waits", [&] { return write_file(request, mine, true); });
    Answer answer;
    try {
        wait_for("nobody has answered", [&] { return read_file(id, answer) && answer.number == mine.number; });
    } catch (...) {
        unlink(request.c_str());
        throw;
    }
    unlink(id.c_str());
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.reproducible = 1;
    config.initTimeoutMs = newcomer_ms;
    tuttiComm_t comm = nullptr;
    must(tuttiCommGrow(nullptr, answer.ranks, &answer.id, answer.ranks - 1, &comm, &config));
    return comm;
}
