// Links over TCP whose connections are reset or held up on the way: they go on, and what arrives is what was sent.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <stdexcept>

#ifdef TUTTI_VERBS
#include "fake_verbs.hpp"
#include "transport/verbs/net.hpp"
#endif
#include "contents.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "links.hpp"
#include "mailbox.hpp"
#include "relay.hpp"
#include "transport/net/engine.hpp"
#include "transport/net/healing.hpp"

using namespace tutti;
using namespace tutti::net;
using namespace tutti::harness;
using std::chrono::milliseconds;

namespace {

constexpr std::size_t in_peace = 4000;  // bytes that a connection takes until it stands, and more

/// Two linked ranks; the lower one connects to the other through the relay.
LinkedPair join_by(Relay& relay, milliseconds timeout, bool drive = true) {
    return harness::join(*find_transport("tcp"), {}, drive, true, timeout, [&](const bootstrap::Address& address) {
        relay.lead_to(address);
        return relay.address();
    });
}

/// How long what rank `from` sends as message m of the channel is.
std::size_t length_of(Rank from, int channel, unsigned m) {
    std::minstd_rand random(static_cast<unsigned>(from) * 1000 + static_cast<unsigned>(channel) * 100 + m + 1);
    random.discard(3);  // the first numbers of neighbouring seeds are neighbours
    constexpr std::size_t limits[] = {1, inline_bytes + 1, 5000, slot_bytes + 1};
    return random() % limits[random() % std::size(limits)];
}

/// One direction of one channel.
struct Way {
    Rank from;
    int channel;
    Sender sender;
    Receiver receiver;
    unsigned sent = 0, received = 0;

    const std::byte* contents(unsigned m) const { return harness::contents(m, channel * 2 + static_cast<int>(from)); }
    bool send() {
        const std::size_t bytes = length_of(from, channel, sent);
        const bool slot = bytes > inline_bytes;
        if (!sender.ready(slot)) return false;
        std::byte* const to = slot ? sender.slot() : sender.cell().payload;
        std::memcpy(to, contents(sent), bytes);
        sender.commit(slot ? Kind::slot : Kind::inlined, static_cast<std::uint32_t>(bytes), ++sent);
        return true;
    }
    /// False: nothing there. Throws if it is another message than the next one.
    bool receive() {
        if (!receiver.ready()) return false;
        const Cell& cell = receiver.cell();
        const std::size_t bytes = length_of(from, channel, received);
        const std::byte* const at = cell.kind == Kind::slot ? receiver.slot() : cell.payload;
        if (cell.signature != received + 1 || cell.bytes != bytes || std::memcmp(at, contents(received), bytes) != 0)
            throw std::runtime_error("message " + std::to_string(received) + " of channel " + std::to_string(channel) +
                                     " is another one, or has another byte");
        receiver.release();
        ++received;
        return true;
    }
};

/// Both ranks send each other so many messages on every channel. Throws what a rank finds wrong.
void exchange(LinkedPair& pair, unsigned messages, const std::function<void(unsigned)>& now_and_then = {}) {
    std::deque<Way> ways;
    for (Rank from = 0; from < 2; ++from)
        for (int channel = 0; channel < program_channels; ++channel)
            ways.push_back({from, channel, Sender(pair.link[from]->outlet(channel)),
                            Receiver(pair.link[1 - from]->inlet(channel))});
    const Deadline limit = Clock::now() + std::chrono::minutes(4);
    for (bool all = false; !all;) {
        all = true;
        bool moved = false;
        unsigned least = messages;
        for (Way& way : ways) {
            if (way.sent < messages) moved |= way.send();
            moved |= way.receive();
            all &= way.received == messages;
            least = std::min(least, way.received);
        }
        if (now_and_then) now_and_then(least);
        for (Neighbourhood& n : pair.at) moved |= n.engine->poll();
        harness::check(Clock::now() < limit, "messages are still missing");
        if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
}

/// What the rank's engine throws.
std::string error_of(Neighbourhood& rank, milliseconds within) {
    for (const Deadline limit = Clock::now() + within; Clock::now() < limit;) {
        try {
            rank.engine->poll();
        } catch (const Error& error) {
            return error.what();
        }
        std::this_thread::sleep_for(milliseconds(1));
    }
    return "";
}

}  // namespace

TEST_CASE("connections that are reset at any byte are made again, and all messages come once and in order") {
    std::mt19937 random(harness::seed());
    for (const std::size_t shortest : {std::size_t{1}, std::size_t{100'000}}) {  // in handshakes; in large messages
        CAPTURE(shortest);
        Relay relay([&](int number) -> std::size_t {
            if (number < 16) return in_peace + random() % 300'000;
            if (number > (harness::sanitized ? 26 : 36)) return Relay::for_good;
            return random() % 4 == 0 ? random() % 2000 : shortest + random() % 400'000;
        });
        // On a busy machine many rounds in a row bring nothing: the limit is not what this is about.
        LinkedPair pair = join_by(relay, std::chrono::minutes(4), false);
        exchange(pair, harness::sanitized ? 12 : 40);
        CAPTURE(relay.resets());
        CHECK(relay.resets() > 5);
    }
}

TEST_CASE("connections that are reset at any byte of their first handshake are made again") {
    const std::size_t step = harness::sanitized ? 180 : 45;
    for (std::size_t bytes = 1 + harness::seed() % step; bytes < 1100; bytes += step) {
        CAPTURE(bytes);
        Relay relay([&](int number) { return number < 2 ? bytes : Relay::for_good; });
        LinkedPair pair = join_by(relay, std::chrono::seconds(20), false);
        exchange(pair, 2);
        CHECK(relay.resets() > 0);
    }
}

TEST_CASE("resets: encrypted connections, and several of a link, are made again as well") {
    const std::string name = "connections that are reset at any byte*";
    CHECK(harness::run_with("TUTTI_ENCRYPT=1 TUTTI_SOCKETS=4", name) == "");
    CHECK(harness::run_with("TUTTI_ENCRYPT=mac TUTTI_SOCKETS=1", name) == "");
    if (harness::sanitized) return;  // one takes half a minute there
    CHECK(harness::run_with("TUTTI_ENCRYPT=1", name) == "");
    CHECK(harness::run_with("TUTTI_SOCKETS=4", name) == "");
    CHECK(harness::run_with("TUTTI_SOCKETS=1", name) == "");
}

TEST_CASE("a rank that sleeps is served when its connections are made again") {
    Relay relay([](int) { return Relay::for_good; });
    LinkedPair pair = join_by(relay, std::chrono::seconds(60));
    Sender sender(pair.link[1]->outlet(0));
    Receiver receiver(pair.link[0]->inlet(0));
    const auto arrives = [&](std::uint32_t number) {
        sender.commit(Kind::inlined, 0, number);
        for (const Deadline limit = Clock::now() + std::chrono::seconds(20); !receiver.ready();)
            if (Clock::now() > limit) return false;
        const bool right = receiver.cell().signature == number;
        receiver.release();
        return right;
    };
    REQUIRE(arrives(1));
    pair.waiting->stop();
    for (Neighbourhood& n : pair.at) n.engine->rest(true);
    for (std::uint32_t i = 2; i < 10; ++i) {
        relay.reset_all();
        while (relay.resets() + 1 < static_cast<int>(i)) std::this_thread::sleep_for(milliseconds(1));
        sender.commit(Kind::inlined, 0, i);
        pair.at[1].engine->rest(true);  // as a rank that has sent, and now waits for something else
        for (const Deadline limit = Clock::now() + std::chrono::seconds(20); !receiver.ready() && Clock::now() < limit;)
            std::this_thread::sleep_for(milliseconds(1));
        REQUIRE(receiver.ready());
        REQUIRE(receiver.cell().signature == i);
        receiver.release();
    }
}

TEST_CASE("a link over another network keeps going when its socket is reset, and that is made again") {
    harness::MailboxNet net(true);
    const harness::NetUnderTest transport(net);
    Relay relay([](int number) { return number < 6 ? std::size_t{6000} : Relay::for_good; });
    LinkedPair pair =
        harness::join(transport, {}, false, true, std::chrono::seconds(60), [&](const bootstrap::Address& address) {
            relay.lead_to(address);
            return relay.address();
        });
    exchange(pair, 20, [&, last = 0u](unsigned least) mutable {
        if (least == last) return;
        last = least;
        const int calls = relay.calls();
        relay.reset_all();
        for (const Deadline limit = Clock::now() + std::chrono::seconds(5);
             relay.calls() == calls && Clock::now() < limit;)
            for (Neighbourhood& n : pair.at) n.engine->poll();
    });
    CHECK(relay.resets() > 5);
}

#ifdef TUTTI_VERBS
TEST_CASE("adapters whose connections break while their link's socket is made again find another way") {
    const harness::FakeVerbsReset knobs;
    verbs::Net net(harness::fake_library, {});
    const harness::NetUnderTest transport(net);
    Relay relay([](int) { return Relay::for_good; });
    LinkedPair pair =
        harness::join(transport, {}, false, true, std::chrono::seconds(60), [&](const bootstrap::Address& address) {
            relay.lead_to(address);
            return relay.address();
        });
    std::mt19937 random(harness::seed());
    const auto poll = [&] {
        for (Neighbourhood& n : pair.at) n.engine->poll();
    };
    int broken = 0;
    exchange(pair, 30, [&, last = 0u](unsigned least) mutable {
        if (least == last) return;
        last = least;
        broken += harness::fake_verbs().cuts == 0;
        const int calls = relay.calls();
        const bool socket_first = random() % 2 == 0;
        if (socket_first) relay.reset_all();
        harness::fake_verbs().cut_every = 1 + static_cast<int>(random() % 3);
        harness::fake_verbs().cuts = 1;
        for (auto polls = random() % 20; polls > 0; --polls) poll();
        if (!socket_first) relay.reset_all();
        for (const Deadline limit = Clock::now() + std::chrono::seconds(5);
             relay.calls() == calls && Clock::now() < limit;)
            poll();
    });
    CAPTURE(broken, relay.resets());
    CHECK(broken > 5);
    CHECK(relay.resets() > 5);
}
#endif

TEST_CASE("a path that comes back within the limit of silence is taken again, whether or not it was reset") {
    const bool reset = GENERATE(false, true);
    CAPTURE(reset);
    Relay relay([](int) { return Relay::for_good; });
    LinkedPair pair = join_by(relay, std::chrono::seconds(60), false);
    bool held = false;
    Deadline until{};
    exchange(pair, 20, [&](unsigned least) {
        if (least == 5 && !held) {
            if (reset) relay.reset_all();
            std::this_thread::sleep_for(milliseconds(5));
            relay.hold(held = true);
            until = Clock::now() + milliseconds(700);
        }
        if (held && Clock::now() > until) relay.hold(false);
    });
    CHECK(held);
    if (reset) CHECK(relay.calls() > 1);
}

TEST_CASE("connections that can't be made again end the link: at once where nobody listens, else by the limit") {
    const bool closed = GENERATE(true, false);
    CAPTURE(closed);
    Relay relay([](int number) { return number < 16 ? Relay::for_good : 0; });
    LinkedPair pair = join_by(relay, std::chrono::seconds(closed ? 200 : 2), false);  // the limit is half of it
    exchange(pair, 3);
    if (closed) relay.close_port();
    if (!closed) relay.hold(true);
    std::this_thread::sleep_for(milliseconds(20));
    relay.reset_all();
    if (!closed) relay.hold(true);
    const std::string what = error_of(pair.at[0], std::chrono::seconds(30));
    CAPTURE(what);
    CHECK(what.find("rank 0 lost its connection with rank 1 (127.0.0.1:") == 0);
    CHECK(what.find("reset by peer") != std::string::npos);
    if (closed) return;  // rank 1, which is called, would wait for as long as the limit
    CHECK(error_of(pair.at[1], std::chrono::seconds(30)).find("rank 1 lost its connection with rank 0 (") == 0);
}

TEST_CASE("rounds of connections in which nothing comes through end the link within the limit of silence") {
    // Every new connection repeats the credits of used channels; that is no progress. If no message waits, nothing else
    // is sent, about 1,000 bytes with the handshake, so the round must be shorter.
    using Round = std::pair<std::size_t, bool>;
    const auto [bytes, waits] = GENERATE(Round(700, false), Round(1000, true), Round(2000, true), Round(3000, true));
    CAPTURE(bytes, waits);
    std::atomic<bool> bad{false};
    Relay relay([&bad, bytes = bytes](int) { return bad ? bytes : Relay::for_good; });
    LinkedPair pair = join_by(relay, std::chrono::seconds(2), false);  // the limit is 1 s
    exchange(pair, 3);
    if (waits)  // a message, for which no round is long enough
        Sender(pair.link[0]->outlet(0), 3).commit(Kind::slot, slot_bytes, 4);
    const Deadline begin = Clock::now();
    bad = true;
    relay.reset_all();
    std::string what[2];
    while ((what[0].empty() || what[1].empty()) && Clock::now() - begin < std::chrono::seconds(20))
        for (const Rank r : {0, 1})
            if (what[r].empty()) what[r] = error_of(pair.at[r], milliseconds(1));
    CAPTURE(relay.resets(), what[0], what[1]);
    CHECK(relay.resets() > 3);
    CHECK(what[0].find("rank 0 lost its connection with rank 1 (127.0.0.1:") == 0);
    CHECK(what[1].find("rank 1 lost its connection with rank 0 (127.0.0.1:") == 0);
    CHECK(what[0].find("reset by peer") != std::string::npos);
}

TEST_CASE("who has given a link up, or let go of it, says so to whoever connects again") {
    const bool lost = GENERATE(true, false);
    CAPTURE(lost);
    Relay relay([](int) { return Relay::for_good; });
    LinkedPair pair = join_by(relay, std::chrono::seconds(60), false);
    exchange(pair, 3);
    relay.hold(true);
    std::this_thread::sleep_for(milliseconds(20));
    if (lost)
        dynamic_cast<net::Engine&>(*pair.at[1].engine).unreachable(0, "a test has cut it");
    else
        pair.link[1].reset();
    if (lost) CHECK(!error_of(pair.at[1], std::chrono::seconds(30)).empty());
    relay.reset_all();  // what it has said is lost
    std::this_thread::sleep_for(milliseconds(20));
    relay.hold(false);
    if (!lost) {
        CHECK(error_of(pair.at[0], milliseconds(1500)).empty());
        CHECK(pair.link[0]->page()->leaving == 1);
        return;
    }
    const std::string what = error_of(pair.at[0], std::chrono::seconds(30));
    CAPTURE(what);
    CHECK(what.find("rank 0 lost its connection with rank 1 (127.0.0.1:") == 0);
    CHECK(what.find("given the connection up") != std::string::npos);
}

TEST_CASE("of the two ends of a link one dials, and only connections of the round that it is at are taken") {
    const Deadline now = Clock::now();
    Healing dials(true), answers(false);
    dials.set_limit(milliseconds(1000));
    answers.set_limit(milliseconds(1000));
    for (Healing* end : {&dials, &answers}) {
        REQUIRE((end->wants(0) && end->is_whole() && !end->take_dial() && !end->begin(0)));
        REQUIRE(end->place() == nullptr);  // nothing has broken
        REQUIRE(end->tear(now, "a test has"));
        REQUIRE((end->why() == "a test has" && end->place() != nullptr));
        REQUIRE_FALSE(end->wants(0));
        REQUIRE_FALSE(end->is_whole());
    }
    REQUIRE((dials.round() == 1 && dials.take_dial() && !dials.take_dial()));
    REQUIRE((dials.wants(1) && !dials.wants(2)));
    REQUIRE((answers.wants(1) && answers.wants(7) && !answers.take_dial()));
    REQUIRE(answers.begin(1));
    REQUIRE_FALSE(answers.begin(1));  // it has been told
    answers.arrived();
    REQUIRE(answers.place() == nullptr);  // it has not been looked at
    REQUIRE((answers.take_theirs() && !answers.take_theirs()));
    REQUIRE(answers.resume({}, now + milliseconds(7)).took == milliseconds(7));
    REQUIRE((answers.is_whole() && answers.wants(1) && answers.wants(2) && !answers.wants(0)));
    REQUIRE_FALSE(dials.is_over(now + milliseconds(1000)));
    REQUIRE(dials.is_over(now + milliseconds(1001)));
    REQUIRE_FALSE(answers.is_over(now + milliseconds(1001)));
    // Rounds without progress become rarer, and then stop.
    Deadline at = now;
    int rounds = 0;
    for (; answers.tear(at, "") && rounds < 1000; ++rounds) {
        at += answers.pause(at) + milliseconds(1);
        REQUIRE(answers.begin(answers.round() + 1));
        REQUIRE_FALSE(answers.resume({}, at).first);
    }
    REQUIRE((rounds > 3 && rounds < 20));
    // The peer may have got more, though what it says of that comes no other way than by the next round.
    Healing heard(true);
    heard.set_limit(milliseconds(1000));
    Received theirs{};
    for (int i = 0; i < 100; ++i) {
        REQUIRE(heard.tear(at += milliseconds(100), ""));
        heard.begin(heard.round());
        ++theirs.messages[i % 3];
        heard.resume(theirs, at);
    }
    // With progress, the number of rounds has no limit.
    Healing lives(true);
    lives.set_limit(milliseconds(1000));
    for (int i = 0; i < 100; ++i) {
        REQUIRE(lives.tear(at += milliseconds(100), ""));
        REQUIRE(lives.pause(at) == milliseconds(0));
        lives.works();
    }
    REQUIRE(lives.round() == 100);
}
