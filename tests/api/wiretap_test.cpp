// Somebody listens to all that the ranks send over TCP: the keys of communicators that are made from others are not
// in there. A key is known by the abstract Unix socket whose name follows from it, where its ranks have met.
#include <dlfcn.h>
#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "bootstrap/rendezvous.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

std::mutex tap_mutex;
bool tapped = false;
std::string heard;

void hear(int socket, const msghdr& message, ssize_t sent) {
    int domain = 0;
    socklen_t size = sizeof domain;
    if (sent <= 0 || getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain == AF_UNIX) return;
    std::lock_guard lock(tap_mutex);
    auto left = static_cast<std::size_t>(sent);
    for (std::size_t i = 0; tapped && i < message.msg_iovlen && left > 0; ++i) {
        const std::size_t part = std::min(left, message.msg_iov[i].iov_len);
        heard.append(static_cast<const char*>(message.msg_iov[i].iov_base), part);
        left -= part;
    }
}

/// What is sent meanwhile.
template <class Body>
std::string listen_to(const Body& body) {
    std::unique_lock lock(tap_mutex);
    heard.clear();
    tapped = true;
    lock.unlock();
    body();
    lock.lock();
    tapped = false;
    return heard;
}

std::string heard_so_far() {
    std::lock_guard lock(tap_mutex);
    return heard;
}

/// "@tutti-..." of all processes.
std::set<std::string> open_sockets() {
    std::ifstream table("/proc/net/unix");
    std::set<std::string> names;
    for (std::string line; std::getline(table, line);)
        if (const std::size_t at = line.find('@'); at != std::string::npos) names.insert(line.substr(at));
    return names;
}

bool opens_one(const std::set<std::string>& sockets, const void* key) {
    bootstrap::Rendezvous rendezvous;
    rendezvous.secret = bootstrap::Secret(bootstrap::View(static_cast<const std::byte*>(key), bootstrap::Secret::size));
    const std::string text = rendezvous.local().text();
    return sockets.contains(text.substr(text.find('@')));
}

/// Whether a rendezvous's key is in there, as it is or in hexadecimal digits.
bool has_key(const std::string& bytes) {
    const std::set<std::string> sockets = open_sockets();
    for (std::size_t at = 0; at + bootstrap::Secret::size <= bytes.size(); ++at) {
        if (opens_one(sockets, bytes.data() + at)) return true;
        unsigned char key[bootstrap::Secret::size];
        if (sodium_hex2bin(key, sizeof key, bytes.data() + at, std::min(2 * sizeof key, bytes.size() - at), nullptr,
                           nullptr, nullptr) == 0 &&
            opens_one(sockets, key))
            return true;
    }
    return false;
}

/// Runs body(comm, rank) on threads whose data goes by TCP alone.
template <class Body>
void by_tcp(int ranks, const Body& body) {
    const tuttiUniqueId id = new_id();
    const std::string known(id.internal, sizeof id.internal);
    CHECK(has_key(known));  // so that it would be found
    char digits[2 * TUTTI_UNIQUE_ID_BYTES + 1];
    sodium_bin2hex(digits, sizeof digits, reinterpret_cast<const unsigned char*>(id.internal), sizeof id.internal);
    CHECK(has_key(digits));
    harness::run(ranks, [&](int rank) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = "tcp";
        tuttiComm_t comm = nullptr;
        must_succeed(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config), "init");
        body(comm, rank);
        must_succeed(tuttiCommDestroy(comm), "destroy");
    });
}

void gather_words(tuttiComm_t comm) {
    char all[4 * 16];
    must_succeed(tuttiAllGather("said in the open", all, 16, tuttiUint8, comm, nullptr), "all-gather");
}

}  // namespace

extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
    static const auto real = reinterpret_cast<ssize_t (*)(int, const msghdr*, int)>(dlsym(RTLD_NEXT, "sendmsg"));
    const ssize_t sent = real(socket, message, flags);
    const int error = errno;
    hear(socket, *message, sent);
    errno = error;
    return sent;
}

TEST_CASE("who listens to a split does not learn the parts' keys") {
    bool found = false;
    const std::string all = listen_to([&] {
        by_tcp(4, [&](tuttiComm_t comm, int rank) {
            tuttiComm_t part = nullptr;
            must_succeed(tuttiCommSplit(comm, rank % 2, 0, &part, nullptr), "split");
            gather_words(part);
            gather_words(comm);
            if (rank == 0) found = has_key(heard_so_far());
            gather_words(comm);
            must_succeed(tuttiCommDestroy(part), "destroy");
        });
    });
    CHECK(all.find("said in the open") != std::string::npos);
    CHECK_FALSE(found);
}

TEST_CASE("who listens while a communicator grows does not learn the key") {
    bool found = false;
    const std::string all = listen_to([&] {
        tuttiUniqueId more{};
        by_tcp(3, [&](tuttiComm_t comm, int rank) {
            tuttiComm_t grown = nullptr;
            if (rank == 1) {
                must_succeed(tuttiCommGetUniqueId(comm, &more), "id for the newcomer");
                check(has_key(std::string(more.internal, sizeof more.internal)), "the newcomer's id has the key");
            }
            gather_words(comm);
            std::thread newcomer;
            tuttiResult_t joined = tuttiSuccess;
            if (rank == 2)
                newcomer = std::thread([&] {
                    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
                    config.transport = "tcp";
                    tuttiComm_t mine = nullptr;
                    joined = tuttiCommGrow(nullptr, 4, &more, 3, &mine, &config);
                    if (joined == tuttiSuccess) gather_words(mine);
                    if (joined == tuttiSuccess) gather_words(mine);
                    tuttiCommDestroy(mine);
                });
            must_succeed(tuttiCommGrow(comm, 4, nullptr, -1, &grown, nullptr), "grow");
            gather_words(grown);
            if (rank == 0) found = has_key(heard_so_far());
            gather_words(grown);
            if (newcomer.joinable()) newcomer.join();
            check(joined == tuttiSuccess, "the newcomer");
            must_succeed(tuttiCommDestroy(grown), "destroy");
        });
    });
    CHECK(all.find("said in the open") != std::string::npos);
    CHECK_FALSE(found);
}

TEST_CASE("who listens while a communicator is suspended does not learn the key that it resumes with") {
    bool found = false;
    const std::string all = listen_to([&] {
        by_tcp(3, [&](tuttiComm_t comm, int rank) {
            gather_words(comm);
            must_succeed(tuttiCommSuspend(comm), "suspend");
            if (rank == 0) found = has_key(heard_so_far());
            must_succeed(tuttiCommResume(comm), "resume");
            gather_words(comm);
        });
    });
    CHECK(all.find("said in the open") != std::string::npos);
    CHECK_FALSE(found);
}
