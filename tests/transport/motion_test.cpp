// What a link over TCP tells of bytes that move: Link::motion().
#include <cstring>
#include <thread>

#include "harness/catch.hpp"
#include "links.hpp"
#include "relay.hpp"

using namespace tutti;
using namespace tutti::harness;
using std::chrono::milliseconds;

namespace {

void until(const std::function<bool()>& is_so) {
    for (const Deadline limit = Clock::now() + std::chrono::seconds(20); !is_so() && Clock::now() < limit;)
        std::this_thread::sleep_for(milliseconds(1));
}

}  // namespace

TEST_CASE("a link tells both ranks that bytes move, also those that only kernels have any more, and that none do") {
    Relay relay([](int) { return Relay::for_good; });
    LinkedPair pair = harness::join(*find_transport("tcp"), {}, true, true, std::chrono::seconds(60),
                                    [&](const bootstrap::Address& address) {
                                        relay.lead_to(address);
                                        return relay.address();
                                    });
    Sender sender(pair.link[1]->outlet(0));
    Receiver receiver(pair.link[0]->inlet(0));
    sender.commit(Kind::inlined, 0, 1);
    until([&] { return receiver.ready(); });
    receiver.release();
    until([&] { return sender.drained(); });
    REQUIRE(sender.drained());

    struct Both {
        std::uint64_t reader, writer;
        bool operator==(const Both&) const = default;
    };
    const auto motion = [&] { return Both{pair.link[0]->motion(), pair.link[1]->motion()}; };
    // Once it has not changed for a while.
    const auto settled = [&] {
        Both last{};
        until([&] {
            const Both before = std::exchange(last, motion());
            std::this_thread::sleep_for(milliseconds(100));
            return before == last;
        });
        return last;
    };
    relay.hold(true);
    std::this_thread::sleep_for(milliseconds(20));  // until it has seen that
    const Both before = settled();
    for (std::uint32_t i = 0; i < slot_depth; ++i) {
        std::memset(sender.slot(), 1, slot_bytes);
        sender.commit(Kind::slot, slot_bytes, i + 2);
    }
    const Both sent = settled();
    CHECK(sent.writer != before.writer);
    CHECK(sent.reader == before.reader);
    CHECK(motion() == sent);
    relay.hold(false);
    until([&] { return motion().writer != sent.writer && motion().reader != sent.reader; });
    CHECK(motion().writer != sent.writer);  // although the reader has given no credit
    CHECK(motion().reader != sent.reader);
    until([&] { return receiver.ready(); });
    CHECK(receiver.ready());
}

TEST_CASE("where ranks see each other's memory nothing is on its way") {
    const LinkedPair pair = harness::join(*find_transport("shm"));
    Sender sender(pair.link[1]->outlet(0));
    const std::uint64_t before = pair.link[1]->motion();
    sender.commit(Kind::inlined, 0, 1);
    CHECK(pair.link[1]->motion() == before);
}
