#include "rendezvous.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "trainer.hpp"

namespace {

struct Answer {
    tuttiUniqueId id;
    int ranks;  // with the newcomer
};

/// Waits for what done() says, a minute at most.
template <class Done>
void wait_for(const char* what, Done done) {
    for (int tries = 0; !done(); ++tries) {
        if (tries == 6000) throw std::runtime_error(std::string("a minute has passed, and ") + what);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

/// A file of the caller's alone, which appears as a whole.
void write_answer(const std::string& path, const Answer& answer) {
    const std::string beside = path + ".new";
    const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const bool written = fd >= 0 && write(fd, &answer, sizeof answer) == static_cast<ssize_t>(sizeof answer);
    if (fd >= 0) close(fd);
    if (!written || std::rename(beside.c_str(), path.c_str()) != 0)
        throw std::runtime_error("'" + path + "' can't be written");
}

bool read_answer(const std::string& path, Answer& answer) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool whole = read(fd, &answer, sizeof answer) == static_cast<ssize_t>(sizeof answer);
    close(fd);
    if (!whole) throw std::runtime_error("'" + path + "' is no answer of train_chars");
    return true;
}

}  // namespace

tuttiComm_t admit(const std::string& rendezvous, tuttiComm_t comm) {
    int rank = 0, ranks = 1;
    must(tuttiCommUserRank(comm, &rank));
    must(tuttiCommCount(comm, &ranks));
    const std::string request = rendezvous + ".request";
    int requested = rank == 0 && access(request.c_str(), F_OK) == 0;
    must(tuttiBroadcast(&requested, &requested, 1, tuttiInt32, 0, comm, nullptr));
    if (requested == 0) return nullptr;
    if (rank == 0) {
        Answer answer{{}, ranks + 1};
        must(tuttiCommGetUniqueId(comm, &answer.id));
        unlink(request.c_str());
        write_answer(rendezvous + ".id", answer);
    }
    tuttiComm_t grown = nullptr;
    must(tuttiCommGrow(comm, ranks + 1, nullptr, -1, &grown, nullptr));
    return grown;
}

tuttiComm_t join(const std::string& rendezvous) {
    const std::string request = rendezvous + ".request", id = rendezvous + ".id";
    wait_for("another newcomer still waits", [&] {
        const int fd = open(request.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) return false;
        close(fd);
        return true;
    });
    Answer answer;
    try {
        wait_for("nobody has answered", [&] { return read_answer(id, answer); });
    } catch (...) {
        unlink(request.c_str());
        throw;
    }
    unlink(id.c_str());
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.reproducible = 1;
    tuttiComm_t comm = nullptr;
    must(tuttiCommGrow(nullptr, answer.ranks, &answer.id, answer.ranks - 1, &comm, &config));
    return comm;
}
