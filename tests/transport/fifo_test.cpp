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
    const std::shared_ptr<Arena> arena = Arena::make(readers + 1, false);
    WakeUp wake_ups[readers] = {};
    for (const std::uint32_t first : {0u, 0xfffffff8u}) {
        for (const bool slots : {false, true}) {
            CAPTURE(first, slots);
            std::vector<Wire> wires;
            std::vector<Receiver> receivers;
            for (std::size_t r = 0; r < readers; ++r) {
                wires.push_back(arena->wire_to_all(0, static_cast<Rank>(r) + 1, slots, &wake_ups[r]));
                wires.back().credits() = first;
                receivers.emplace_back(wires.back(), first);
            }
            for (Cell& cell : wires.front().fifo->cells) cell.turn = first;
            Sender sender(wires, first);
            const std::uint32_t depth = slots ? slot_depth : fifo_depth;
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

TEST_CASE("slots are used again as soon as they are free, and messages under way have different ones") {
    const std::shared_ptr<Arena> arena = Arena::make(2, false);
    WakeUp wake_up{};
    std::mt19937 random(seed());
    for (const std::uint32_t first : {0u, 3u, 0xfffffff5u}) {
        const Wire plain = arena->wire(1, static_cast<int>(first % 3), &wake_up);
        plain.credits() = first;
        for (Cell& cell : plain.fifo->cells) cell.turn = first;
        Sender sender(plain.taking_numbers(), first);
        Receiver receiver(plain, first);
        sender.keep_slots_hot();
        std::deque<const std::byte*> under_way;
        for (std::uint32_t m = 0; m < 400; ++m) {
            CAPTURE(first, m);
            while (!under_way.empty() && (!sender.ready(true) || random() % 2 == 0)) {
                std::uint32_t got = 0;
                REQUIRE(receiver.slot() == under_way.front());
                std::memcpy(&got, receiver.slot(), sizeof got);
                REQUIRE(got == m - static_cast<std::uint32_t>(under_way.size()));
                receiver.release();
                under_way.pop_front();
            }
            REQUIRE(sender.ready(true));
            sender.recycle();
            if (under_way.empty()) REQUIRE(sender.slot() == plain.slots);
            REQUIRE(std::ranges::find(under_way, sender.slot()) == under_way.end());
            under_way.push_back(sender.slot());
            std::memcpy(sender.slot(), &m, sizeof m);
            sender.commit(Kind::slot, sizeof m, 1);
        }
    }
}

TEST_CASE("slots have the numbers of their messages where the reader knows no others") {
    LinkedPair pair = join(local_transport());
    Wire wire = pair.link[0]->outlet(0);
    REQUIRE(wire.takes_numbers);
    wire.takes_numbers = false;  // as to a kernel, or to an engine
    Sender sender(wire);
    sender.keep_slots_hot();
    Receiver receiver(pair.link[1]->inlet(0));
    for (std::uint32_t m = 0; m < 2 * slot_depth; ++m) {
        REQUIRE(sender.ready(true));
        sender.recycle();
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
