// Unauthenticated peers at the port: whatever they do, the job comes together.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "base/result.hpp"
#include "bootstrap/auth.hpp"
#include "bootstrap/connection.hpp"
#include "bootstrap/directory.hpp"
#include "bootstrap/frame.hpp"
#include "bootstrap/membership.hpp"
#include "harness/asleep.hpp"
#include "harness/ports.hpp"
#include "support.hpp"

namespace tutti::test {
namespace {

using namespace bootstrap;

/// A plain socket to the rendezvous, or an empty one if it is closed already.
Fd knock(const Address& address) {
    Fd fd = connect_to(address);
    if (!fd) return fd;
    pollfd ready{fd.get(), POLLOUT, 0};
    poll(&ready, 1, 500);
    return fd;
}

void put(const Fd& fd, View bytes) {
    if (send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0)
        return;  // it is no business of ours if that fails
}

Bytes take(const Fd& fd, std::size_t size, int patience_ms = 2000) {
    Bytes all;
    pollfd ready{fd.get(), POLLIN, 0};
    while (all.size() < size && poll(&ready, 1, patience_ms) > 0) {
        std::byte buffer[2048];
        const ssize_t got = recv(fd.get(), buffer, std::min(sizeof buffer, size - all.size()), 0);
        if (got <= 0) break;
        append(all, View(buffer, static_cast<std::size_t>(got)));
    }
    return all;
}

/// Limits the process to a number of descriptors while it exists; an eighth of them is for unauthenticated peers. Make
/// it after the service, whose start raises the limit.
class Descriptors {
  public:
    explicit Descriptors(rlim_t limit) {
        getrlimit(RLIMIT_NOFILE, &before_);
        const rlimit few{limit, before_.rlim_max};
        setrlimit(RLIMIT_NOFILE, &few);
    }
    ~Descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
    Descriptors(const Descriptors&) = delete;

  private:
    rlimit before_;
};

bool hangs_up(const Fd& fd) {
    return eventually([&] {
        std::byte b;
        const ssize_t got = recv(fd.get(), &b, 1, MSG_DONTWAIT);
        return got == 0 || (got < 0 && errno != EAGAIN);
    });
}

/// Joins 6 ranks, the last one late, while `attack` runs again and again against the rendezvous.
void join_under(const std::function<void(const Address&)>& attack, std::uint16_t flags = Rendezvous::tcp_only) {
    const Identity identity = create_identity(flags);
    const Rendezvous m = Rendezvous::of(identity);
    const Address port = flags & Rendezvous::tcp_only ? m.tcp : m.local();
    std::atomic<bool> over{false};
    std::thread attacker([&] {
        while (!over) attack(port);
    });
    try {
        harness::run(6, [&](int rank) {
            if (rank == 5) std::this_thread::sleep_for(300ms);
            const auto s = join(identity, rank, 6);
            check_endpoint_infos(*s);
            harness::check(!s->fault(), "a fault");
            s->leave();
        });
    } catch (...) {
        over = true;
        attacker.join();
        throw;
    }
    over = true;
    attacker.join();
}

}  // namespace

TEST_CASE("a port scanner costs nothing") {
    const std::uint16_t flags = GENERATE(Rendezvous::tcp_only, Rendezvous::one_host);
    CHECK_NOTHROW(join_under([](const Address& port) { knock(port); }, flags));
}

TEST_CASE("abrupt resets cost nothing") {
    CHECK_NOTHROW(join_under([](const Address& port) {
        const Fd fd = knock(port);
        if (!fd) return;
        put(fd, Bytes(10));
        const linger now{1, 0};
        setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }));
}

TEST_CASE("garbage costs nothing") {
    std::mt19937 random(harness::seed());
    CHECK_NOTHROW(join_under([&](const Address& port) {
        const Fd fd = knock(port);
        if (!fd) return;
        Bytes noise(1 + random() % 100'000);
        for (auto& b : noise) b = static_cast<std::byte>(random());
        if (random() % 2 == 0) {  // as far as a right hello comes
            const Bytes hello = Handshake(Secret::random(), directory_tag, true).hello();
            std::copy(hello.begin(), hello.begin() + std::min<std::ptrdiff_t>(40, std::ssize(noise)), noise.begin());
        }
        put(fd, noise);
    }));
}

TEST_CASE("64 ranks join while hundreds of strangers hold connections and make new ones as fast as they can") {
    const Identity identity = create_identity(Rendezvous::tcp_only);
    std::atomic<bool> over{false};
    std::atomic<int> calls{0};
    std::vector<std::thread> strangers;
    for (int i = 0; i < 4; ++i)
        strangers.emplace_back([&] {
            std::vector<Fd> held(300);
            for (std::size_t next = 0; !over; ++next, ++calls) held[next % 300] = knock(Rendezvous::of(identity).tcp);
        });
    CHECK(eventually([&] { return calls > 1200; }, 20s));
    std::vector<std::shared_ptr<Session>> sessions;
    CHECK_NOTHROW(sessions = join_all(identity, 64));
    over = true;
    for (std::thread& stranger : strangers) stranger.join();
    leave_all(sessions);
}

TEST_CASE("connections that are held half open cost nothing, and end") {
    std::vector<Fd> held;
    CHECK_NOTHROW(join_under([&](const Address& port) {
        if (held.size() < 400)
            held.push_back(knock(port));
        else
            usleep(1000);
    }));
    const Identity identity = create_identity(Rendezvous::tcp_only);
    const Fd idle = knock(Rendezvous::of(identity).tcp);
    const Deadline start = Clock::now();
    CHECK(hangs_up(idle));
    CHECK(Clock::now() - start > 1500ms);
}

TEST_CASE("unauthenticated peers have one share of the process' descriptors, however many ports they knock at") {
    const auto sockets = [] {
        std::size_t all = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            all += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("socket:");
        }
        return all;
    };
    std::vector<Identity> identities;
    for (int i = 0; i < 4; ++i) identities.push_back(create_identity(Rendezvous::tcp_only));
    rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    const rlim_t lower = GENERATE(true, false) ? std::min<rlim_t>(800, before.rlim_cur) : before.rlim_cur;
    const Descriptors few(lower);
    const std::size_t at_first = sockets(), share = std::min<std::size_t>(1024, lower / 8);
    std::vector<Fd> held;
    std::size_t most = 0;
    const auto look = [&] { return most = std::max(most, sockets() - at_first - held.size()); };
    for (std::size_t i = 0; i < 2 * share; ++i) {
        held.push_back(knock(Rendezvous::of(identities[i % 4]).tcp));
        if (i % (share / 8) == 0) look();  // it takes its time
    }
    eventually([&] { return look() > share / 2; });
    CHECK(most <= share + 1);  // one is let in before another one goes
    CHECK(most > share / 2);   // they were let in until then
    for (const Identity& identity : identities) leave_all(join_all(identity, 2));
}

TEST_CASE("who floods one port does not have those sent away who wait at another") {
    const Identity flooded = create_identity(Rendezvous::tcp_only), quiet = create_identity(Rendezvous::tcp_only);
    const Descriptors few(800);  // a flood that takes two seconds is longer than anybody may wait
    const Fd waiting = knock(Rendezvous::of(quiet).tcp);
    std::vector<Fd> held;
    for (int i = 0; i < 120; ++i) held.push_back(knock(Rendezvous::of(flooded).tcp));
    REQUIRE(hangs_up(held.front()));  // the oldest unauthenticated peer there has gone
    const Rendezvous m = Rendezvous::of(quiet);
    put(waiting, Handshake(m.secret, directory_tag, true).hello());
    CHECK(take(waiting, hello_size + proof_size).size() == hello_size + proof_size);
}

TEST_CASE("a rank's port closes when all have joined, unless ranks of another host may come to it until it leaves") {
    const std::size_t before = harness::open_ports().size();
    for (const std::uint16_t flags : {std::uint16_t{0}, std::uint16_t{Rendezvous::tcp_only}}) {
        auto s = join_all(create_identity(flags), 4);                    // tcp_only: all others are taken for distant
        const std::size_t more = flags == Rendezvous::tcp_only ? 4 : 0;  // the rendezvous is closed
        CHECK(eventually([&] { return harness::open_ports().size() == before + more; }));
        leave_all(s);
        s.clear();
        CHECK(eventually([&] { return harness::open_ports().size() == before; }));
    }
}

TEST_CASE("a slow loris costs nothing") {
    std::vector<Fd> held;
    std::size_t next = 0;
    const Bytes hello = Handshake(Secret(), directory_tag, true).hello();
    CHECK_NOTHROW(join_under([&](const Address& port) {
        if (held.size() < 50) held.push_back(knock(port));
        for (const Fd& fd : held)
            if (fd) put(fd, View(hello).subspan(next % 40, 1));
        ++next;
        usleep(5000);
    }));
}

TEST_CASE("who has the secret but sends wrong frames is dropped") {
    const Identity identity = create_identity(Rendezvous::tcp_only);
    const Rendezvous m = Rendezvous::of(identity);
    std::thread others([&] {
        usleep(300'000);
        leave_all(join_all(identity, 3));
    });
    const int what = GENERATE(0, 1, 2, 3, 4);
    CAPTURE(what);
    {
        const Fd fd = knock(m.tcp);
        Handshake h(m.secret, directory_tag, true);
        put(fd, h.hello());
        const Bytes answer = take(fd, hello_size + proof_size);
        REQUIRE(answer.size() == hello_size + proof_size);
        REQUIRE(h.read_hello(View(answer).first(hello_size)));
        REQUIRE(h.check_proof(View(answer).subspan(hello_size)));
        put(fd, h.proof());
        Seal seal = h.outgoing();
        Member member;
        member.rank = 0;
        Bytes frame = encode(Register{3, member});
        if (what == 0) frame[0] = frame[1] = frame[2] = std::byte{0xff};  // oversize
        if (what == 1) frame[4] = std::byte{200};                         // no such kind
        if (what == 2) frame = encode(Failure{tuttiInternalError, 0, "I am nobody"});
        append(frame, seal.next(frame));
        if (what == 3) frame.back() ^= std::byte{1};  // a broken seal
        if (what == 4) frame.assign(70'000, std::byte{0xff});
        put(fd, frame);
        CHECK(hangs_up(fd));
    }
    CHECK_NOTHROW(others.join());
}

namespace {

/// Two ranks, as the service thread keeps them.
struct Pair {
    const std::shared_ptr<Service> service = Service::get();
    const Rendezvous rendezvous = Rendezvous::of(create_identity(Rendezvous::one_host));
    std::shared_ptr<Membership> members[2];

    Pair() {
        for (Rank r = 0; r < 2; ++r) {
            auto& m = members[r] =
                std::make_shared<Membership>(service, rendezvous, r, 2, View(), 20s, std::span<const std::uint64_t>());
            service->run([&] { m->start(); });
        }
        for (const auto& m : members) REQUIRE(m->wait_joined(within(20s)));
    }
    ~Pair() {
        for (const auto& m : members) service->run([&] { m->leave(); });
    }
};

}  // namespace

TEST_CASE("what a member tells of exchanges that nobody has begun is not kept without end") {
    const Pair pair;
    pair.service->run([&] {
        for (std::uint64_t number = 1; number <= 1000; ++number) pair.members[1]->tell(number, Bytes(8));
        pair.members[0]->tell(1000, Bytes(8));
    });
    CHECK(pair.members[0]->wait_told(1000, within(20s)).size() == 2);
    pair.service->run([&] { pair.members[0]->tell(1, Bytes(8)); });
    CHECK_THROWS_AS(pair.members[0]->wait_told(1, Clock::now()), Error);
}

TEST_CASE("a member that asks for ever more descriptors is refused those beyond a thousand") {
    const Pair pair;
    std::vector<std::shared_ptr<PendingFetch>> all;
    pair.service->run([&] {
        for (std::uint64_t key = 1; key <= 1100; ++key) {
            all.push_back(std::make_shared<PendingFetch>());
            all.back()->peer = 0;
            all.back()->key = key;
            pair.members[1]->request(all.back());
        }
    });
    CHECK(pair.members[1]->wait_done(*all.back(), within(20s)));
    CHECK(!all.back()->trouble.text.empty());
    CHECK_FALSE(pair.members[1]->wait_done(*all.front(), Clock::now()));
    pair.members[0]->set_offer(1, std::make_shared<Fd>(make_note(1)));
    pair.service->run([&] { pair.members[0]->offer_changed(1); });
    CHECK(pair.members[1]->wait_done(*all.front(), within(20s)));
    CHECK(all.front()->descriptor);
}

TEST_CASE("a recorded handshake is of no use") {
    const Identity identity = create_identity(Rendezvous::tcp_only);
    const Rendezvous m = Rendezvous::of(identity);
    // Record rank 2, which meets the others through this relay.
    Address relay_at = m.tcp;
    relay_at.port = 0;
    const Fd listener = listen_at(relay_at);
    Rendezvous through = m;
    through.tcp = bound_address(listener);
    std::mutex guard;
    Bytes recording;
    std::thread relay([&] {
        pollfd ready{listener.get(), POLLIN, 0};
        poll(&ready, 1, 5000);
        const Fd rank(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        const Fd port = knock(m.tcp);
        for (bool open = true; open;) {
            pollfd both[2] = {{rank.get(), POLLIN, 0}, {port.get(), POLLIN, 0}};
            poll(both, 2, 5000);
            for (int side = 0; side < 2; ++side) {
                std::byte buffer[4096];
                if (!both[side].revents) continue;
                const ssize_t got = recv(both[side].fd, buffer, sizeof buffer, 0);
                if (got <= 0) open = false;
                const std::lock_guard lock(guard);
                if (got > 0 && side == 0) append(recording, View(buffer, static_cast<std::size_t>(got)));
                if (got > 0) put(side == 0 ? port : rank, View(buffer, static_cast<std::size_t>(got)));
            }
        }
    });
    std::vector<std::shared_ptr<Session>> s(3);
    std::thread first([&] { s[2] = join(through.identity(), 2, 3); });
    for (int looks = 0; looks < 1000; ++looks) {  // until rank 2 has said all that it says before the others come
        usleep(10'000);
        const std::lock_guard lock(guard);
        if (recording.size() > 150) break;
    }
    // Before the job is complete: a second rank 2 would end it, if it were believed.
    const Fd thief = knock(m.tcp);
    {
        const std::lock_guard lock(guard);
        put(thief, recording);
        CHECK(recording.size() > 150);
    }
    CHECK(hangs_up(thief));
    harness::run(2, [&](int rank) { s[static_cast<std::size_t>(rank)] = join(identity, rank, 3); });
    first.join();
    relay.join();
    for (const auto& session : s) {
        CHECK(!session->fault());
        CHECK_NOTHROW(check_endpoint_infos(*session));
    }
    leave_all(s);
}

TEST_CASE("unauthenticated peers do not disturb a job that runs") {
    const auto s = join_all(create_identity(Rendezvous::tcp_only), 4);
    // Every listening socket of this process, as a scanner would find it.
    for (int fd = 3; fd < 200; ++fd) {
        int listens = 0;
        socklen_t size = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens) continue;
        sockaddr_storage where{};
        socklen_t where_size = sizeof where;
        getsockname(fd, reinterpret_cast<sockaddr*>(&where), &where_size);
        for (int i = 0; i < 5; ++i) {
            const Fd knocking(socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
            if (connect(knocking.get(), reinterpret_cast<sockaddr*>(&where), where_size) != 0) continue;
            put(knocking, Bytes(1000, std::byte{'G'}));
        }
    }
    usleep(50'000);
    for (const auto& session : s) CHECK(!session->fault());
    s[0]->offer(1, make_note(1));
    CHECK(read_note(s[3]->fetch(0, 1, within(5s))) == 1);
    leave_all(s);
}

namespace {

/// A second connection of a member, over which it says what it likes.
class Intruder : public ConnectionUser {
  public:
    Intruder(const Rendezvous& rendezvous, Rank to, Rank as, int ranks)
        : as_(as), ranks_(ranks), service_(Service::get()) {
        const Secret secret = rendezvous.secret.derive("tutti members");
        service_->run([&] {
            for (const Address& address : listeners())
                tried_.push_back(Connection::dial(*service_, *this, address, secret, static_cast<std::uint64_t>(to)));
        });
    }
    ~Intruder() override {
        service_->run([&] {
            for (const auto& c : tried_)
                if (c) c->close();
        });
    }
    bool is_in() const { return in_; }
    void say(const Message& message) {
        service_->run([&] {
            for (const auto& c : tried_)
                if (c && c->is_open()) c->send(message);
        });
    }

  private:
    /// Unix sockets of this process at which somebody listens.
    static std::vector<Address> listeners() {
        std::vector<Address> all;
        for (int fd = 3; fd < 200; ++fd) {
            int listens = 0;
            socklen_t size = sizeof listens;
            if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens) continue;
            sockaddr_un where{};
            socklen_t where_size = sizeof where;
            getsockname(fd, reinterpret_cast<sockaddr*>(&where), &where_size);
            if (where.sun_family != AF_UNIX) continue;
            std::array<std::byte, 16> name;  // @tutti- and its digits
            for (std::size_t i = 0; i < name.size(); ++i)
                name[i] = static_cast<std::byte>(std::stoi(std::string(where.sun_path + 7 + 2 * i, 2), nullptr, 16));
            all.push_back(Address::local(name));
        }
        return all;
    }
    void opened(Connection& c) override {
        c.recognise();
        c.send(Attach{ranks_, as_, false});
    }
    void received(Connection&, Message& message, Fd) override {
        if (std::holds_alternative<Welcome>(message)) in_ = true;
    }
    void closed(Connection&, const Loss&) override {}

    const Rank as_;
    const int ranks_;
    const std::shared_ptr<Service> service_;
    std::vector<std::shared_ptr<Connection>> tried_;
    std::atomic<bool> in_{false};
};

}  // namespace

TEST_CASE("a list of ranks that is longer than the job, and never ends, is dropped") {
    const Identity identity = create_identity(Rendezvous::one_host);
    const auto s = join_all(identity, 2);
    Intruder intruder(Rendezvous::of(identity), 0, 1, 2);
    REQUIRE(eventually([&] { return intruder.is_in(); }));
    for (std::uint64_t i = 1; i <= 2000; ++i)  // as rank 1, which then is not heard any more
        intruder.say(Agree{Agree::propose, true, true, 1, 0, {1, 1, 1}, {}, i, 0});
    harness::until_all_sleep();
    const Agreed agreed = s[0]->agree({1}, true, within(20s));
    CHECK(agreed.ok);
    CHECK(agreed.out == std::vector<Rank>{1});
    leave_all(s);
}

TEST_CASE("a member that does not come to agree is waited for as long as was said, and named") {
    const auto s = join_all(create_identity(Rendezvous::one_host), 3);
    try {
        s[1]->agree({}, true, within(20ms));
        FAIL("it did not wait for rank 0");
    } catch (const Error& error) {
        CHECK(error.code() == tuttiTimeout);
        CHECK(std::string(error.what()).find("rank 1 waited for rank 0 to agree") == 0);
    }
    CHECK_FALSE(s[1]->fault());
    std::atomic<int> begun{0};
    harness::run(3, [&](int rank) {  // the next one is right, also where the others begin it with what it said first
        if (rank == 1) {
            while (begun < 2) usleep(1000);
            usleep(20'000);
        }
        ++begun;
        const Agreed agreed = s[static_cast<std::size_t>(rank)]->agree({}, true, within(20s));
        harness::check(agreed.ok && agreed.out.empty(), "the next agreement");
    });
    leave_all(s);
}

}  // namespace tutti::test
