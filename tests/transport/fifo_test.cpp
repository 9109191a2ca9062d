// FIFOs by themselves: several readers, and numbers that wrap around.
#include "transport/fifo.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "links.hpp"

using namespace tutti;
using namespace tutti::harness;

TEST_CASE("a message to all is there for each of them, and the slowest holds the writer back") {
    constexpr std::size_t readers = 3;
    std::vector<std::shared_ptr<Arena>> arenas;
    for (std::size_t r = 0; r <= readers; ++r) arenas.push_back(Arena::make(readers + 1, false));
    WakeUp wake_ups[readers] = {};
    for (const std::uint32_t first : {0u, 0xfffffff8u}) {
        for (const bool slots : {false, true}) {
            CAPTURE(first, slots);
            std::vector<Wire> wires;
            std::vector<Receiver> receivers;
            for (std::size_t r = 0; r < readers; ++r) {
                wires.push_back(arenas[0]->wire_to_all(0, *arenas[r + 1], slots, &wake_ups[r]));
                wires.back().credits() = first;
                receivers.emplace_back(wires.back(), first);
            }
            for (Cell& cell : std::span(wires.front().ring, depth_to_all)) cell.turn = first;
            Sender sender(wires, first);
            const std::uint32_t depth = slots ? slot_depth : depth_to_all;
            for (std::uint32_t m = 0; m < depth; ++m) {
                REQUIRE(sender.ready(slots));
                std::memcpy(slots ? sender.slot() : sender.cell().payload, &m, sizeof m);
                sender.commit(slots ? Kind::slot : Kind::inlined, sizeof m, 1);
            }
            REQUIRE(!sender.ready(slots));
            for (const std::size_t r : {2u, 0u, 1u}) {
                REQUIRE(!sender.drained(r));
                for (std::uint32_t m = 0, got = 0; m < depth; ++m) {
                    REQUIRE(receivers[r].ready());
                    std::memcpy(&got, slots ? receivers[r].slot() : receivers[r].cell().payload, sizeof got);
                    REQUIRE(got == m);
                    receivers[r].release();
                    REQUIRE(sender.ready(slots) == (r == 1));
                    REQUIRE((sender.slowest() == r) == (r == 1 && m + 1 < depth));
                }
                REQUIRE(sender.drained(r));
                REQUIRE(!receivers[r].ready());
            }
            for (WakeUp& wake_up : wake_ups) wake_up.sleeping = 1;
            sender.ring();
            for (const WakeUp& wake_up : wake_ups) REQUIRE(wake_up.sleeping == 0);
        }
    }
}

TEST_CASE("messages under way lie in different places, whatever their lengths") {
    struct Message {
        std::uint32_t number;
        const std::byte* begin;
        std::size_t bytes;  // 0: in the cell
    };
    const auto overlap = [](const Message& a, const Message& b) {
        return a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
    };
    const std::shared_ptr<Arena> arenas[] = {Arena::make(3, false), Arena::make(3, false), Arena::make(3, false)};
    WakeUp wake_up{};
    std::mt19937 random(seed());
    for (const std::uint32_t first : {0u, 3u, 0xfffffff5u}) {
        for (const int readers : {1, 2}) {
            for (const bool hot : {false, true}) {
                const int channel = static_cast<int>(first % 3);
                std::vector<Wire> wires;
                std::vector<Receiver> receivers;
                for (Rank r = 1; r <= readers; ++r) {
                    wires.push_back(arenas[0]->wire_to_all(0, *arenas[r], channel, &wake_up).taking_places());
                    wires.back().credits() = first;
                    receivers.emplace_back(wires.back(), first);
                }
                for (Cell& cell : std::span(wires.front().ring, depth_to_all)) cell.turn = first;
                Sender sender(wires, first);
                if (hot) sender.keep_slots_hot();
                std::deque<Message> under_way;
                std::size_t most = 0, bytes = 0;
                const auto read = [&] {
                    const Message& m = under_way.front();
                    for (Receiver& receiver : receivers) {
                        REQUIRE(receiver.ready());
                        std::uint32_t got = m.number;
                        if (m.bytes > 0) {
                            REQUIRE(receiver.slot() == m.begin);
                            REQUIRE(receiver.holds(m.bytes));
                            std::memcpy(&got, receiver.slot() + m.bytes - sizeof got, sizeof got);
                        }
                        REQUIRE(got == m.number);
                        receiver.release();
                    }
                    under_way.pop_front();
                };
                for (std::uint32_t m = 0; m < 2000; ++m) {
                    CAPTURE(first, readers, hot, m, bytes);
                    constexpr std::size_t lengths[] = {8, 60, 1000, 1024, 1025, 16384, 16385, 32768, 40000, slot_bytes};
                    const bool unread = m >= 1000 && m < 1000 + 2 * fifo_depth;  // so many are under way for certain
                    if (random() % 8 == 0) bytes = lengths[random() % std::size(lengths)];
                    if (unread) bytes = 8;
                    if (random() % 64 == 0) sender.begin({}, random() % 2 == 0);
                    while (!under_way.empty() && (!sender.ready_for(bytes) || (!unread && random() % 4 == 0))) read();
                    REQUIRE(sender.ready_for(bytes));
                    Message message{m, nullptr, 0};
                    if (bytes > inline_bytes) {
                        sender.place(bytes);
                        message = {m, sender.slot(), bytes};
                        if (hot && readers == 1 && bytes >= reference_bytes && under_way.empty())
                            REQUIRE(message.begin == wires.front().slots);
                        REQUIRE(message.begin + bytes <= wires.front().slots + slot_depth * slot_stride);
                        for (const Message& other : under_way) REQUIRE_FALSE(overlap(message, other));
                        std::memcpy(sender.slot() + bytes - sizeof m, &m, sizeof m);
                    }
                    sender.commit(bytes > inline_bytes ? Kind::slot : Kind::inlined, static_cast<std::uint32_t>(bytes),
                                  1);
                    under_way.push_back(message);
                    most = std::max(most, under_way.size());
                }
                REQUIRE(most > fifo_depth);
            }
        }
    }
}

TEST_CASE("as many messages can be under way as have places of their own") {
    enum class To { peer, kernel, all, two };
    const auto under_way_of = [](To to, std::size_t bytes, bool streams = false) {
        const std::shared_ptr<Arena> arena = Arena::make(2, false);
        WakeUp wake_up{};
        const bool to_all = to == To::all || to == To::two;
        const Wire wire = to_all ? arena->wire_to_all(0, *arena, 0, &wake_up) : arena->wire(1, 0, &wake_up);
        Sender sender(std::vector(to == To::two ? 2 : 1, to == To::kernel ? wire : wire.taking_places()));
        sender.begin({}, streams);
        std::uint32_t under_way = 0;
        for (; sender.ready_for(bytes); ++under_way) {
            if (bytes > inline_bytes) sender.place(bytes);
            sender.commit(bytes > inline_bytes ? Kind::slot : Kind::inlined, 8, 1);
            if (under_way == 0 && bytes > inline_bytes) wire.credits() = 1;  // now all lie alike
            REQUIRE(under_way <= depth_to_all);
        }
        return bytes > inline_bytes ? under_way - 1 : under_way;
    };
    for (const bool streams : {false, true}) {
        CHECK(under_way_of(To::peer, 48, streams) == 16);
        CHECK(under_way_of(To::peer, 49, streams) == 16);
        CHECK(under_way_of(To::peer, 16 * 1024, streams) == 16);
        CHECK(under_way_of(To::peer, 32 * 1024, streams) == (streams ? 16 : 8));
        CHECK(under_way_of(To::peer, 64 * 1024, streams) == (streams ? 16 : 4));
        CHECK(under_way_of(To::peer, 64 * 1024 + 1, streams) == (streams ? 8 : 4));
        CHECK(under_way_of(To::peer, slot_bytes, streams) == 4);
        CHECK(under_way_of(To::kernel, 48, streams) == 16);
        CHECK(under_way_of(To::kernel, 49, streams) == 4);  // to engines, too
        CHECK(under_way_of(To::all, 48, streams) == 64);
        CHECK(under_way_of(To::all, 49, streams) == (streams ? 64 : 16));
        CHECK(under_way_of(To::all, 4 * 1024, streams) == (streams ? 64 : 16));
        CHECK(under_way_of(To::all, 8 * 1024, streams) == (streams ? 64 : 16));
        CHECK(under_way_of(To::all, 16 * 1024, streams) == (streams ? 64 : 16));
        CHECK(under_way_of(To::two, 4 * 1024, streams) == (streams ? 64 : 16));
        CHECK(under_way_of(To::two, 8 * 1024, streams) == (streams ? 32 : 16));
        CHECK(under_way_of(To::two, 16 * 1024, streams) == 16);
        CHECK(under_way_of(To::all, slot_bytes, streams) == 4);
    }
}

TEST_CASE("slots have the numbers of their messages where the reader knows no others") {
    LinkedPair pair = join(local_transport());
    Wire wire = pair.link[0]->outlet(0);
    REQUIRE(wire.takes_places);
    wire.takes_places = false;  // as to a kernel, or to an engine
    Sender sender(wire);
    sender.keep_slots_hot();
    Receiver receiver(pair.link[1]->inlet(0));
    for (std::uint32_t m = 0; m < 2 * slot_depth; ++m) {
        REQUIRE(sender.ready_for(1000));
        sender.place(1000);
        REQUIRE(sender.slot() == wire.slots + m % slot_depth * wire.stride);
        sender.commit(Kind::slot, 8, 1);
        REQUIRE(receiver.cell().kind == Kind::slot);
        receiver.release();
    }
}

TEST_CASE("message numbers wrap around, and nothing waits for a reference that never was") {
    for (const std::uint32_t first : {0x7fffffe0u, 0xffffffe0u}) {
        for (const bool refers : {false, true}) {
            CAPTURE(first, refers);
            LinkedPair pair = join(local_transport());
            pair.link[0]->outlet(0).fifo->released = first;
            Sender sender(pair.link[0]->outlet(0), first);
            Receiver receiver(pair.link[1]->inlet(0), first);
            for (int m = 0; m < 40; ++m) {
                receiver.post(0, {0, 0}, 100);
                REQUIRE(sender.posted_receive() != nullptr);
                REQUIRE(!receiver.ready());
                REQUIRE(sender.ready(true));
                sender.commit(refers ? Kind::reference : Kind::inlined, 0, 1);
                REQUIRE(sender.settled() == !refers);
                REQUIRE(receiver.ready());
                REQUIRE(!sender.drained());
                receiver.release();
                REQUIRE(sender.drained());
                REQUIRE(sender.settled());
            }
            for (std::uint32_t m = 0; m < fifo_depth; ++m) {
                REQUIRE(sender.ready(false));
                sender.commit(Kind::inlined, 0, 1);
                REQUIRE(sender.settled());
            }
            REQUIRE(!sender.ready(false));
        }
    }
}

TEST_CASE("an offered place is not taken again when the message numbers have gone round") {
    for (const bool landed : {false, true}) {
        LinkedPair pair = join(local_transport());
        Sender sender(pair.link[0]->outlet(0));
        Receiver receiver(pair.link[1]->inlet(0));
        receiver.post(1, {0, 0}, 100);
        for (int m = 0; m < 2; ++m) {
            REQUIRE((sender.posted_receive() != nullptr) == (m == 1));
            sender.commit(m == 1 && landed ? Kind::landed : Kind::inlined, 100, 1);
            REQUIRE(receiver.ready());
            receiver.release();
        }
        // The state 2^32 messages later, if no receive was posted here for any of them.
        const Sender again(pair.link[0]->outlet(0), 1);
        REQUIRE(again.posted_receive() == nullptr);
    }
}
