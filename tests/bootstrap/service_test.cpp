// What the service thread is made of: work that is posted, work for later, and what waits at sockets.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "bootstrap/posted.hpp"
#include "bootstrap/socket_io.hpp"
#include "bootstrap/timers.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

namespace tutti::test {
namespace {

using namespace bootstrap;

bool readable(const Fd& fd, int ms) {
    pollfd one{fd.get(), POLLIN, 0};
    return poll(&one, 1, ms) == 1;
}

struct Sockets {
    Sockets() {
        int fds[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) fail_errno("socketpair");
        here = Fd(fds[0]);
        there = Fd(fds[1]);
    }
    Fd here, there;
};

Bytes bytes_of(std::size_t size, int seed) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 13 + static_cast<std::size_t>(seed));
    return bytes;
}

}  // namespace

TEST_CASE("posted work is done in its order, and what it throws reaches whoever waits, and nobody else") {
    Posted posted;
    posted.open();
    std::vector<int> done;
    std::thread service([&] {
        do {
            readable(posted.wake_up(), 10'000);
            std::uint64_t count;
            harness::check(read(posted.wake_up().get(), &count, sizeof count) > 0, "nobody has woken the thread");
        } while (posted.perform());
    });
    for (int i = 0; i < 100; ++i) {
        posted.post(Posted::prepared([&done, i] { done.push_back(i); }));
        if (i == 50) posted.post(Posted::prepared([] { fail(tuttiSystemError, "nobody waits for this"); }));
    }
    std::string said;
    try {
        posted.run([] { fail(tuttiInvalidUsage, "somebody waits for this"); });
    } catch (const Error& error) {
        said = error.what();
    }
    const bool told = posted.stop();
    service.join();
    REQUIRE(told);
    REQUIRE(said == "somebody waits for this");
    REQUIRE(done.size() == 100);
    REQUIRE(std::ranges::is_sorted(done));
    REQUIRE_FALSE(posted.run([] {}));
    REQUIRE_FALSE(posted.post(Posted::prepared([] {})));
}

TEST_CASE("timers go off in the order of their times, and not when they were cancelled") {
    Timers timers;
    timers.open();
    std::vector<int> done;
    const Deadline now = Clock::now();
    using std::chrono::milliseconds;
    timers.at(now + milliseconds(20), [&] { done.push_back(2); });
    timers.at(now + milliseconds(10), Timers::later([&] { done.push_back(1); }));
    const Timers::Timer cancelled = timers.at(now + milliseconds(5), [&] { done.push_back(0); });
    timers.at(now + std::chrono::hours(1), [&] { done.push_back(3); });
    timers.perform();
    REQUIRE(done.empty());
    timers.cancel(cancelled);
    while (done.size() < 2) {
        timers.arm();
        REQUIRE(readable(timers.alarm(), 10'000));
        std::uint64_t count;
        REQUIRE(read(timers.alarm().get(), &count, sizeof count) > 0);
        timers.rang();
        timers.perform();
    }
    REQUIRE(done == std::vector{1, 2});
    timers.clear();
    timers.arm();
    REQUIRE_FALSE(readable(timers.alarm(), 0));
}

TEST_CASE("what a socket does not take at once waits, and all of it arrives in order") {
    Sockets sockets;
    Outgoing outgoing;
    Incoming incoming;
    const Bytes sent = bytes_of(3'000'000, 1);  // more than a socket holds
    outgoing.add(View(sent).first(1000), nullptr);
    outgoing.add(View(sent).subspan(1000), nullptr);
    outgoing.write(sockets.here);
    REQUIRE_FALSE(outgoing.empty());
    REQUIRE((errno == EAGAIN || errno == ENOBUFS));
    Bytes got;
    while (got.size() < sent.size()) {
        REQUIRE(readable(sockets.there, 10'000));
        REQUIRE(incoming.read(sockets.there, false) > 0);
        const View rest = incoming.rest();
        const std::size_t used = std::max<std::size_t>(1, rest.size() / 2);  // the rest with the next read
        append(got, rest.first(used));
        incoming.use(used);
        incoming.compact();
        if (got.size() + incoming.rest().size() == sent.size()) append(got, incoming.rest());
        outgoing.write(sockets.here);
    }
    REQUIRE(outgoing.empty());
    REQUIRE(got == sent);
}

/// One end of a pipe to be sent; the other one tells whether that is still open anywhere.
struct Sent {
    int ends[2];
    Sent() { REQUIRE(pipe2(ends, O_CLOEXEC) == 0); }
    ~Sent() { close(ends[0]); }
    Sent(const Sent&) = delete;
    std::shared_ptr<Fd> end() const { return std::make_shared<Fd>(ends[1]); }
    bool is_open() const {
        pollfd look{ends[0], 0, 0};
        REQUIRE(poll(&look, 1, 0) >= 0);
        return (look.revents & POLLHUP) == 0;
    }
};

TEST_CASE("descriptors come with the bytes that they were sent with, and only where they are wanted") {
    Sockets sockets;
    Outgoing outgoing;
    Incoming incoming;
    for (int i = 0; i < 2; ++i) {
        const Sent sent;
        outgoing.add(bytes_of(10, i), sent.end());
        outgoing.add(bytes_of(5, i), nullptr);
        outgoing.write(sockets.here);
        REQUIRE(outgoing.empty());
        REQUIRE(incoming.read(sockets.there, i == 0) == 15);
        REQUIRE(sent.is_open() == (i == 0));
        REQUIRE(bool(incoming.take_descriptor()) == (i == 0));
        REQUIRE_FALSE(incoming.take_descriptor());
        REQUIRE_FALSE(sent.is_open());
    }
    REQUIRE(incoming.rest().size() == 30);
}

TEST_CASE("a descriptor that belongs to no frame is closed") {
    Sockets sockets;
    Outgoing outgoing;
    Incoming incoming;
    const Sent sent;
    outgoing.add(bytes_of(10, 0), sent.end());
    outgoing.write(sockets.here);
    REQUIRE(incoming.read(sockets.there, true) == 10);
    REQUIRE(sent.is_open());
    incoming.use(4);
    incoming.compact();  // the rest of the frame is still to come
    REQUIRE(sent.is_open());
    incoming.use(6);
    incoming.compact();
    REQUIRE_FALSE(sent.is_open());
}

}  // namespace tutti::test
