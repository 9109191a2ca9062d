// Long messages over TCP go from where they lie to where they are wanted, in any memory, and to the inbox otherwise. A
// rank that has given up gets nothing written to its memory any more, and sends nothing that has changed since.
#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "contents.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "links.hpp"
#include "relay.hpp"
#include "transport/net/engine.hpp"
#include "transport/net/link.hpp"

using namespace tutti;
using namespace tutti::harness;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t much = 200'000;  // a message

bool is_zero(std::byte b) {
    return b == std::byte{0};
}

/// Rank 0 sends from private memory, rank 1 receives in its own. Both are driven by this thread, or in the background.
struct Memories {
    explicit Memories(Relay& relay, std::chrono::milliseconds timeout = 60s)
        : pair(harness::join(*find_transport("tcp"), {}, false, true, timeout, [&](const bootstrap::Address& address) {
              relay.lead_to(address);
              return relay.address();
          })) {}

    LinkedPair pair;
    std::vector<std::byte> from = std::vector<std::byte>(much), to = from;
    Sender there{pair.link[0]->outlet(0)};
    Receiver here{pair.link[1]->inlet(0)};

    void send(std::uint32_t m) {
        std::memcpy(from.data(), contents(m, 0), much);
        harness::check(pair.link[0]->refer(from.data(), much, there.cell().reference), "memory is not taken");
        there.commit(Kind::reference, much, m);
    }
    void post(std::size_t bytes) {
        Reference where{};
        harness::check(pair.link[1]->refer(to.data(), bytes, where), "memory is not taken");
        here.post(0, where, bytes);
    }
    template <class Ready>
    void poll_until(Ready&& ready) {
        for (const Deadline limit = Clock::now() + 2min; !ready();) {
            harness::check(Clock::now() < limit, "nothing comes");
            for (Neighbourhood& n : pair.at) n.engine->poll();
        }
    }
    static bool is_message(const std::byte* place, std::uint32_t m) {
        return std::memcmp(place, contents(m, 0), much) == 0;
    }
};

}  // namespace

TEST_CASE("over sockets long messages go from any memory to where they are wanted, else to the slot") {
    Relay relay([](int) { return Relay::for_good; });
    Memories at(relay);
    Reference reference{};
    REQUIRE_FALSE(at.pair.link[0]->refer(at.from.data(), 1000, reference));
    for (std::uint32_t m = 0; m < 12; ++m) {
        CAPTURE(m);
        const bool posted = m % 3 != 0, fits = m % 3 == 1;
        if (posted) at.post(fits ? much : much - 1);
        std::ranges::fill(at.to, std::byte{0});
        at.send(m);
        at.poll_until([&] { return at.here.ready(); });
        const Cell& cell = at.here.cell();
        CHECK((cell.kind == (fits ? Kind::landed : Kind::slot) && cell.bytes == much && cell.signature == m));
        CHECK(at.is_message(fits ? at.to.data() : at.here.slot(), m));
        if (!fits) CHECK(std::ranges::all_of(at.to, is_zero));
        CHECK_FALSE(at.there.settled());
        at.here.release();
        at.poll_until([&] { return at.there.settled(); });  // at once, although few credits are due
    }
}

TEST_CASE("messages from and to any memory come once and whole although connections are reset at any byte") {
    std::mt19937 random(harness::seed());
    Relay relay([&](int number) -> std::size_t {
        return number > 20 ? Relay::for_good : 4000 + random() % (2 * much);
    });
    Memories at(relay, 4min);
    for (std::uint32_t m = 0; m < (harness::sanitized ? 20 : 60); ++m) {
        CAPTURE(m);
        if (m % 3 != 0) at.post(much);
        at.send(m);
        at.poll_until([&] { return at.here.ready(); });
        const std::byte* const place = at.here.cell().kind == Kind::landed ? at.to.data() : at.here.slot();
        REQUIRE(at.here.cell().signature == m);
        REQUIRE(at.is_message(place, m));
        at.here.release();
        at.poll_until([&] { return at.there.settled(); });
    }
    CHECK(relay.resets() > 3);
}

TEST_CASE("a rank that gives up before a message has begun to arrive gets it in its slot") {
    Relay relay([](int) { return Relay::for_good; });
    Memories at(relay);
    at.send(0);
    at.poll_until([&] { return at.here.ready(); });  // they are connected
    at.here.release();
    at.poll_until([&] { return at.there.settled(); });
    at.post(much);
    at.pair.at[1].engine->withdraw();
    at.send(1);
    at.poll_until([&] { return at.here.ready(); });
    CHECK(at.here.cell().kind == Kind::slot);
    CHECK(at.is_message(at.here.slot(), 1));
    CHECK(std::ranges::all_of(at.to, is_zero));
}

TEST_CASE("a rank that gives up in the midst of a message gets no further byte of it") {
    LinkedPair pair = harness::join(*find_transport("tcp"));
    net::Ends ends(*pair.at[0].session, pair.arenas[0], 1);
    ends.use(nullptr);
    std::vector<std::byte> memory(much);
    Receiver receiver(ends.inlet(0));
    receiver.post(0, {0, reinterpret_cast<std::uintptr_t>(memory.data())}, much);
    net::Recipient& to = ends;
    net::Header header{};
    header.what = net::What::message;
    header.in_slot = 1;
    header.bytes = much;
    const char* why = "";
    REQUIRE(to.begin(header, why) == memory.data());
    ends.withdraw();
    CHECK(ends.is_lost());
}

TEST_CASE("what a rank has sent by reference when it gives up does not arrive changed") {
    for (const int messages : {1, 3}) {
        CAPTURE(messages);
        Relay relay([](int) { return Relay::for_good; });
        Memories at(relay, 5s);
        at.send(0);
        at.poll_until([&] { return at.here.ready(); });
        at.here.release();
        at.poll_until([&] { return at.there.settled(); });
        relay.hold(true);  // what does not fit the kernel's buffers is not sent
        for (int m = 0; m < messages; ++m) {
            at.there.cell().reference = {0, reinterpret_cast<std::uintptr_t>(at.from.data())};
            at.there.commit(Kind::reference, much, 7);
        }
        at.pair.at[0].engine->poll();
        at.pair.at[0].engine->withdraw();
        std::ranges::fill(at.from, std::byte{0xee});
        relay.hold(false);
        std::string said;
        for (const Deadline limit = Clock::now() + 1min; said.empty() && Clock::now() < limit;) {
            try {
                at.pair.at[1].engine->poll();
            } catch (const Error& error) {
                said = error.what();
            }
            for (; at.here.ready(); at.here.release()) REQUIRE(at.is_message(at.here.slot(), 0));
        }
        CAPTURE(said);
        CHECK(said.starts_with("rank 1 lost its connection with rank 0"));
    }
}
