// What ranks are told when a job can't come together.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/result.hpp"
#include "bootstrap/auth.hpp"
#include "bootstrap/directory.hpp"
#include "support.hpp"

namespace tutti::test {
namespace {

using harness::has;

using Ranks = std::vector<std::pair<Rank, int>>;  // and how many each says they are

/// Every rank of a job tries to join; what each is told.
std::vector<std::string> errors_of(const Identity& identity, const Ranks& ranks, std::chrono::milliseconds timeout) {
    std::vector<std::string> errors(ranks.size());
    harness::run(static_cast<int>(ranks.size()), [&](int i) {
        const auto [rank, count] = ranks[static_cast<std::size_t>(i)];
        errors[static_cast<std::size_t>(i)] = join_error(identity, rank, count, timeout);
    });
    return errors;
}

/// Each of the ranks, which are not all, is told this.
void check_all_say(const std::string& wanted, std::uint16_t flags, const Ranks& ranks) {
    const std::string said = told_in_time(wanted, [&](std::chrono::milliseconds limit) {
        const auto all = errors_of(bootstrap::create_identity(flags), ranks, limit);
        return *std::ranges::max_element(all, {}, [&](const std::string& one) { return !has(one, wanted); });
    });
    INFO(said);
    CHECK(has(said, wanted));
}

Identity identity_of(std::uint16_t flags) {
    if (!(flags & Rendezvous::rank0_opens)) return bootstrap::create_identity(flags);
    Rendezvous m;
    m.flags = flags;
    m.secret = bootstrap::Secret::random();
    return m.identity();
}

}  // namespace

TEST_CASE("missing ranks are named, to all") {
    const std::uint16_t flags = GENERATE(0, Rendezvous::tcp_only);
    check_all_say("8: ranks 3, 5-7 of 8 did not arrive within ", flags, {{0, 8}, {1, 8}, {2, 8}, {4, 8}});
}

TEST_CASE("where missing ranks were waited for is said, and what to look at") {
    const auto error_of = [](std::uint16_t flags) { return errors_of(identity_of(flags), {{0, 2}}, 100ms)[0]; };
    CHECK(has(error_of(Rendezvous::tcp_only), "did not arrive within 0.1 s at "));
    const std::string near = error_of(Rendezvous::one_host | Rendezvous::rank0_opens);
    INFO(near);
    CHECK(has(near, "rank 1 of 2 did not arrive within 0.1 s at a Unix socket of host "));
    CHECK(has(near, "in the same network namespace"));
    CHECK(has(near, "MASTER_PORT and TUTTI_SECRET?"));
}

TEST_CASE("missing inner nodes of the tree are named too") {
    // 1 is the parent of 9 to 16.
    check_all_say("ranks 1, 3-8, 11 of 12 did not arrive", 0, {{0, 12}, {2, 12}, {9, 12}, {10, 12}});
}

TEST_CASE("a missing rendezvous is named") {
    const std::string e = join_error(identity_of(Rendezvous::one_host | Rendezvous::rank0_opens), 1, 2, 200ms);
    INFO(e);
    CHECK(has(e, "8: rank 1 could not reach the place where the ranks meet within 0.2 s"));
    CHECK(has(e, "has rank 0 started?"));
}

TEST_CASE("a rank number that is taken twice ends the job for all") {
    const std::uint16_t flags = GENERATE(0, Rendezvous::tcp_only, Rendezvous::one_host | Rendezvous::rank0_opens);
    const Rank twice = GENERATE(0, 2);
    CAPTURE(flags, twice);
    for (const auto& e : errors_of(identity_of(flags), {{0, 4}, {1, 4}, {2, 4}, {twice, 4}}, 10s)) {
        INFO(e);
        CHECK(has(e, text("5: rank %d is there twice: as pid ", twice)));
    }
}

TEST_CASE("a late second one is turned away, and the job goes on") {
    const Identity identity = Identity::create();
    const auto sessions = join_all(identity, 3);
    const std::string e = join_error(identity, 1, 3, 5s);
    INFO(e);
    CHECK(has(e, "5: rank 1 is there twice"));
    CHECK(has(e, "goes on without"));
    for (const auto& s : sessions) CHECK(!s->fault());
    leave_all(sessions);
}

TEST_CASE("ranks that disagree on how many they are hear both numbers") {
    for (const auto& e : errors_of(Identity::create(), {{0, 2}, {1, 3}}, 10s)) {
        INFO(e);
        CHECK(has(e, "5: the ranks disagree on how many they are"));
        CHECK(has(e, "says 2"));
        CHECK(has(e, "says 3"));
    }
}

TEST_CASE("somebody with another secret is refused, and told so, and does no harm") {
    const Identity real = bootstrap::create_identity(Rendezvous::tcp_only);
    Rendezvous m = Rendezvous::of(real);
    m.secret = bootstrap::Secret::random();
    const Identity forged = m.identity();
    harness::run(4, [&](int rank) {
        if (rank == 3) {
            const std::string e = join_error(forged, 1, 3, 10s);
            harness::check(has(e, "5: rank 1 was not let in"), e);
            return;
        }
        if (rank == 2) std::this_thread::sleep_for(2300ms);
        const auto s = join(real, rank, 3);
        check_endpoint_infos(*s);
        s->leave();
    });
}

TEST_CASE("a rank of another version is told so, and costs the others nothing") {
    using namespace bootstrap;
    const char version = GENERATE('2', '9');  // older and newer
    const Identity identity = create_identity(Rendezvous::tcp_only);
    const Rendezvous m = Rendezvous::of(identity);
    Bytes hello = Handshake(m.secret, directory_tag, true).hello();
    hello[6] = static_cast<std::byte>(version);
    const Fd outsider = connect_to(m.tcp);
    REQUIRE(eventually([&] { return send(outsider.get(), hello.data(), hello.size(), MSG_NOSIGNAL) == hello_size; }));
    Bytes answer(2 * hello_size);
    std::size_t got = 0;
    const auto hung_up = [&] {
        const ssize_t more = recv(outsider.get(), answer.data() + got, answer.size() - got, MSG_DONTWAIT);
        got += more > 0 ? static_cast<std::size_t>(more) : 0;
        return more == 0;
    };
    REQUIRE(eventually(hung_up));
    REQUIRE(got == hello_size);  // and no proof
    CHECK(std::memcmp(answer.data(), "TUTTI-3\n", 8) == 0);
    leave_all(join_all(identity, 2));

    // What the outsider's Tutti makes of that: the same place, answered for by another version.
    Address address = m.tcp;
    address.port = 0;
    const Fd listener = listen_at(address);
    Rendezvous elsewhere = m;
    elsewhere.tcp = bound_address(listener);
    const std::string wanted = "it does not speak this version of Tutti's protocol: use the same Tutti on all ranks";
    const std::string e = told_in_time(wanted, [&](std::chrono::milliseconds limit) {
        std::thread other([&] {
            pollfd ready{listener.get(), POLLIN, 0};
            if (poll(&ready, 1, 5000) <= 0) return;
            const Fd rank(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
            eventually([&] { return recv(rank.get(), answer.data(), hello_size, MSG_DONTWAIT) > 0; });
            if (send(rank.get(), hello.data(), hello.size(), MSG_NOSIGNAL) < 0) return;
            eventually([&] { return recv(rank.get(), answer.data(), 1, MSG_DONTWAIT) == 0; });
        });
        const std::string told = join_error(elsewhere.identity(), 1, 2, limit);
        other.join();
        return told;
    });
    INFO(e);
    CHECK(has(e, wanted));
}

TEST_CASE("who waits for ranks that have called and were not let in is told where from, and why") {
    using namespace bootstrap;
    const bool other_version = GENERATE(false, true);
    std::string from;
    const std::string wanted = other_version ? " has called, and speaks another version of Tutti's protocol"
                                             : " has called, and does not have this job's secret";
    const std::string said = told_in_time(wanted, [&](std::chrono::milliseconds limit) {
        const Identity identity = create_identity(Rendezvous::tcp_only);
        Rendezvous elsewhere = Rendezvous::of(identity);
        from = elsewhere.tcp.text();
        from.resize(from.rfind(':') + 1);  // all are on this host
        std::string told;
        std::thread waits([&] { told = join_error(identity, 0, 2, limit); });
        elsewhere.secret = Secret::random();
        Bytes hello = Handshake(elsewhere.secret, directory_tag, true).hello();
        hello[6] = std::byte{'2'};
        const Fd outsider = other_version ? connect_to(elsewhere.tcp) : Fd();
        if (other_version)
            eventually([&] { return send(outsider.get(), hello.data(), hello.size(), MSG_NOSIGNAL) == hello_size; });
        else
            join_error(elsewhere.identity(), 1, 2, limit / 2);
        waits.join();
        return told;
    });
    INFO(said);
    CHECK(has(said, "rank 1 of 2 did not arrive within "));
    CHECK(has(said, "; " + from));
    CHECK(has(said, wanted));
}

TEST_CASE("a port that is taken is named, and by which variable it was chosen") {
    const Identity blocker = bootstrap::create_identity(Rendezvous::tcp_only);
    const bool by_id = GENERATE(true, false);
    Rendezvous m;
    m.flags = Rendezvous::rank0_opens | (by_id ? Rendezvous::comm_id : 0);
    m.secret = bootstrap::Secret::random();
    m.tcp = Rendezvous::of(blocker).tcp;
    const std::string e = join_error(m.identity(), 0, 2, 1s);
    INFO(e);
    CHECK(has(e, "2: rank 0 can't open the place where the ranks meet: " + m.tcp.text() + ", which " +
                     (by_id ? "NCCL_COMM_ID names" : "MASTER_ADDR and MASTER_PORT name") + ", is taken"));
}

TEST_CASE("an address of another host is named") {
    Rendezvous m;
    m.flags = Rendezvous::rank0_opens;
    m.secret = bootstrap::Secret::random();
    m.tcp.family = bootstrap::Address::Family::ipv4;
    m.tcp.port = 1337;
    inet_pton(AF_INET, "203.0.113.1", m.tcp.body.data());  // for documentation: nobody has it
    const std::string e = join_error(m.identity(), 0, 2, 1s);
    INFO(e);
    CHECK(has(e, "2: rank 0 can't open"));
    CHECK(has(e, "203.0.113.1:1337"));
}

TEST_CASE("running out of descriptors is an error, not a hang") {
    const Identity identity = Identity::create();
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    const Fd probe = make_memfd("probe", 1);
    const int spare = GENERATE(0, 2, 5);
    CAPTURE(spare);
    const rlimit tight{static_cast<rlim_t>(probe.get() + 1 + spare), before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &tight);
    const auto errors = errors_of(identity, {{0, 3}, {1, 3}, {2, 3}}, 1500ms);
    setrlimit(RLIMIT_NOFILE, &before);
    for (const auto& e : errors) {
        INFO(e);
        CHECK(!e.empty());
    }
    bool told = false;
    for (const auto& e : errors) told = told || has(e, "ulimit -n");
    CHECK(told);
}

}  // namespace tutti::test
