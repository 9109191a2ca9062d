// What is the tcp transport's own: ciphers, frames that lie, connections that break, unauthenticated peers at the port.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>

#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "harness/no_mappings.hpp"
#include "harness/skip.hpp"
#include "links.hpp"
#include "mailbox.hpp"
#include "messages.hpp"
#include "transport/net/engine.hpp"
#include "transport/net/reception.hpp"

using namespace tutti;
using namespace tutti::tcp;
using namespace tutti::net;
using namespace tutti::harness;

namespace {

using bootstrap::Bytes;
using bootstrap::Detached;
using bootstrap::Secret;
using bootstrap::View;

/// A peer that notes what it is given, and can refuse.
class Notes : public Recipient {
  public:
    std::byte* begin(const Header&, const char*& why) override {
        why = "refused";
        return refuses ? nullptr : place.data();
    }
    void finish(const Header& header) override { seen.push_back(header); }
    std::vector<std::byte> place = std::vector<std::byte>(slot_bytes);
    std::vector<Header> seen;
    bool refuses = false;
};

struct Pair {
    Fd end[2];
    Pair() {
        int fds[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) fail_errno("socketpair");
        end[0] = Fd(fds[0]);
        end[1] = Fd(fds[1]);
    }
};

const std::chrono::milliseconds silence_limit{5000};

bool can(Cipher::Kind kind) {
    if (Cipher::has(kind)) return true;
    harness::skip("a processor with instructions for AES");
    return false;
}

}  // namespace

TEST_CASE("only headers that some rank could have sent fit") {
    REQUIRE(message(0, 1).fits());
    REQUIRE(message(longest_slot_bytes, 1).fits());
    REQUIRE_FALSE(message(longest_slot_bytes + 1, 1).fits());
    Header h = message(inline_bytes + 1, 1);
    h.in_slot = 0;
    REQUIRE_FALSE(h.fits());
    for (const auto& [at, value] : {std::pair{0, 4}, {0, 255}, {1, channels_per_link}, {1, 255}, {2, 2}, {3, 2}}) {
        CAPTURE(at, value);
        h = message(8, 1);
        reinterpret_cast<unsigned char*>(&h)[at] = static_cast<unsigned char>(value);
        REQUIRE_FALSE(h.fits());
    }
    h = message(8, 1);
    h.what = What::credit;
    REQUIRE_FALSE(h.fits());
    // Only messages lie in slots: a plugin's endpoint would have its adapter write others where it knows no memory.
    for (const auto& [what, bytes] : {std::pair{What::credit, 0ul},
                                      {What::posted_receive, sizeof(Spot)},
                                      {What::landed, 8ul},
                                      {What::board, sizeof(Board)},
                                      {What::offer, sizeof(Offer)},
                                      {What::resume, sizeof(Received)},
                                      {What::lost, 0ul},
                                      {What::bye, 0ul}}) {
        h = {};
        h.what = what;
        h.bytes = static_cast<std::uint32_t>(bytes);
        REQUIRE(h.fits());
        h.in_slot = 1;
        REQUIRE_FALSE(h.fits());
    }
}

TEST_CASE("over any number of interfaces there are as many connections as a rank can tell of, as many over each") {
    for (int rails = 1; rails <= static_cast<int>(most_rails); ++rails) {
        for (int sockets = 1; sockets <= bootstrap::stripes_limit; ++sockets) {
            CAPTURE(rails, sockets);
            const int count = connections_over(rails, sockets);
            REQUIRE(count % rails == 0);
            REQUIRE(count > 0);
            REQUIRE((count >= sockets || count > bootstrap::stripes_limit - rails));
            const bootstrap::Stripe last{1, static_cast<std::uint8_t>(count - 1), static_cast<std::uint8_t>(count), 0,
                                         Protection::none};
            Bytes bytes = bootstrap::encode(last);
            bytes.resize(bytes.size() + bootstrap::mac_size);
            bootstrap::Frame frame;
            REQUIRE(bootstrap::split_frame(bytes, frame) == bootstrap::Split::complete);
            REQUIRE(bootstrap::parse(frame.kind, frame.payload).has_value());
        }
    }
}

TEST_CASE("a cipher opens what its twin has sealed, in order and untouched only") {
    for (const Cipher::Kind kind : {Cipher::xchacha, Cipher::aes, Cipher::xchacha_mac, Cipher::aes_mac}) {
        if (!can(kind)) continue;
        CAPTURE(static_cast<int>(kind));
        const Secret key = Secret::random();
        Cipher sealing(kind, key), opening(kind, key), late(kind, key);
        for (const std::size_t size : {0, 1, 48, 100000}) {
            const Bytes plain(size, std::byte{5});
            Bytes sealed(size + Cipher::extra), out(size);
            sealing.seal(plain, sealed.data());
            const bool in_clear = Cipher::protection(kind) == Protection::mac;
            if (size > 16) REQUIRE(in_clear == std::equal(plain.begin(), plain.end(), sealed.begin()));
            REQUIRE(opening.open(sealed, out.data()));
            REQUIRE(out == plain);
            for (const std::size_t touched : {std::size_t{0}, size / 2, size, size + Cipher::extra - 1}) {
                Cipher first(kind, key), again(kind, key);
                first.seal(plain, sealed.data());
                sealed[touched] ^= std::byte{1};
                Bytes nothing(size);
                REQUIRE_FALSE(again.open(sealed, nothing.data()));
                REQUIRE(std::ranges::count(nothing, std::byte{5}) == 0);
            }
        }
        Bytes first(Cipher::extra + 8), second(first), out(8);
        Cipher other(kind, key);
        other.seal(Bytes(8), first.data());
        other.seal(Bytes(8), second.data());
        REQUIRE(first != second);
        REQUIRE_FALSE(late.open(second, out.data()));
    }
    constexpr std::uint8_t both = Cipher::xchacha | Cipher::aes;
    CHECK(Cipher::choose(Protection::encrypted, Cipher::xchacha, both) == Cipher::xchacha);
    CHECK(Cipher::choose(Protection::encrypted, both, both) == Cipher::aes);
    CHECK(Cipher::choose(Protection::mac, both, Cipher::xchacha) == Cipher::xchacha_mac);
    CHECK(Cipher::choose(Protection::mac, both, both) == Cipher::aes_mac);
    CHECK(Cipher::choose(Protection::none, both, both) == Cipher::none);
    for (const int kind : {3, 4, 7, 8, 9, 255}) CHECK_FALSE(Cipher::has(static_cast<std::uint8_t>(kind)));
}

TEST_CASE("frames cross a stream whole, plain and sealed, however the socket cuts them") {
    for (const Cipher::Kind kind : {Cipher::none, Cipher::xchacha, Cipher::aes, Cipher::xchacha_mac, Cipher::aes_mac}) {
        if (!can(kind)) continue;
        CAPTURE(static_cast<int>(kind));
        Pair sockets;
        const Secret key = Secret::random(), back = Secret::random();
        Stream from({std::move(sockets.end[0]), {}, key, back}, kind, silence_limit);
        Stream to({std::move(sockets.end[1]), {}, back, key}, kind, silence_limit);
        Notes notes;
        std::vector<std::byte> body(slot_bytes);
        for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(i * 31 + i / 251);
        std::uint32_t sent = 0;
        for (const std::size_t size : {0ul, 48ul, 49ul, 16384ul, 100001ul, slot_bytes, 8ul, slot_bytes}) {
            from.queue(message(size, ++sent), body.data());
            for (int looks = 0; looks < 1000 && notes.seen.size() < sent; ++looks) {
                from.heard(4 /* EPOLLOUT */);
                to.heard(1 /* EPOLLIN */);
                from.send();
                to.receive(notes);
            }
            REQUIRE(to.trouble().empty());
            REQUIRE(notes.seen.size() == sent);
            REQUIRE(notes.seen.back().signature == sent);
            REQUIRE(std::memcmp(notes.place.data(), body.data(), size) == 0);
        }
    }
}

TEST_CASE("noise instead of sealed frames, refused frames and an end of the line are trouble, and nothing else") {
    {
        Pair sockets;
        Stream to({std::move(sockets.end[1]), {}, Secret::random(), Secret::random()}, Cipher::xchacha, silence_limit);
        Notes notes;
        const Bytes noise(4096, std::byte{7});
        REQUIRE(::write(sockets.end[0].get(), noise.data(), noise.size()) == 4096);
        to.receive(notes);
        REQUIRE(to.trouble().find("changed on its way") != std::string::npos);
    }
    Pair sockets;
    Stream from({std::move(sockets.end[0]), {}, {}, {}}, Cipher::none, silence_limit);
    Stream to({std::move(sockets.end[1]), {}, {}, {}}, Cipher::none, silence_limit);
    Notes notes;
    notes.refuses = true;
    from.queue(message(0, 1), nullptr);
    from.send();
    to.receive(notes);
    REQUIRE(to.trouble() == "refused");
}

TEST_CASE("what a peer claims to have finished with is checked, and room is never assumed") {
    LinkedPair pair = harness::join(*find_transport("tcp"));
    net::Ends ends(*pair.at[0].session, pair.arenas[0], 1);
    Recipient& to = ends;
    const char* why = "";
    Header h{};
    h.what = What::credit;
    h.credit = 1;
    REQUIRE(to.begin(h, why) == nullptr);
    REQUIRE(std::string(why).find("finished with more") != std::string::npos);
    for (std::uint32_t m = 0; m < slot_depth; ++m) {
        const Header full = message(1000, m);
        REQUIRE(to.begin(full, why) != nullptr);
        to.finish(full);
    }
    REQUIRE(to.begin(message(1000, 9), why) == nullptr);
    REQUIRE(std::string(why).find("room") != std::string::npos);
}

TEST_CASE("a peer that goes without a word is an error that names it and both addresses; one that says so is not") {
    const bool orderly = GENERATE(true, false);
    LinkedPair pair = harness::join(*find_transport("tcp"), {}, false);
    auto& engine = dynamic_cast<net::Engine&>(*pair.at[0].engine);
    const auto connected = [&](Rank r) { return pair.link[r]->describe().find("127.0.0.1") != std::string::npos; };
    const Deadline limit = Clock::now() + std::chrono::minutes(2);
    while ((!connected(0) || !connected(1)) && Clock::now() < limit) std::this_thread::yield();
    REQUIRE(connected(0));
    REQUIRE(pair.link[0]->describe().find("rank 1, by TCP, 127.0.0.1:") == 0);
    if (orderly) {
        pair.link[1].reset();
        while (pair.link[0]->page()->leaving != 1 && Clock::now() < limit) REQUIRE_NOTHROW(engine.poll());
        REQUIRE(pair.link[0]->page()->leaving == 1);
        const Deadline end = Clock::now() + std::chrono::milliseconds(500);
        while (Clock::now() < end) REQUIRE_NOTHROW(engine.poll());
        return;
    }
    dynamic_cast<net::Engine&>(*pair.at[1].engine).unreachable(0, "a test has cut it");
    std::string what;
    while (what.empty() && Clock::now() < limit) {
        try {
            engine.poll();
        } catch (const Error& error) {
            REQUIRE(error.code() == tuttiRemoteError);
            what = error.what();
        }
    }
    CAPTURE(what);
    REQUIRE(what.find("rank 0 lost its connection with rank 1 (127.0.0.1:") == 0);
    REQUIRE(what.find(" to 127.0.0.1:") != std::string::npos);
}

TEST_CASE("what is sent to a rank that is late arrives without it, as far as there are slots, and it is not given up") {
    LinkedPair pair = harness::join(*find_transport("tcp"), {}, false, true, std::chrono::seconds(2));
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    const auto mark = [](int channel, unsigned m) { return static_cast<int>(m) * 16 + channel; };
    for (int channel = 0; channel < program_channels; ++channel) {  // more than the windows of all its sockets
        senders.emplace_back(pair.link[0]->outlet(channel));
        receivers.emplace_back(pair.link[1]->inlet(channel));
        for (unsigned m = 0; m < slot_depth; ++m) {
            std::memset(senders.back().slot(), mark(channel, m), slot_bytes);
            senders.back().commit(Kind::slot, slot_bytes, m + 1);
        }
    }
    // Rank 1 does nothing.
    const Deadline limit = Clock::now() + std::chrono::minutes(2);
    const auto arrived = [&](int channel) {
        const Wire in = pair.link[1]->inlet(channel);
        return in.fifo->cells[slot_depth - 1].turn.load(std::memory_order_acquire) == slot_depth;
    };
    const auto all_have = [&] {
        for (int channel = 0; channel < program_channels; ++channel)
            if (!arrived(channel)) return false;
        return true;
    };
    while (!all_have() && Clock::now() < limit) {
        REQUIRE_NOTHROW(pair.at[0].engine->poll());
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    REQUIRE(all_have());
    for (int channel = 0; channel < program_channels; ++channel) {
        Receiver& from = receivers[static_cast<std::size_t>(channel)];
        for (unsigned m = 0; m < slot_depth; ++m) {
            REQUIRE(from.ready());
            REQUIRE(from.cell().signature == m + 1);
            const auto wanted = static_cast<std::byte>(mark(channel, m));
            REQUIRE(std::ranges::count(std::span(from.slot(), slot_bytes), wanted) == slot_bytes);
            from.release();
        }
    }
}

TEST_CASE("a peer whose process is stopped before it lets the connection in is waited for") {
    Neighbourhood n;
    n.session = std::make_shared<harness::MapSession>(0, std::make_shared<harness::MapSession::Offers>());
    n.arena = Arena::make(2, false);
    n.engine = open_engine({{bootstrap::Address::loopback()}});
    const Fd stopped = bootstrap::listen_at(bootstrap::Address::loopback());  // its kernel takes connections
    for (const bootstrap::Address& port : {n.engine->addresses().front(), bootstrap::bound_address(stopped)})
        n.infos.push_back({host_id(), process_id(), 0, getpid(), TUTTI_VERSION_CODE, {port}});
    n.engine->start(n, std::chrono::seconds(2));
    const auto link = find_transport("tcp")->connect(n, 1, Clock::now() + std::chrono::seconds(5));
    std::vector<Fd> calls;  // more than it would make to one that refuses
    for (const Deadline limit = Clock::now() + std::chrono::minutes(2); calls.size() < 8 && Clock::now() < limit;) {
        Fd call(accept4(stopped.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (call) calls.push_back(std::move(call));
        REQUIRE_NOTHROW(n.engine->poll());
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    REQUIRE(calls.size() == 8);
}

#if TUTTI_TEST_CAN_FORBID_MAPPINGS
TEST_CASE("a rank without memory for a connection that a peer makes says so, and can be given up") {
    LinkedPair pair = harness::join(*find_transport("tcp"), {}, false, false);
    std::string what;
    {
        std::optional<harness::NoMappings> poor;
        bootstrap::Service::get()->run([&] {  // what this begins goes on when it is over
            pair.link[0] = find_transport("tcp")->connect(pair.at[0], 1, Clock::now() + std::chrono::seconds(20));
            poor.emplace();
        });
        for (const Deadline limit = Clock::now() + std::chrono::minutes(2); what.empty() && Clock::now() < limit;) {
            try {
                pair.at[1].engine->poll();
            } catch (const Error& error) {
                what = error.what();
            }
        }
    }
    CAPTURE(what);
    REQUIRE(what.find("rank 1 can't take a connection from rank 0: reserving ") == 0);
}
#endif

TEST_CASE("of two ranks that go by different networks, whichever notices first says so") {
    harness::MailboxNet net(false);
    LinkedPair pair = harness::join(*find_transport("tcp"), {}, false, false);
    const std::unique_ptr<Link> by_tcp = net::make_link(pair.at[0], 1, nullptr);
    const std::unique_ptr<Link> by_mail = net::make_link(pair.at[1], 0, &net);
    Sender sender(by_tcp->outlet(0));
    sender.commit(Kind::inlined, 0, 1);
    std::string said[2];
    for (const Deadline limit = Clock::now() + std::chrono::minutes(2); Clock::now() < limit;) {
        for (int r = 0; r < 2; ++r) {
            try {
                if (said[r].empty()) pair.at[r].engine->poll();
            } catch (const Error& error) {
                said[r] = error.what();
            }
        }
        if (!said[0].empty() && !said[1].empty()) break;
    }
    CAPTURE(said[0], said[1]);
    REQUIRE(!said[0].empty());
    REQUIRE(!said[1].empty());
    REQUIRE((said[0] + said[1]).find("TUTTI_TRANSPORT") != std::string::npos);
}

TEST_CASE("rare frames wait for the first connection, where a peer whose threads share connections expects them") {
    LinkedPair pair = harness::join(*find_transport("tcp"), {}, false, false);
    net::Ends one(*pair.at[0].session, pair.arenas[0], 1), other(*pair.at[1].session, pair.arenas[1], 0);
    one.use(nullptr);
    other.use(nullptr);
    Pair sockets[2];
    const auto attach = [&](net::Ends& ends, int number, int end) {
        ends.attach(number, 2,
                    std::make_unique<Stream>(Detached{std::move(sockets[number].end[end]), {}, {}, {}}, Cipher::none,
                                             silence_limit));
    };
    pair.arenas[0]->page().board[0].set({.signature = 77});
    pair.arenas[0]->page().sequence = 1;
    attach(one, 1, 0);  // its handshake has ended first
    one.tell_board(pair.arenas[0]->page());
    one.move();
    attach(one, 0, 0);
    one.move();
    attach(other, 0, 1);
    attach(other, 1, 1);
    std::vector<net::Ends::Turn> turns;
    other.add_turns(turns);
    REQUIRE(turns.size() == 2);
    for (net::Ends::Turn& turn : turns) turn.take();
    other.move();
    CAPTURE(other.is_lost() ? other.what_is_lost() : "");
    REQUIRE_FALSE(other.is_lost());
    CHECK((other.page().sequence == 1 && other.page().board[0].get().signature == 77));
}

TEST_CASE("a message that is longer than the receiver's slots is refused, and nothing of it is written") {
    class ForGpus : public harness::MailboxNet {
      public:
        using MailboxNet::MailboxNet;
        std::string obstacle(DeviceSlots*) override { return {}; }
    } net(false);
    LinkedPair pair = harness::join(*find_transport("tcp"), {}, false, false);
    constexpr std::size_t stride = 4096;  // less than any header may say: slots on GPUs are shorter than others
    std::vector<std::byte> slots(channels_per_link * slot_depth * stride);
    pair.at[1].device_slots = [&](std::string&) {
        auto device = std::make_unique<DeviceSlots>();
        device->in = {slots.data(), slot_depth * stride, stride};
        return device;
    };
    const std::unique_ptr<Link> link[] = {net::make_link(pair.at[0], 1, &net), net::make_link(pair.at[1], 0, &net)};
    Sender sender(link[0]->outlet(0));
    Receiver receiver(link[1]->inlet(0));
    const auto send = [&](std::size_t bytes, std::uint32_t signature) {
        std::memset(sender.slot(), 7, bytes);
        sender.commit(Kind::slot, static_cast<std::uint32_t>(bytes), signature);
    };
    const Deadline limit = Clock::now() + std::chrono::minutes(2);
    send(stride, 1);
    while (!receiver.ready() && Clock::now() < limit)
        for (Neighbourhood& n : pair.at) n.engine->poll();
    REQUIRE(receiver.ready());
    REQUIRE(std::ranges::count(slots, std::byte{7}) == stride);
    send(stride + 1, 2);
    std::string what;
    while (what.empty() && Clock::now() < limit) {
        for (int r = 0; r < 2; ++r) {
            try {
                pair.at[r].engine->poll();
            } catch (const Error& error) {
                REQUIRE(error.code() == tuttiRemoteError);
                if (r == 1) what = error.what();  // the sender may be the first to notice that all is over
            }
        }
    }
    CAPTURE(what);
    REQUIRE(what.find("rank 1 lost its connection with rank 0 (") == 0);
    REQUIRE(what.find("it has sent a message that is longer than a slot") != std::string::npos);
    REQUIRE(std::ranges::count(slots, std::byte{7}) == stride);
}

TEST_CASE("a port that nobody opens is named, and the interface that was tried") {
    Neighbourhood n;
    n.session = std::make_shared<harness::MapSession>(0, std::make_shared<harness::MapSession::Offers>());
    n.arena = Arena::make(2, false);
    n.engine = open_engine({{bootstrap::Address::loopback()}});
    bootstrap::Address closed = bootstrap::Address::loopback();
    closed.port = 1;
    for (const bootstrap::Address& port : {n.engine->addresses().front(), closed})
        n.infos.push_back({host_id(), process_id(), 0, getpid(), TUTTI_VERSION_CODE, {port}});
    n.engine->start(n, std::chrono::seconds(5));
    const auto link = find_transport("tcp")->connect(n, 1, Clock::now() + std::chrono::seconds(5));
    std::string what;
    for (const Deadline limit = Clock::now() + std::chrono::minutes(2); what.empty() && Clock::now() < limit;) {
        try {
            n.engine->poll();
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        } catch (const Error& error) {
            what = error.what();
        }
    }
    CAPTURE(what);
    REQUIRE(what.find("rank 0 can't connect to rank 1: no connection to 127.0.0.1:1: ") == 0);
    REQUIRE(what.find("(from lo, 127.0.0.1:") != std::string::npos);
    REQUIRE(what.find("TUTTI_SOCKET_IFNAME") != std::string::npos);
}

namespace {

/// Accepts a connection that has authenticated, as the peer of a Reception.
class Porter : public bootstrap::ConnectionUser {
  public:
    std::atomic<bool> accepted = false, lost = false;
    std::shared_ptr<bootstrap::Connection> visitor;

  private:
    void opened(bootstrap::Connection& connection) override { visitor = connection.shared_from_this(); }
    void received(bootstrap::Connection& connection, bootstrap::Message&, Fd) override {
        connection.recognise();
        connection.send(bootstrap::Accepted{Cipher::none});
        accepted = true;
    }
    void closed(bootstrap::Connection&, const bootstrap::Loss&) override { lost = true; }
};

}  // namespace

TEST_CASE("a connection that is accepted when its engine has gone does not stay") {
    const auto service = bootstrap::Service::get();
    const Secret secret = Secret::random();
    Porter porter;
    std::shared_ptr<bootstrap::Listener> port;
    const auto reception =
        std::make_shared<Reception>(std::weak_ptr<net::Engine>(), *service, 0, secret, 2, std::chrono::seconds(5));
    service->run([&] {
        port = bootstrap::Listener::open(*service, porter, bootstrap::Address::loopback(), secret,
                                         std::uint64_t{1} << 33 | 1);  // rank 1's
        reception->dial(1, {port->address()}, true);
    });
    const Deadline limit = Clock::now() + std::chrono::seconds(5);
    while (!porter.lost && Clock::now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(porter.accepted);
    CHECK(porter.lost);
    service->run([&] {
        reception->close();
        port->close();
        if (porter.visitor) porter.visitor->close();
    });
}
