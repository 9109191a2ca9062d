// InfiniBand without any: what is decided on tables, and two ends of a connection over mock adapters. The same
// endpoint runs the conformance suite, over these adapters everywhere and over real ones where there are some.
#include <sys/resource.h>

#include <cstring>

#include "base/result.hpp"
#include "fake_verbs.hpp"
#include "harness/catch.hpp"
#include "transport/regions.hpp"
#include "transport/verbs/endpoint.hpp"
#include "transport/verbs/trouble.hpp"
#include "verbs_ends.hpp"

using namespace tutti;
using harness::Ends, harness::error_of, harness::fake_verbs, harness::has, harness::message;
using net::Header, net::What;

namespace {

verbs::Gid gid(int index, verbs::Gid::Kind kind, std::initializer_list<int> begin, std::initializer_list<int> end) {
    verbs::Gid g{index, kind, {}};
    std::copy(begin.begin(), begin.end(), g.bytes.begin());
    std::copy(end.begin(), end.end(), g.bytes.end() - static_cast<std::ptrdiff_t>(end.size()));
    return g;
}

verbs::Gid ipv4(int index, verbs::Gid::Kind kind, int first) {
    return gid(index, kind, {}, {0xff, 0xff, first, first == 169 ? 254 : 1, 2, 3});
}

}  // namespace

TEST_CASE("RoCE v2 over IPv4 is preferred to what is older, longer or local") {
    using Kind = verbs::Gid::Kind;
    const verbs::Gid local1 = gid(0, Kind::roce1, {0xfe, 0x80}, {1}), local2 = gid(1, Kind::roce2, {0xfe, 0x80}, {1}),
                     v1 = ipv4(2, Kind::roce1, 10), v2 = ipv4(3, Kind::roce2, 10), again = ipv4(5, Kind::roce2, 11),
                     v6 = gid(4, Kind::roce2, {0x20, 0x01}, {1}), zero_conf = ipv4(6, Kind::roce2, 169);
    const std::vector<verbs::Gid> all{local1, local2, v1, zero_conf, again, v6, v2};
    REQUIRE(verbs::choose_gid(all, -1)->index == 3);
    REQUIRE(verbs::choose_gid(all, 4)->index == 4);
    REQUIRE(verbs::choose_gid(all, 9) == nullptr);
    REQUIRE(verbs::choose_gid({}, -1) == nullptr);
    REQUIRE(verbs::choose_gid(std::vector{local1, v1, v6, local2}, -1)->index == 4);
    REQUIRE(verbs::choose_gid(std::vector{local1, v1, local2}, -1)->index == 1);
    REQUIRE(verbs::choose_gid(std::vector{zero_conf, v6}, -1)->index == 4);
    REQUIRE(v2.text() == "10.1.2.3");
    REQUIRE(local2.text() == "fe80::1");
    const verbs::Gid port = gid(0, Kind::infiniband, {0xfe, 0x80}, {1}), alias = gid(1, Kind::infiniband, {0xfe}, {2});
    REQUIRE(verbs::choose_gid(std::vector{alias, port}, -1)->index == 0);
    REQUIRE(port.fabric() != alias.fabric());
    REQUIRE(v2.fabric() == again.fabric());
    REQUIRE(v2.fabric() != v1.fabric());
    REQUIRE(v2.fabric() != v6.fabric());
}

TEST_CASE("adapters are chosen by name and port, or refused with the reason") {
    struct Row {
        const char* list;
        const char* device;
        int port;
        bool allowed;
    };
    for (const Row& r :
         {Row{"", "mlx5_0", 1, true}, Row{"mlx5", "mlx5_11", 2, true}, Row{"mlx5_1", "mlx5_11", 1, true},
          Row{"=mlx5_1", "mlx5_11", 1, false}, Row{"=mlx5_1", "mlx5_1", 2, true}, Row{"mlx5_0:2", "mlx5_0", 1, false},
          Row{"mlx5_0:2", "mlx5_0", 2, true}, Row{"^mlx5_0", "mlx5_0", 1, false}, Row{"^mlx5_0", "mlx5_1", 1, true},
          Row{"^=mlx5_1", "mlx5_11", 1, true}, Row{"^=mlx5_1:1,rxe0", "mlx5_1", 1, false},
          Row{"rxe0,,rxe1", "rxe1", 1, true}, Row{"rxe0,rxe1", "mlx5_0", 1, false}}) {
        CAPTURE(r.list, r.device, r.port);
        REQUIRE(verbs::HcaList(r.list).allows(r.device, r.port) == r.allowed);
    }
    for (const char* bad : {"mlx5_0:", "mlx5_0:x", "mlx5_0:1x", "mlx5_0:0", "a,b:-1"})
        REQUIRE(has(error_of([&] { verbs::HcaList list(bad); }), "TUTTI_IB_HCA"));
}

TEST_CASE("no port to use is a reason that names each") {
    const harness::FakeVerbsReset reset;
    verbs::Net good(harness::fake_library, {});
    REQUIRE(good.fabric() == 1);
    REQUIRE(good.absence().empty());
    const auto absence = [](const verbs::Wish& wish) {
        verbs::Net net(harness::fake_library, wish);
        REQUIRE(net.fabric() == 0);
        return net.absence();
    };
    REQUIRE(has(absence({"mlx5"}), "fake0 port 1 is not among TUTTI_IB_HCA"));
    REQUIRE(has(absence({"", 2}), "fake1 port 1 is without an address of index 2 (TUTTI_IB_GID_INDEX)"));
    REQUIRE(has(absence({"", -1, true}), "NCCL_IB_DISABLE"));
    fake_verbs().state = IBV_PORT_DOWN;
    REQUIRE(has(absence({}), "fake0 port 1 is down, fake1 port 1 is down"));
    fake_verbs().state = IBV_PORT_INIT;
    REQUIRE(has(absence({}), "subnet manager"));
    fake_verbs().adapters = 0;
    REQUIRE(has(absence({}), "no InfiniBand or RoCE adapter"));
    verbs::Net broken([]() -> const verbs::Library* { fail(tuttiSystemError, "no library"); }, {});
    REQUIRE(broken.fabric() == 0);
    REQUIRE(broken.absence() == "no library");
    verbs::Net nothing([]() -> const verbs::Library* { return nullptr; }, {});
    REQUIRE(nothing.fabric() == 0);
    REQUIRE(has(nothing.absence(), "no InfiniBand or RoCE adapter"));
}

TEST_CASE("messages are written to their slots, with and without data in the requests") {
    const harness::FakeVerbsReset reset;
    fake_verbs().inline_bytes = GENERATE(256U, 0U);
    fake_verbs().infiniband = GENERATE(false, true);
    verbs::Net net(harness::fake_library, {});
    Ends ends(net);
    std::uint32_t sent = 0, of_channel[3] = {};
    for (int round = 0; round < 300; ++round) {  // more than a ring has frames
        const int channel = round % 3;
        for (const std::size_t size : {std::size_t{8}, slot_bytes, std::size_t{0}, std::size_t{4097}}) {
            if (round >= 3 && size == slot_bytes) continue;
            const Wire wire = ends.mine[0]->wire(1, channel, nullptr);
            std::byte* const body = wire.slots + of_channel[channel]++ % slot_depth * slot_stride;
            std::memset(body, static_cast<int>(sent * 7 + 1), size);
            REQUIRE(ends.end[0]->has_room());
            ends.end[0]->queue(message(size, ++sent, channel), body);
            ends.move();
            REQUIRE(ends.end[1]->trouble().empty());
            REQUIRE(ends.reader[1]->seen.size() == sent);
            REQUIRE(ends.reader[1]->seen.back().signature == sent);
            REQUIRE(std::memcmp(ends.reader[1]->place, body, size) == 0);
        }
    }
    while (!ends.end[0]->is_empty()) ends.move();
    REQUIRE(ends.end[0]->trouble().empty());
    const std::string address = fake_verbs().infiniband ? " port 1 (fe80::1)" : " port 1 (10.1.2.3)";
    REQUIRE(ends.end[0]->describe() ==
            "fake0" + address + " to fake0" + address + ", fake1" + address + " to fake1" + address);
}

TEST_CASE("peers can write to rings of headers, slots, and places of messages; to nothing else") {
    const harness::FakeVerbsReset reset;
    fake_verbs().adapters = 1;
    fake_verbs().inline_bytes = GENERATE(256U, 0U);  // 0: headers are sent from memory
    verbs::Net net(harness::fake_library, {});
    Ends ends(net);
    constexpr std::size_t bytes = 65536;
    auto* const sent = static_cast<std::byte*>(allocate_region(bytes));
    auto* const wanted = static_cast<std::byte*>(allocate_region(bytes));
    const Wire out = ends.mine[0]->wire(1, 0, nullptr), in = ends.inbox[1]->wire(0, 0, nullptr);
    std::memset(out.slots, 1, 1000);
    ends.end[0]->queue(message(1000, 1), out.slots);
    REQUIRE(ends.end[0]->knows(sent, bytes));
    ends.end[0]->put(message(bytes, 2), sent, out.slots + slot_stride, nullptr);
    ends.move();
    REQUIRE(ends.reader[1]->seen.size() == 2);

    for (int channel = 0; channel < channels_per_link; ++channel)
        CHECK(harness::peers_can_write(ends.inbox[1]->wire(0, channel, nullptr).slots, slot_depth * slot_stride));
    CHECK_FALSE(harness::peers_can_write(&ends.inbox[1]->page(), 1));
    CHECK_FALSE(harness::peers_can_write(&in.fifo->cells[0], 1));
    CHECK_FALSE(harness::peers_can_write(&in.fifo->posted_receives[fifo_depth - 1], 1));
    REQUIRE(harness::key_to(out.slots) != 0);  // it was sent from
    CHECK_FALSE(harness::peers_can_write(out.slots, 1));
    CHECK_FALSE(harness::peers_can_write(&ends.mine[0]->page(), 1));
    REQUIRE(harness::key_to(sent) != 0);
    CHECK_FALSE(harness::peers_can_write(sent, 1));
    REQUIRE(ends.end[1]->knows(wanted, bytes));
    CHECK_FALSE(harness::peers_can_write(wanted, 1));  // until a message is to be written there
    const net::RemoteMemory place = ends.end[1]->expose(0, wanted, bytes);
    CHECK(harness::peers_can_write(wanted, bytes));

    SECTION("a place that was given is written to") {
        std::memset(sent, 5, bytes);
        Header landed = message(bytes, 3);
        landed.what = What::landed;
        landed.in_slot = 0;
        ends.end[0]->put(landed, sent, out.slots + 2 * slot_stride, &place);
        ends.end[0]->receive(*ends.reader[0]);
        CHECK(ends.end[0]->trouble().empty());
        CHECK(wanted[bytes - 1] == std::byte{5});
    }
    SECTION("what only the peer's own adapter reads is not, whoever has its key") {
        std::byte* const theirs = ends.mine[1]->wire(0, 0, nullptr).slots;
        ends.end[1]->queue(message(1000, 1), theirs);
        const net::RemoteMemory stolen{reinterpret_cast<std::uintptr_t>(theirs), 1000, harness::key_to(theirs)};
        std::memset(out.slots + 2 * slot_stride, 9, 1000);
        ends.end[0]->put(message(1000, 3), out.slots + 2 * slot_stride, out.slots + 2 * slot_stride, &stolen);
        ends.end[0]->receive(*ends.reader[0]);
        CHECK_FALSE(ends.end[0]->trouble().empty());
        CHECK(theirs[0] != std::byte{9});
    }
    SECTION("nor is the page beside the slots by the key of these") {
        RankPage& page = ends.inbox[1]->page();
        const net::RemoteMemory beside{reinterpret_cast<std::uintptr_t>(&page), 1000, harness::key_to(in.slots)};
        std::memset(out.slots + 2 * slot_stride, 9, 1000);
        ends.end[0]->put(message(1000, 3), out.slots + 2 * slot_stride, out.slots + 2 * slot_stride, &beside);
        ends.end[0]->receive(*ends.reader[0]);
        CHECK_FALSE(ends.end[0]->trouble().empty());
        CHECK(page.wake_up.word == 0);
    }
    ends.end[0].reset();
    ends.end[1].reset();
    free_region(sent);
    free_region(wanted);
}

TEST_CASE("channels are dealt to the ports that both ends have, and a farewell is one by all of them") {
    const harness::FakeVerbsReset reset;
    verbs::Net both(harness::fake_library, {}), first(harness::fake_library, {"fake0"});
    struct Row {
        verbs::Net *left, *right;
        std::uint64_t broken;
        int by_first, by_second;
    };
    constexpr int all = channels_per_link, half = all / 2;
    for (const Row& row :
         {Row{&both, &both, 0, half, all - half}, Row{&both, &first, 0, all, 0}, Row{&first, &both, 0, all, 0},
          Row{&both, &both, 1, 0, all}, Row{&both, &both, 3, half, all - half}, Row{&both, &first, 1, 0, all}}) {
        CAPTURE(row.broken, row.by_first);
        Ends ends({row.left, row.right}, true, row.broken);
        const harness::FakeVerbsTally before = harness::fake_verbs_tally();
        for (int channel = 0; channel < channels_per_link; ++channel)
            ends.end[0]->queue(message(8, 1, channel), ends.mine[0]->wire(1, channel, nullptr).fifo->cells[0].payload);
        const harness::FakeVerbsTally after = harness::fake_verbs_tally();
        REQUIRE(after.writes[0] - before.writes[0] == row.by_first);
        REQUIRE(after.writes[1] - before.writes[1] == row.by_second);
        Header bye{};
        bye.what = What::bye;
        ends.end[0]->queue(bye, nullptr);
        while (ends.reader[1]->seen.size() < channels_per_link + 1) ends.move();
        ends.move();
        REQUIRE(ends.reader[1]->seen.size() == channels_per_link + 1);
        REQUIRE(ends.end[1]->trouble().empty());
    }
}

TEST_CASE("what the adapters can't do any more is trouble in words") {
    const harness::FakeVerbsReset reset;
    verbs::Net net(harness::fake_library, {});
    Ends ends(net);
    std::size_t sent = 0;
    const auto send = [&](std::size_t bytes) {
        ends.end[0]->queue(message(bytes, 1), ends.mine[0]->wire(1, 0, nullptr).slots + sent++ * slot_stride);
        ends.move();
    };
    SECTION("the cable is out") {
        fake_verbs().frames = 2;
        send(8), send(100);
        REQUIRE(ends.end[0]->trouble().empty());
        fake_verbs().state = IBV_PORT_DOWN;
        send(8);
        REQUIRE(has(ends.end[0]->trouble(), "the peer's port has not answered"));
        REQUIRE(has(ends.end[0]->trouble(), "fake1 port 1 is down: "));
        REQUIRE(ends.reader[1]->seen.size() == 2);
    }
    SECTION("the peer has gone") {
        ends.end[1].reset();
        ends.end[0]->queue(message(8, 1), ends.mine[0]->wire(1, 0, nullptr).slots);
        ends.end[0]->receive(*ends.reader[0]);
        REQUIRE(has(ends.end[0]->trouble(), "has not answered"));
    }
    SECTION("no more memory may be locked") {
        fake_verbs().registrations = 0;
        rlimit before{}, little{65536, 65536};
        getrlimit(RLIMIT_MEMLOCK, &before);
        little.rlim_max = before.rlim_max;
        setrlimit(RLIMIT_MEMLOCK, &little);
        send(100);
        setrlimit(RLIMIT_MEMLOCK, &before);
        REQUIRE(has(ends.end[0]->trouble(), "may lock 64 KiB (`ulimit -l`)"));
    }
    SECTION("frames come in another order") {
        fake_verbs().misplace = true;
        send(8);
        REQUIRE(has(ends.end[1]->trouble(), "out of order"));
    }
    SECTION("the recipient refuses") {
        ends.reader[1]->refuses = true;
        send(8);
        REQUIRE(ends.end[1]->trouble() == "fake1 port 1 (10.1.2.3) to fake1 port 1 (10.1.2.3): refused");
    }
    SECTION("a message is written to another slot than it belongs to") {
        ends.reader[1]->finish(message(100, 0));  // the reader expects the next one
        send(100);
        REQUIRE(has(ends.end[1]->trouble(), "where another one belongs"));
    }
}

TEST_CASE("a port that stays down is given up, although its adapter says nothing of what was sent") {
    const harness::FakeVerbsReset reset;
    fake_verbs().adapters = 1;
    verbs::Net net(harness::fake_library, {});
    Ends ends(net);
    ends.move();
    REQUIRE(ends.end[0]->trouble().empty());
    const auto began = Clock::now();
    harness::tell(IBV_EVENT_PORT_ERR);
    while (ends.end[0]->trouble().empty() && Clock::now() - began < std::chrono::seconds(10)) ends.move();
    REQUIRE(ends.end[0]->trouble() == "fake0 port 1 is down");
    REQUIRE(Clock::now() - began >= std::chrono::milliseconds(1000));  // its limit of silence: it might have come back
}

TEST_CASE("what an adapter reports of itself is trouble at once, and another way goes around it") {
    const harness::FakeVerbsReset reset;
    verbs::Net net(harness::fake_library, {});
    Ends ends(net);
    ends.move();
    REQUIRE(ends.end[0]->trouble().empty());
    const auto wait = [&] {
        const Deadline limit = Clock::now() + std::chrono::minutes(2);
        while (ends.end[0]->trouble().empty() && Clock::now() < limit) ends.move();
        return ends.end[0]->trouble();
    };
    SECTION("the whole adapter") {
        harness::tell(IBV_EVENT_DEVICE_FATAL, 0);
        REQUIRE(has(wait(), "fake0 has reported a fatal error"));
        Ends next({&net, &net}, true, 4);  // a port that there is not: neither has been called broken
        REQUIRE(next.end[0]->describe() == "fake1 port 1 (10.1.2.3) to fake1 port 1 (10.1.2.3)");
        next.move();
        REQUIRE(next.end[0]->trouble().empty());
    }
    SECTION("which is no time to sleep") {
        harness::tell(IBV_EVENT_DEVICE_FATAL, 0);
        const Deadline limit = Clock::now() + std::chrono::minutes(2);
        while (ends.end[0]->arm() && ends.end[0]->trouble().empty() && Clock::now() < limit) {
        }
        CHECK(has(ends.end[0]->trouble(), "fake0 has reported a fatal error"));
        CHECK_FALSE(ends.end[0]->arm());
    }
    SECTION("every adapter") {
        harness::tell(IBV_EVENT_DEVICE_FATAL);
        REQUIRE(has(wait(), "has reported a fatal error"));
        const Deadline limit = Clock::now() + std::chrono::minutes(2);
        std::string why;
        while (why.find("no port can be used") == std::string::npos && Clock::now() < limit)
            why = error_of([&] { Ends again(net); });
        REQUIRE(has(why, "no port can be used any more"));
    }
    SECTION("a queue pair, or its completion queue") {
        harness::tell(GENERATE(IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_CQ_ERR), 0);
        REQUIRE(has(wait(), "fake0 has reported: an event"));
        Ends next({&net, &net}, true, ends.end[0]->broken());
        next.move();
        REQUIRE(next.end[0]->trouble().empty());
    }
    SECTION("a port's address") {
        harness::fake_verbs().address = 9;
        harness::tell(IBV_EVENT_GID_CHANGE);
        REQUIRE(has(wait(), "has another address than 10.1.2.3 now"));
        const Deadline limit = Clock::now() + std::chrono::minutes(2);
        std::string now;
        while (now.find("10.1.2.3") != std::string::npos || (now.empty() && Clock::now() < limit))
            now = Ends({&net, &net}, true, 4).end[0]->describe();
        REQUIRE(has(now, "fake0 port 1 (10.1.2.9) to fake0 port 1 (10.1.2.9)"));
    }
}

TEST_CASE("an offer is looked at before it is believed") {
    const harness::FakeVerbsReset reset;
    verbs::Net net(harness::fake_library, {});
    Ends ends(net, false);
    std::vector<std::byte> offer = ends.end[1]->offer();
    REQUIRE_FALSE(ends.end[0]->has_room());
    SECTION("too short") {
        offer.pop_back();
        ends.end[0]->meet(offer);
        REQUIRE(has(ends.end[0]->trouble(), "no version offers"));
    }
    SECTION("of another version") {
        offer[0] ^= std::byte{4};
        ends.end[0]->meet(offer);
        REQUIRE(has(ends.end[0]->trouble(), "another version"));
    }
    SECTION("of another kind of network") {
        offer[offsetof(verbs::Offer, infiniband)] = std::byte{1};
        ends.end[0]->meet(offer);
        REQUIRE(has(ends.end[0]->trouble(), "InfiniBand, the other RoCE"));
    }
    SECTION("of slots that are too short for a message") {
        offer[offsetof(verbs::Offer, slot_stride) + 1] = offer[offsetof(verbs::Offer, slot_stride) + 2] = std::byte{0};
        ends.end[0]->meet(offer);
        ends.end[1]->meet(ends.end[0]->offer());
        ends.end[0]->queue(message(100, 1), ends.mine[0]->wire(1, 0, nullptr).slots);
        REQUIRE(has(ends.end[0]->trouble(), "its slots have 64 bytes, a message 100"));
    }
    SECTION("with numbers that are nobody's") {
        offer[offsetof(verbs::Offer, ring_key)] ^= std::byte{64};
        ends.end[0]->meet(offer);
        ends.end[1]->meet(ends.end[0]->offer());
        ends.end[0]->queue(message(8, 1), ends.mine[0]->wire(1, 0, nullptr).slots);
        ends.move();
        REQUIRE(has(ends.end[0]->trouble(), "refuses a write"));
    }
    REQUIRE_FALSE(ends.end[0]->trouble().empty());
}

TEST_CASE("the name of a peer's port can't play tricks on a terminal") {
    const harness::FakeVerbsReset reset;
    verbs::Net net(harness::fake_library, {});
    Ends ends(net, false);
    std::vector<std::byte> offer = ends.end[1]->offer();
    offer[offsetof(verbs::Offer, port)] = std::byte{0x1b};
    ends.end[0]->meet(offer);
    REQUIRE(has(ends.end[0]->describe(), " to ?"));
}

TEST_CASE("an adapter without queue pairs left says who may hold them") {
    const harness::FakeVerbsReset reset;
    verbs::Net net(harness::fake_library, {});
    REQUIRE(net.fabric() != 0);
    fake_verbs().pairs = 1;
    REQUIRE(has(error_of([&] { Ends ends(net); }), "makes no queue pair (it has 1000; `rdma resource` shows"));
}

TEST_CASE("every completion status has words of its own or its number") {
    for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
        const std::string words = verbs::explain(static_cast<ibv_wc_status>(status), "mlx5_0 port 1");
        REQUIRE(words.size() > 30);
    }
    REQUIRE(has(verbs::explain(IBV_WC_RETRY_EXC_ERR, "mlx5_0 port 1"), "4791"));
    REQUIRE(has(verbs::explain_registration(EINVAL, 4096, "mlx5_0"), "mlx5_0 can't register 4096 bytes: Invalid"));
}
