// Control connections between hosts that are reset although both processes live.
#include <signal.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/result.hpp"
#include "harness/resets.hpp"
#include "support.hpp"

namespace tutti::test {
namespace {

/// Resets connections of this process again and again while it lives; not sooner than they are made again, which takes
/// longer under a sanitizer.
class Resets {
  public:
    explicit Resets(unsigned one_in)
        : thread_([this, one_in] {
              std::mt19937 random(harness::seed());
              while (!over_) {
                  count_ += harness::reset_connections([&] { return random() % one_in == 0; });
                  std::this_thread::sleep_for(harness::sanitized ? 20ms : 3ms);
              }
          }) {}
    ~Resets() { stop(); }
    int stop() {
        over_ = true;
        if (thread_.joinable()) thread_.join();
        return count_;
    }

  private:
    std::atomic<bool> over_{false};
    std::atomic<int> count_{0};
    std::thread thread_;
};

std::uint64_t word_of(Rank rank, std::uint64_t number) {
    return static_cast<std::uint64_t>(rank) * 1000 + number;
}

/// One exchange of all, in which each checks what the others have told.
void exchange(const Session& session, std::uint64_t number) {
    const std::uint64_t mine = word_of(session.rank(), number);
    const auto all = const_cast<Session&>(session).exchange(number, std::as_bytes(std::span(&mine, 1)), within(30s));
    for (Rank r = 0; r < session.ranks(); ++r) {
        const std::uint64_t expected = word_of(r, number);
        const auto& told = all[static_cast<std::size_t>(r)];
        harness::check(std::ranges::equal(told, std::as_bytes(std::span(&expected, 1))), "another word was told");
    }
}

}  // namespace

TEST_CASE("control connections that are reset are made again, and nothing that is told gets lost") {
    constexpr int ranks = 12;
    const auto all = join_all(bootstrap::create_identity(Rendezvous::tcp_only), ranks);
    Resets resets(8);
    harness::run(ranks, [&](int rank) {
        for (std::uint64_t number = 1; number <= (harness::sanitized ? 12 : 40); ++number) {
            exchange(*all[static_cast<std::size_t>(rank)], number);
            std::this_thread::sleep_for(2ms);
        }
    });
    CHECK(resets.stop() > 5);
    for (const auto& session : all) CHECK_FALSE(session->fault().has_value());
    harness::reset_connections();
    all[5]->raise({tuttiInternalError, 5, "a test's"});
    for (const auto& session : all) {
        if (session->rank() == 5) continue;
        REQUIRE(eventually([&] { return session->fault().has_value(); }));
        CHECK(session->fault()->text == "a test's");
    }
    leave_all(all);
}

TEST_CASE("ranks join while their connections are reset again and again") {
    constexpr int ranks = 12;
    Resets resets(40);
    for (int round = 0; round < 30; ++round) {
        const auto all = join_all(bootstrap::create_identity(Rendezvous::tcp_only), ranks);
        harness::run(ranks, [&](int rank) { exchange(*all[static_cast<std::size_t>(rank)], 1); });
        for (const auto& session : all) CHECK_FALSE(session->fault().has_value());
        leave_all(all);
    }
    CHECK(resets.stop() > 5);
}

TEST_CASE("ranks agree on who is left while their connections are reset again and again, also after a fault") {
    constexpr int ranks = 8;
    const auto all = join_all(bootstrap::create_identity(Rendezvous::tcp_only), ranks);
    const bool fault = GENERATE(false, true);
    CAPTURE(fault);
    if (fault) all[3]->raise({tuttiInternalError, 3, "a test's"});
    Resets resets(8);
    harness::run(ranks, [&](int rank) {
        Session& session = *all[static_cast<std::size_t>(rank)];
        std::uint64_t last = 0;
        for (int i = 0; i < 40; ++i) {
            const Agreed agreed = session.agree({}, true, within(30s));
            harness::check(agreed.ok && agreed.out.empty(), "somebody is left out");
            harness::check(agreed.number != last, "the outcome of an earlier agreement");
            last = agreed.number;
            std::this_thread::sleep_for(2ms);
        }
    });
    CHECK(resets.stop() > 5);
    for (const auto& session : all) {
        CHECK(session->dead().empty());
        CHECK(session->fault().has_value() == fault);
    }
    leave_all(all);
}

TEST_CASE("after a fault a rank that dies, so that its connections are reset, is left out of what is agreed on") {
    const Identity identity = bootstrap::create_identity(Rendezvous::tcp_only);
    RankProcess victim(identity, 1, 3), other(identity, 2, 3);
    const auto mine = join(identity, 0, 3);
    REQUIRE((victim.hear() == "joined" && other.hear() == "joined"));
    victim.signal(SIGSTOP);
    mine->raise({tuttiInternalError, 0, "a test's"});  // which the victim does not read
    REQUIRE(other.ask("fault 30000").starts_with("fault"));
    victim.signal(SIGKILL);
    other.say("agree 100");
    const Agreed agreed = mine->agree({}, true, within(20s));
    CHECK(agreed.out == std::vector<Rank>{1});
    mine->leave();
}

TEST_CASE("who leaves while connections are made again is no death") {
    constexpr int ranks = 12;
    const auto all = join_all(bootstrap::create_identity(Rendezvous::tcp_only), ranks);
    for (const Rank leaving : {1, 11, 3}) {
        harness::reset_connections();
        all[static_cast<std::size_t>(leaving)]->leave();
        for (const auto& session : all)
            CHECK(eventually([&] { return session->has_left(leaving) || session->has_left(session->rank()); }));
    }
    for (const auto& session : all) CHECK_FALSE(session->fault().has_value());
    leave_all(all);
}

TEST_CASE("a process that ends with unread news, so that its connections are reset, is a death at once") {
    const Identity identity = bootstrap::create_identity(Rendezvous::tcp_only);
    RankProcess victim(identity, 1, 3), other(identity, 2, 3);
    const auto mine = join(identity, 0, 3);
    REQUIRE((victim.hear() == "joined" && other.hear() == "joined"));
    victim.signal(SIGSTOP);
    std::thread tells([&] {  // to all, which the victim does not read
        try {
            mine->exchange(1, std::as_bytes(std::span("word", 4)), within(300ms));
        } catch (const Error&) {
        }
    });
    tells.join();
    victim.signal(SIGKILL);
    CHECK(eventually([&] { return mine->dead() == std::vector<Rank>{1}; }));
    CHECK(other.ask("fault 30000").starts_with("fault 1 6 rank 1 (pid "));
    mine->leave();
}

TEST_CASE("a connection with a process that is stopped is made again when it goes on") {
    const Identity identity = bootstrap::create_identity(Rendezvous::tcp_only);
    RankProcess stopped(identity, 1, 2);
    const auto mine = join(identity, 0, 2);
    REQUIRE(stopped.hear() == "joined");
    stopped.signal(SIGSTOP);
    CHECK(harness::reset_connections() > 0);
    std::this_thread::sleep_for(200ms);
    CHECK_FALSE(mine->fault().has_value());
    stopped.signal(SIGCONT);
    std::this_thread::sleep_for(100ms);
    CHECK(stopped.ask("raise") == "ok");
    REQUIRE(eventually([&] { return mine->fault().has_value(); }));
    CHECK(mine->fault()->text == "raised");
    mine->leave();
}

}  // namespace tutti::test
