#include "bootstrap/frame.hpp"

#include <algorithm>

#include "support.hpp"

namespace tutti::test {
namespace {

using namespace bootstrap;

Member some_member(Rank rank) {
    Member m;
    m.rank = rank;
    m.pid = 4711;
    m.uid = 1000;
    m.host = 0x123456789abcdef0;
    m.host_name = "node7.example.org";
    m.local = Address::local({});
    m.remote.family = Address::Family::ipv6;
    m.remote.port = 29500;
    return m;
}

std::vector<Message> one_of_each() {
    return {Register{8, some_member(3)},
            Parent{some_member(0)},
            Settled{},
            Attach{8, 3, true},
            Welcome{},
            Record{some_member(0), Bytes(1024, std::byte{7}), Secret(Bytes(Secret::size, std::byte{5}))},
            Ask{60000},
            Failure{tuttiRemoteError, 2, "rank 2 is on a silent host", 1, true, true},
            Left{{1, 2, 3}},
            Fetch{7, 1234567890123},
            Give{7, true},
            Stripe{3, 1, 4, 2, Protection::mac, 0x12345678},
            Accepted{1},
            Agree{Agree::prepare, true, true, 3, 99, {0, 5}, Bytes(invitation_size, std::byte{7}), 4, 5},
            Note{2, 7, Bytes(12, std::byte{5})}};
}

Bytes framed(const Message& message) {
    Bytes frame = encode(message);
    frame.resize(frame.size() + mac_size);
    return frame;
}

/// How many messages a stream of frames has that are written as they were read.
int read_frames(View bytes) {
    int same = 0;
    Frame frame;
    for (; split_frame(bytes, frame) == Split::complete; bytes = bytes.subspan(frame.size())) {
        const std::optional<Message> message = parse(frame.kind, frame.payload);
        same += message && std::ranges::equal(encode(*message), frame.sealed);
    }
    return same;
}

}  // namespace

TEST_CASE("every message is read as it was written") {
    for (const Message& m : one_of_each()) {
        CAPTURE(m.index());
        CHECK(read_frames(framed(m)) == 1);
    }
    Bytes stream;
    for (const Message& m : one_of_each()) append(stream, framed(m));
    CHECK(read_frames(stream) == static_cast<int>(std::variant_size_v<Message>));
    const Bytes bytes = framed(Record{some_member(5), Bytes(3, std::byte{9})});
    Frame frame;
    REQUIRE(split_frame(bytes, frame) == Split::complete);
    const auto parsed = parse(frame.kind, frame.payload);
    const Record& r = std::get<Record>(*parsed);
    CHECK(r.member.text() == "rank 5 (pid 4711 on host node7.example.org)");
    CHECK(r.member.remote == some_member(5).remote);
    CHECK(r.info == Bytes(3, std::byte{9}));
    CHECK_FALSE(r.share);
    CHECK(read_frames(framed(Record{some_member(1), {}})) == 1);
}

TEST_CASE("ranks that a job of so many does not have are found in every kind of message") {
    const auto about = [](Rank r) {
        return std::vector<Message>{Register{r + 1, some_member(r)},
                                    Parent{some_member(r)},
                                    Attach{r + 1, r, false},
                                    Record{some_member(r), {}},
                                    Left{{0, r}},
                                    Stripe{r, 0, 1, 0, Protection::none},
                                    Failure{tuttiRemoteError, r, ""},
                                    Failure{tuttiRemoteError, 0, "", r}};
    };
    for (const Message& m : about(7)) {
        CAPTURE(m.index());
        CHECK(fits(m, 8));
        CHECK_FALSE(fits(m, 7));
    }
    CHECK(fits(Failure{tuttiTimeout, -1, ""}, 1));
    for (const Rank r : {-1, ranks_limit}) {
        const Bytes frame = encode(Parent{some_member(r)});
        CHECK_FALSE(parse(static_cast<std::uint8_t>(frame[4]), View(frame).subspan(header_size)));
    }
}

TEST_CASE("rank 0's line of the table is refused without its share of the secret, and others' with one") {
    Bytes frame = encode(Record{some_member(0), {}, Secret()});
    const auto rejects = [&](std::size_t size) {
        return !parse(static_cast<std::uint8_t>(frame[4]), View(frame).subspan(header_size, size));
    };
    const std::size_t whole = frame.size() - header_size;
    CHECK_FALSE(rejects(whole));
    for (std::size_t cut = 1; cut <= Secret::size; ++cut) CHECK(rejects(whole - cut));
    frame[header_size] = std::byte{1};  // another rank's
    CHECK(rejects(whole));
}

TEST_CASE("a frame that is cut anywhere is incomplete, never wrong") {
    for (const Message& m : one_of_each()) {
        const Bytes whole = framed(m);
        Frame frame;
        for (std::size_t size = 0; size < whole.size(); ++size)
            REQUIRE(split_frame(View(whole).first(size), frame) == Split::incomplete);
    }
}

TEST_CASE("frames that are too long for their kind are refused by their header alone") {
    for (std::uint8_t kind = 0; kind < 255; ++kind)
        for (const std::uint32_t size : {1300u, 65536u, 0x7fffffffu, 0xffffffffu}) {
            Bytes header;
            Writer w(header);
            w.number(size);
            w.number(kind);
            header.resize(header_size);
            Frame frame;
            REQUIRE(split_frame(header, frame) == Split::bad);
        }
}

TEST_CASE("texts of peers can't play tricks on a terminal") {
    const Bytes bytes = framed(Failure{tuttiInternalError, 1, "\x1b[2Jgone\n\x7f"});
    Frame frame;
    REQUIRE(split_frame(bytes, frame) == Split::complete);
    CHECK(std::get<Failure>(*parse(frame.kind, frame.payload)).text == "?[2Jgone??");
}

TEST_CASE("both sides of a handshake come to the same keys, and nobody else") {
    start_crypto();
    const Secret secret = Secret::random();
    const auto meet = [](Handshake& a, Handshake& b) {
        REQUIRE((a.read_hello(b.hello()) && b.read_hello(a.hello())));
        return a.check_proof(b.proof()) && b.check_proof(a.proof());
    };
    Handshake i(secret, 1, true), r(secret, 1, false);
    REQUIRE(meet(i, r));
    Seal sending = i.outgoing(), receiving = r.incoming(), other = r.outgoing();
    const Bytes frame(100, std::byte{1});
    auto seal = sending.next(frame);
    CHECK(receiving.opens(frame, seal));
    CHECK(!receiving.opens(frame, seal));  // repeated
    CHECK(!other.opens(frame, sending.next(frame)));
    Handshake outsider(Secret::random(), 1, true), elsewhere(secret, 2, true), twin(secret, 1, true);
    Handshake r2(secret, 1, false), r3(secret, 1, false), mirror(secret, 1, true);
    CHECK(!meet(outsider, r2));
    CHECK(!meet(elsewhere, r3));
    CHECK(!meet(twin, mirror));  // two of the same role: a proof can't be reflected
}

}  // namespace tutti::test
