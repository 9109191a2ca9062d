// What an engine does in the background while its rank does nothing: all that is due, and in time. The limit of silence
// is 60 s here, so a look at silent hosts, which would find what else was forgotten, comes after 7.5 s.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <string>
#include <thread>

#ifdef TUTTI_VERBS
#include "fake_verbs.hpp"
#include "transport/verbs/net.hpp"
#endif
#include "bootstrap/service.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"
#include "links.hpp"
#include "mailbox.hpp"
#include "transport/net/engine.hpp"

using namespace tutti;
using namespace tutti::harness;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds timeout{120'000}, soon{5000};

/// Whether something() holds soon.
template <class Something>
bool comes_soon(Something&& something) {
    for (const Deadline limit = Clock::now() + soon; !something(); std::this_thread::sleep_for(milliseconds(1)))
        if (Clock::now() > limit) return false;
    return true;
}

}  // namespace

TEST_CASE("while kernels run the engine looks for them again after its rank has polled for something else") {
    LinkedPair pair = join(*find_transport("tcp"), {}, false, true, timeout);
    Engine& engine = *pair.at[0].engine;
    engine.ask([] { return true; });
    const bool by_stream = GENERATE(false, true);
    by_stream ? engine.serve(true) : engine.launched();
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[1]->inlet(0));
    for (std::uint32_t m = 1; m < 3; ++m) {
        for (const Deadline limit = Clock::now() + milliseconds(50); Clock::now() < limit;) engine.poll();
        engine.rest(false);
        std::this_thread::sleep_for(milliseconds(20));
        sender.commit(Kind::inlined, 0, m);  // as a kernel does: it does not ring
        CHECK(comes_soon([&] { return pair.at[1].engine->poll(), receiver.ready(); }));
        if (receiver.ready()) receiver.release();
    }
    if (by_stream) engine.serve(false);
    engine.ask(nullptr);
}

TEST_CASE("what a rank has left in its sockets when it stopped polling is read without it") {
    LinkedPair pair = join(*find_transport("tcp"), {}, false, true, timeout);
    std::deque<Sender> senders;
    std::deque<Receiver> receivers;
    for (int channel = 0; channel < program_channels; ++channel) {
        senders.emplace_back(pair.link[0]->outlet(channel));
        receivers.emplace_back(pair.link[1]->inlet(channel));
    }
    const auto all_arrive = [&] {
        return std::ranges::all_of(receivers, [](Receiver& receiver) { return receiver.ready(); });
    };
    const auto send_all = [&] {
        for (Sender& sender : senders) {
            REQUIRE(sender.ready(true));
            sender.commit(Kind::slot, slot_bytes, 1);
        }
    };
    for (int warm = 0; warm < 100; ++warm) {  // until the kernel takes much more than is read at a time
        send_all();
        for (const Deadline limit = Clock::now() + soon; !all_arrive() && Clock::now() < limit;)
            for (Neighbourhood& n : pair.at) n.engine->poll();
        REQUIRE(all_arrive());
        for (Receiver& receiver : receivers) receiver.release();
        for (Neighbourhood& n : pair.at) n.engine->rest(true);
        pair.at[0].engine->poll();
    }
    for (Neighbourhood& n : pair.at) n.engine->rest(true);
    harness::until_all_sleep();

    std::promise<void> held, go_on;  // the service thread comes too late to hear of what arrives
    bootstrap::Service::get()->post([&, may = go_on.get_future().share()] { held.set_value(), may.wait(); });
    held.get_future().wait();
    send_all();
    for (const Deadline limit = Clock::now() + milliseconds(300); Clock::now() < limit;) pair.at[0].engine->poll();
    pair.at[1].engine->poll();
    CHECK_FALSE(all_arrive());
    pair.at[1].engine->rest(false);
    go_on.set_value();
    CHECK(comes_soon(all_arrive));
}

#ifdef TUTTI_VERBS
TEST_CASE("kernels do not wait for the next try of a link that has failed") {
    const harness::FakeVerbsReset reset;
    verbs::Net net(harness::fake_library, {});
    const harness::NetUnderTest transport(net);
    LinkedPair pair = join(transport, {}, false, true, timeout);
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[1]->inlet(0));
    sender.commit(Kind::inlined, 0, 1);
    REQUIRE(comes_soon([&] { return pair.at[0].engine->poll(), pair.at[1].engine->poll(), receiver.ready(); }));
    receiver.release();
    harness::fake_verbs().cut_every = 1, harness::fake_verbs().cuts = 1'000'000;  // each breaks with its first message
    sender.commit(Kind::inlined, 0, 2);
    Engine& engine = *pair.at[1].engine;
    for (Neighbourhood& n : pair.at) n.engine->rest(true);
    std::atomic<int> looks{0};
    engine.ask([&] { return ++looks, false; });
    int prompt = 0;
    const Deadline failed = Clock::now();
    for (const int after : {750, 1500, 2500}) {  // in the midst of pauses of 640, 1000 and 1000 ms
        std::this_thread::sleep_until(failed + milliseconds(after));
        const Deadline launched = Clock::now();
        const int before = looks;
        engine.launched();
        REQUIRE(comes_soon([&] { return looks > before; }));
        prompt += Clock::now() - launched < milliseconds(250) ? 1 : 0;
    }
    CHECK(prompt >= 2);  // the machine may stand still
    engine.ask(nullptr);
}
#endif

TEST_CASE("a rank that does nothing tells its peer in time that a connection could not be made") {
    LinkedPair pair = join(*find_transport("tcp"), {}, false, true, timeout);
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[1]->inlet(0));
    sender.commit(Kind::inlined, 0, 1);
    REQUIRE(comes_soon([&] { return pair.at[0].engine->poll(), pair.at[1].engine->poll(), receiver.ready(); }));
    std::atomic<bool> told{false};
    pair.at[0].engine->on_loss([&](const Error&) { told = true; });
    pair.at[0].engine->rest(false);
    auto& engine = dynamic_cast<net::Engine&>(*pair.at[0].engine);
    bootstrap::Service::get()->post([&] { engine.unreachable(1, "there is no way"); });
    std::string why;
    CHECK(comes_soon([&] {
        try {
            pair.at[1].engine->poll();
        } catch (const Error& error) {
            why = error.what();
        }
        return !why.empty();
    }));
    CAPTURE(why);
    CHECK(why.find("it has given the connection up") != std::string::npos);
    CHECK(comes_soon([&] { return told.load(); }));
    pair.at[0].engine->on_loss(nullptr);
}

TEST_CASE("the thread aside, for networks whose calls may hang, leaves what the service thread watches to that") {
    struct : MailboxNet {
        using MailboxNet::MailboxNet;
        bool may_hang() const override { return true; }
    } net(true);
    const NetUnderTest transport(net);
    LinkedPair pair = join(transport, {}, false, true, timeout);
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[1]->inlet(0));
    for (Neighbourhood& n : pair.at) n.engine->rest(true);
    unsigned sent = 0, received = 0;
    CHECK(comes_soon([&] {  // as kernels, or threads beside the ranks', do: without a word to the engines
        for (unsigned turn = 0; turn < 20'000 && received < 3000; ++turn) {
            if (sender.ready(false)) sender.commit(Kind::inlined, 0, ++sent);
            for (; receiver.ready(); ++received) receiver.release();
            if (turn % 1000 == 0) pair.at[turn / 1000 % 2].engine->rest(true);
        }
        return received >= 3000;
    }));
}

TEST_CASE("a rank that computes is served by a network that tells of nothing if peers may put to it, or get from it") {
    MailboxNet net(false);
    const NetUnderTest transport(net);
    LinkedPair pair = join(transport, {}, false, true, timeout);
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[1]->inlet(0));
    int window = 0;
    pair.at[1].engine->lend(0, 1, std::as_writable_bytes(std::span(&window, 1)));
    for (std::uint32_t m = 1; m < 4; ++m) {
        pair.at[1].engine->poll();
        pair.at[1].engine->rest(false);
        std::this_thread::sleep_for(milliseconds(20));
        sender.commit(Kind::inlined, 0, m);
        REQUIRE(comes_soon([&] { return pair.at[0].engine->poll(), receiver.ready(); }));
        receiver.release();
        REQUIRE(comes_soon([&] { return pair.at[0].engine->poll(), sender.drained(); }));
    }
}

TEST_CASE("credits for which a network that tells of nothing had no room are sent once it has") {
    MailboxNet net(false);  // with room for 5 letters
    const NetUnderTest transport(net);
    LinkedPair pair = join(transport, {}, false, true, timeout);
    std::deque<Sender> senders;
    std::deque<Receiver> receivers;
    for (int channel = 0; channel < 8; ++channel) {
        senders.emplace_back(pair.link[0]->outlet(channel));
        receivers.emplace_back(pair.link[1]->inlet(channel));
        senders.back().commit(Kind::inlined, 0, 1);
    }
    REQUIRE(comes_soon([&] {
        for (Neighbourhood& n : pair.at) n.engine->poll();
        return std::ranges::all_of(receivers, [](Receiver& receiver) { return receiver.ready(); });
    }));
    pair.at[0].engine->poll();
    for (Receiver& receiver : receivers) receiver.release();
    pair.at[1].engine->rest(false);
    std::this_thread::sleep_for(milliseconds(50));  // its engine sends what there is room for
    CHECK(comes_soon([&] {
        pair.at[0].engine->poll();
        return std::ranges::all_of(senders, [](Sender& sender) { return sender.drained(); });
    }));
}
