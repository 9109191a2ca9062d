// The contract of transport.hpp, run on every transport, bare and behind the fault decorator.
#include <atomic>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#ifdef TUTTI_VERBS
#include "fake_verbs.hpp"
#include "transport/verbs/net.hpp"
#endif
#include "contents.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "links.hpp"
#include "mailbox.hpp"
#include "transport/net_plugins.hpp"
#include "transport/plugin/plugin_net.hpp"
#include "transport/regions.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

struct Subject {
    const Transport* transport;
    FaultPlan faults;
};

/// Whether a peer can see this rank's memory.
bool refers(const Transport& transport) {
    return transport.sees() != Sees::nothing;
}

/// Those that this machine has, mailboxes, network plugins of two versions of their interface, and verbs
/// over mock adapters.
std::vector<const Transport*> transports_here() {
    static harness::MailboxNet blind(false), telling(true);
    static plugin::PluginNet v8(NET_PLUGIN_8, true), v11(NET_PLUGIN_11, true);
    static const harness::NetUnderTest nets[] = {harness::NetUnderTest(blind), harness::NetUnderTest(telling),
                                                 harness::NetUnderTest(v8), harness::NetUnderTest(v11)};
    REQUIRE((v8.fabric() != 0 && v11.fabric() != 0));
    std::vector<const Transport*> here;
    for (const harness::NetUnderTest& net : nets) here.push_back(&net);
#ifdef TUTTI_VERBS
    static verbs::Net mock(harness::fake_library, {});
    static const harness::NetUnderTest over_them(mock);
    here.push_back(&over_them);
#endif
    for (const Transport* t : transports()) {
        const auto fabrics = fabrics_here(t->name());
        if (!t->needs_engine() || t->name() == "tcp" || fabrics != decltype(fabrics){}) here.push_back(t);
    }
    return here;
}

std::vector<Subject> subjects() {
    // A network delays and tears by itself.
    const std::vector<const char*> near{"1:", "7:delay=20", "3:tear=3", "11:delay=30,tear=5"}, far{near[0], near[3]};
    std::vector<Subject> all;
    for (const Transport* t : transports_here())
        for (const char* faults : t->needs_engine() ? far : near) {
            const FaultPlan plan = FaultPlan::parse(faults);
#if defined(__SANITIZE_THREAD__)
            // shm maps credits twice. The thread sanitizer takes the two addresses for different words, and the faults'
            // reading of a slot for a race with the writer that reuses it.
            if (t->name() == "shm" && plan.any()) continue;
#endif
            all.push_back({t, plan});
        }
    return all;
}

template <class Ready>
void wait_until(Ready&& ready) {
    const Deadline limit = Clock::now() + std::chrono::minutes(2);
    for (int looks = 0; !ready(); ++looks) {
        if (Clock::now() > limit) throw std::runtime_error("a message or credit did not come in two minutes");
        if (looks < 20)
            std::this_thread::yield();
        else  // many threads that yield would leave no time for the one that moves their messages
            std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

const std::size_t sizes[] = {0, 1, inline_bytes, inline_bytes + 1, 4096, 100000, slot_bytes};

void write_all(Sender& sender, std::uint32_t messages, int channel) {
    for (std::uint32_t m = 0; m < messages; ++m) {
        wait_until([&] { return sender.ready(true); });
        const std::size_t bytes = sizes[m % std::size(sizes)];
        const Kind kind = bytes <= inline_bytes ? Kind::inlined : Kind::slot;
        std::byte* to = kind == Kind::inlined ? sender.cell().payload : sender.slot();
        std::memcpy(to, contents(m, channel), bytes);
        sender.commit(kind, static_cast<std::uint32_t>(bytes), 1000 + m);
        sender.ring();
    }
}

void read_all(Receiver& receiver, std::uint32_t messages, int channel) {
    for (std::uint32_t m = 0; m < messages; ++m) {
        wait_until([&] { return receiver.ready(); });
        const Cell& cell = receiver.cell();
        harness::check(cell.bytes == sizes[m % std::size(sizes)] && cell.signature == 1000 + m,
                       "a message out of order");
        const std::byte* from = cell.kind == Kind::inlined ? cell.payload : receiver.slot();
        harness::check(std::memcmp(from, contents(m, channel), cell.bytes) == 0, "a message with wrong contents");
        receiver.release();
    }
}

}  // namespace

TEST_CASE("messages of all sizes arrive whole and in order, on all channels, both ways at once") {
    for (const Subject& subject : subjects()) {
        CAPTURE(subject.transport->name(), subject.faults.seed);
        LinkedPair pair = join(*subject.transport, subject.faults);
        const std::uint32_t messages = subject.faults.any() ? 16 : harness::sanitized ? 20 : 50;
        REQUIRE_NOTHROW(harness::run(4 * program_channels, [&](int k) {
            const int channel = k / 4, rank = k % 2;
            Link& link = *pair.link[rank];
            if (k % 4 < 2) {
                Sender sender(link.outlet(channel));
                write_all(sender, messages, channel);
                wait_until([&] { return sender.drained(); });
            } else {
                Receiver receiver(link.inlet(channel));
                read_all(receiver, messages, channel);
            }
        }));
    }
}

#ifdef TUTTI_VERBS
TEST_CASE("messages arrive whole and in order although connections break, as long as there is another way") {
    const harness::FakeVerbsReset reset;
    verbs::Net net(harness::fake_library, {});
    const harness::NetUnderTest transport(net);
    LinkedPair pair = join(transport);
    harness::fake_verbs().cut_every = 25;
    harness::fake_verbs().cuts = 5;
    REQUIRE_NOTHROW(harness::run(8, [&](int k) {
        const int channel = k % 2;
        Link& link = *pair.link[k / 2 % 2];
        if (k < 4) {
            Sender sender(link.outlet(channel));
            write_all(sender, 60, channel);
            wait_until([&] { return sender.drained(); });
        } else {
            Receiver receiver(link.inlet(channel));
            read_all(receiver, 60, channel);
        }
    }));
    REQUIRE(harness::fake_verbs().cuts == 0);
}

namespace {

constexpr std::size_t much = 100000;

/// Two ranks with memory that adapters can know.
struct Referring {
    harness::FakeVerbsReset reset;
    verbs::Net net{harness::fake_library, {}};
    harness::NetUnderTest transport{net};
    LinkedPair pair = join(transport);
    std::byte* memory[2] = {static_cast<std::byte*>(allocate_region(much)),
                            static_cast<std::byte*>(allocate_region(much))};
    Sender there{pair.link[0]->outlet(0)}, back{pair.link[1]->outlet(0)};
    Receiver here{pair.link[1]->inlet(0)}, returned{pair.link[0]->inlet(0)};

    ~Referring() {
        for (std::byte* m : memory) free_region(m);
    }
    Reference refer(int rank) {
        Reference reference{};
        wait_until([&] { return pair.link[rank]->refer(memory[rank], much, reference); });
        return reference;
    }
    /// Rank 1 offers its memory for the next message, and rank 0 knows it.
    void post(std::size_t bytes) {
        here.post(0, refer(1), bytes);
        back.commit(Kind::inlined, 0, 0);
        wait_until([&] { return returned.ready(); });
        returned.release();
    }
    Kind arrived() {
        wait_until([&] { return here.ready(); });
        return here.cell().kind;
    }
};

}  // namespace

TEST_CASE("bodies go from and to memory that the adapters know, and from slots to where it is not known") {
    Referring r;
    for (std::uint32_t m = 0; m < 12; ++m) {
        const bool from_memory = m % 2 == 0, posted = m % 4 < 2, fits = m % 8 < 4;
        CAPTURE(m);
        if (posted) r.post(fits ? much : much - 1);
        std::byte* const from = from_memory ? r.memory[0] : r.there.slot();
        std::memcpy(from, contents(m, 0), much);
        std::memset(r.memory[1], 0, much);
        if (from_memory) r.there.cell().reference = r.refer(0);
        r.there.commit(from_memory ? Kind::reference : Kind::slot, much, m);
        REQUIRE(r.arrived() == (posted && fits ? Kind::landed : Kind::slot));
        const std::byte* const to = posted && fits ? r.memory[1] : r.here.slot();
        REQUIRE(r.here.cell().bytes == much);
        REQUIRE(std::memcmp(to, contents(m, 0), much) == 0);
        if (from_memory) REQUIRE_FALSE(r.there.settled());
        r.here.release();
        REQUIRE_NOTHROW(wait_until([&] { return r.there.settled(); }));  // at once, although few credits are due
    }
}

TEST_CASE("messages from and to registered memory arrive whole although connections break") {
    Referring r;
    for (std::uint32_t m = 0; m < 60; ++m) {
        CAPTURE(m);
        if (m == 5) harness::fake_verbs().cut_every = 7, harness::fake_verbs().cuts = 5;
        if (m % 3 != 0) r.here.post(0, r.refer(1), much);
        std::memcpy(r.memory[0], contents(m, 1), much);
        r.there.cell().reference = r.refer(0);
        r.there.commit(Kind::reference, much, m);
        const std::byte* const to = r.arrived() == Kind::landed ? r.memory[1] : r.here.slot();
        REQUIRE(r.here.cell().signature == m);
        REQUIRE(std::memcmp(to, contents(m, 1), much) == 0);
        r.here.release();
        REQUIRE_NOTHROW(wait_until([&] { return r.there.settled(); }));
    }
    REQUIRE(harness::fake_verbs().cuts == 0);
}

TEST_CASE("memory is registered once, forgotten when it is freed, and copied where the adapters can't have it") {
    Referring r;
    r.refer(0);
    const std::size_t known = harness::fake_verbs_tally().registered;
    for (int again = 0; again < 3; ++again) r.refer(0);
    REQUIRE(harness::fake_verbs_tally().registered == known);
    free_region(r.memory[0]);
    REQUIRE(harness::fake_verbs_tally().registered == known - 2);  // it has two adapters
    r.memory[0] = static_cast<std::byte*>(allocate_region(much));
    Reference reference{};
    harness::fake_verbs().registrations = 0;
    REQUIRE_FALSE(r.pair.link[0]->refer(r.memory[0], much, reference));
    harness::fake_verbs().registrations = 100;
    REQUIRE_FALSE(r.pair.link[0]->refer(r.memory[0], much, reference));  // it does not try again and again
    std::vector<std::byte> own(much);
    REQUIRE_FALSE(r.pair.link[0]->refer(own.data(), much, reference));
    REQUIRE_FALSE(r.pair.link[1]->refer(r.memory[1], 1000, reference));
    REQUIRE(r.pair.link[1]->refer(r.memory[1], much, reference));
}

TEST_CASE("who has given up gets nothing written to its memory any more") {
    Referring r;
    r.post(much);
    std::memset(r.memory[0], 1, much);
    std::memset(r.memory[1], 0, much);
    r.there.cell().reference = r.refer(0);
    r.pair.waiting->stop();  // rank 0 must not hear of it before it sends
    r.pair.at[1].engine->withdraw();
    r.there.commit(Kind::reference, much, 1);
    for (int looks = 0; looks < 10; ++looks) r.pair.at[0].engine->poll();
    REQUIRE(std::all_of(r.memory[1], r.memory[1] + much, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("who gives up before a peer knows of a posted receive gets the message in its slot") {
    Referring r;
    const Reference from = r.refer(0), to = r.refer(1);
    r.pair.waiting->stop();
    std::memset(r.memory[0], 1, much);
    std::memset(r.memory[1], 0, much);
    r.here.post(0, to, much);
    r.pair.at[1].engine->withdraw();
    for (int looks = 0; looks < 10; ++looks)
        for (const Rank rank : {1, 0}) r.pair.at[rank].engine->poll();
    r.there.cell().reference = from;
    r.there.commit(Kind::reference, much, 1);
    for (const Deadline limit = Clock::now() + std::chrono::minutes(1); !r.here.ready() && Clock::now() < limit;)
        for (const Rank rank : {1, 0}) r.pair.at[rank].engine->poll();
    REQUIRE(r.here.ready());
    CHECK(r.here.cell().kind == Kind::slot);
    CHECK(std::all_of(r.memory[1], r.memory[1] + much, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("a connection that can't be made in place of a broken one is tried again") {
    const harness::FakeVerbsReset reset;
    verbs::Net net(harness::fake_library, {});
    const harness::NetUnderTest transport(net);
    LinkedPair pair = join(transport, {}, false);
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[1]->inlet(0));
    for (std::uint32_t m = 0; m < 6; ++m) {
        CAPTURE(m);
        if (m == 3)
            harness::fake_verbs().cut_every = harness::fake_verbs().cuts = 1, harness::fake_verbs().refusals = 5;
        sender.commit(Kind::inlined, 8, m);
        for (const Deadline limit = Clock::now() + std::chrono::minutes(1); !receiver.ready() && Clock::now() < limit;)
            for (const Neighbourhood& n : pair.at) REQUIRE_NOTHROW(n.engine->poll());
        REQUIRE(receiver.ready());
        CHECK(receiver.cell().signature == m);
        receiver.release();
    }
    CHECK((harness::fake_verbs().cuts == 0 && harness::fake_verbs().refusals == 0));
}

TEST_CASE("a connection that breaks again and again is given up, and so is one without another port") {
    const harness::FakeVerbsReset reset;
    verbs::Net net(harness::fake_library, {});
    const harness::NetUnderTest transport(net);
    REQUIRE(net.fabric() != 0);
    const bool again = GENERATE(true, false);
    LinkedPair pair = join(transport, {}, false, true, std::chrono::seconds(2));
    harness::fake_verbs().cut_every = again ? 1 : 3;  // before anything has come through, or after
    harness::fake_verbs().cuts = 100;
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[1]->inlet(0));
    const Deadline limit = Clock::now() + std::chrono::minutes(2);
    std::string why;
    for (std::uint32_t m = 0; why.empty() && Clock::now() < limit;) {
        if (sender.ready(false)) sender.commit(Kind::inlined, 8, m++);
        if (!again && m == 3) harness::fake_verbs().state = IBV_PORT_DOWN;
        if (receiver.ready()) receiver.release();
        try {
            for (const Neighbourhood& n : pair.at) n.engine->poll();
        } catch (const Error& error) {
            why = error.what();
        }
        std::this_thread::yield();
    }
    CAPTURE(why);
    REQUIRE(why.find(again ? "(verbs, fake" : "no other port is active; before that: ") != std::string::npos);
    REQUIRE(harness::fake_verbs().cuts > 80);
}

/// By number, what each open descriptor is: `socket:[17]`. Without that of the look itself.
std::map<int, std::string> descriptors() {
    std::map<int, std::string> open;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        const std::string is = std::filesystem::read_symlink(entry, gone);
        if (!gone && !is.starts_with("/proc/")) open[std::stoi(entry.path().filename())] = is;
    }
    return open;
}

TEST_CASE("a peer takes a descriptor for each adapter that joins it, and one for the socket that introduces them") {
    const harness::FakeVerbsReset reset;
    harness::fake_verbs().adapters = 4;
    verbs::Net net(harness::fake_library, {});
    const harness::NetUnderTest transport(net);
    REQUIRE(net.fabric() != 0);
    LinkedPair pair = join(transport, {}, true, false);
    const std::map<int, std::string> before = descriptors();
    for (const Rank r : {0, 1}) pair.link[r] = transport.connect(pair.at[r], 1 - r, {});
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[1]->inlet(0));
    sender.commit(Kind::inlined, 8, 1);
    REQUIRE_NOTHROW(wait_until([&] { return receiver.ready(); }));
    harness::open_descriptors();  // returns when no more are opened or closed
    int taken = 0;                // by this link: what other tests left may be closed meanwhile
    for (const auto& [number, is] : descriptors()) {
        const auto was = before.find(number);
        taken += was == before.end() || was->second != is ? 1 : 0;
    }
    REQUIRE(taken == 2 * (4 + 1));
}

TEST_CASE("a port that is away for longer than its adapter waits, and is the only one, is waited for") {
    const harness::FakeVerbsReset reset;
    harness::fake_verbs().adapters = 1;
    verbs::Net net(harness::fake_library, {});
    const harness::NetUnderTest transport(net);
    REQUIRE(net.fabric() != 0);
    LinkedPair pair = join(transport, {}, false, true, std::chrono::minutes(10));  // as long as looks may take
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[1]->inlet(0));
    const Deadline limit = Clock::now() + std::chrono::minutes(2);
    int away = 0;  // looks
    for (std::uint32_t m = 0, read = 0; read < 30; std::this_thread::yield()) {
        REQUIRE(Clock::now() < limit);
        if (m < 30 && sender.ready(false)) sender.commit(Kind::inlined, 8, m++);
        if (m == 10 && away == 0) {
            harness::fake_verbs().state = IBV_PORT_DOWN;
            harness::fake_verbs().cut_every = harness::fake_verbs().cuts = 1;
            away = 1;
        }
        if (harness::fake_verbs().cuts == 0 && away > 0 && ++away == 1000)
            harness::fake_verbs().state = IBV_PORT_ACTIVE;
        if (receiver.ready()) {
            REQUIRE(receiver.cell().signature == read++);
            receiver.release();
        }
        for (const Neighbourhood& n : pair.at) REQUIRE_NOTHROW(n.engine->poll());
    }
    REQUIRE(away >= 1000);
}
#endif

TEST_CASE("a writer gets exactly fifo_depth messages ahead of the reader") {
    for (const Transport* transport : transports_here()) {
        LinkedPair pair = join(*transport);
        Sender sender(pair.link[0]->outlet(0));
        Receiver receiver(pair.link[1]->inlet(0));
        for (std::uint32_t m = 0; m < fifo_depth; ++m) {
            REQUIRE(sender.ready(false));
            sender.commit(Kind::inlined, 0, m);
        }
        REQUIRE_FALSE(sender.ready(false));
        REQUIRE_NOTHROW(wait_until([&] { return receiver.ready(); }));
        receiver.release();
        REQUIRE_NOTHROW(wait_until([&] { return sender.ready(false); }));
        sender.commit(Kind::inlined, 0, fifo_depth);
        REQUIRE_FALSE(sender.ready(false));
        for (std::uint32_t m = 1; m <= fifo_depth; ++m) {
            REQUIRE_NOTHROW(wait_until([&] { return receiver.ready(); }));
            REQUIRE(receiver.cell().signature == m);
            receiver.release();
        }
        REQUIRE_FALSE(receiver.ready());
        REQUIRE_NOTHROW(wait_until([&] { return sender.drained(); }));
    }
}

TEST_CASE("memory passed by reference is seen by the peer, and free again once released") {
    for (const Subject& subject : subjects()) {
        CAPTURE(subject.transport->name(), subject.faults.seed);
        LinkedPair pair = join(*subject.transport, subject.faults);
        auto* memory = static_cast<std::byte*>(allocate_region(10000));
        memory[5000] = std::byte{77};
        Reference reference{};
        REQUIRE(pair.link[0]->refer(memory + 5000, 100, reference) == refers(*subject.transport));
        if (!refers(*subject.transport)) {
            free_region(memory);
            continue;
        }
        Sender sender(pair.link[0]->outlet(2));
        Receiver receiver(pair.link[1]->inlet(2));
        sender.cell().reference = reference;
        sender.commit(Kind::reference, 100, 1);
        REQUIRE_NOTHROW(wait_until([&] { return receiver.ready(); }));
        REQUIRE(pair.link[1]->see(receiver.cell().reference, 100)[0] == std::byte{77});
        REQUIRE_FALSE(sender.settled());
        receiver.release();
        REQUIRE_NOTHROW(wait_until([&] { return sender.settled(); }));
        free_region(memory);
    }
}

TEST_CASE("a posted receive is for one message only, and lets the writer store into the reader's memory") {
    for (const Transport* transport : transports_here()) {
        if (!refers(*transport)) continue;
        LinkedPair pair = join(*transport);
        auto* memory = static_cast<std::byte*>(allocate_region(4096));
        Sender sender(pair.link[0]->outlet(1));
        Receiver receiver(pair.link[1]->inlet(1));
        Reference where{};
        REQUIRE(pair.link[1]->refer(memory, 64, where));
        receiver.post(1, where, 64);
        REQUIRE(sender.posted_receive() == nullptr);
        sender.commit(Kind::inlined, 0, 1);
        REQUIRE(sender.posted_receive() != nullptr);
        pair.link[0]->see(sender.posted_receive()->where, 64)[3] = std::byte{9};
        sender.commit(Kind::landed, 64, 1);
        REQUIRE(sender.posted_receive() == nullptr);
        receiver.release();
        REQUIRE(receiver.ready());
        REQUIRE(memory[3] == std::byte{9});
        free_region(memory);
    }
}

TEST_CASE("private memory can be named within a process only, and freed memory not at all") {
    std::vector<std::byte> mine(100000);
    Reference reference{};
    REQUIRE(join(local_transport()).link[0]->refer(mine.data(), mine.size(), reference));
    LinkedPair pair = join(shm_transport());
    REQUIRE_FALSE(pair.link[0]->refer(mine.data(), mine.size(), reference));
    void* memory = allocate_region(8192);
    REQUIRE(pair.link[0]->refer(memory, 8192, reference));
    REQUIRE_FALSE(pair.link[0]->refer(static_cast<std::byte*>(memory) + 1, 8192, reference));
    REQUIRE_THROWS_AS(pair.link[1]->see(reference, 8193), Error);
    free_region(memory);
    void* again = allocate_region(8192);  // most likely at the same address, but another region
    Reference second{};
    REQUIRE(pair.link[0]->refer(again, 8192, second));
    REQUIRE(second.region != reference.region);
    REQUIRE_NOTHROW(pair.link[1]->see(second, 8192));
    REQUIRE_THROWS_AS(free_region(static_cast<std::byte*>(again) + 4096), Error);
    free_region(again);
    REQUIRE_THROWS_AS(free_region(again), Error);
}

TEST_CASE("a sleeping rank is woken by a wake-up") {
    for (const Transport* transport : transports_here()) {
        LinkedPair pair = join(*transport, {}, false);
        Engine* const engines[] = {pair.at[0].engine.get(), pair.at[1].engine.get()};
        allow_fences();
        std::atomic<bool> woken{false};
        std::thread sleeper([&] {
            Receiver receiver(pair.link[1]->inlet(0));
            WakeUp& wake_up = pair.arenas[1]->page().wake_up;
            while (!receiver.ready()) {
                const std::uint32_t word = wake_up.word.load();
                wake_up.sleeping.store(1);
                fence_all_cores();
                const bool moved = engines[1] != nullptr && engines[1]->rest(true);
                if (!moved && !receiver.ready()) futex_wait(wake_up.word, word, std::chrono::seconds(10));
            }
            woken = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        Sender sender(pair.link[0]->outlet(0));
        sender.commit(Kind::inlined, 0, 1);
        sender.ring();
        while (engines[0] != nullptr && !woken) {
            engines[0]->rest(true);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        sleeper.join();
        REQUIRE(woken);
    }
}

TEST_CASE("one end may go while the other still works") {
    for (const Subject& subject : subjects()) {
        LinkedPair pair = join(*subject.transport, subject.faults);
        Sender sender(pair.link[0]->outlet(0));
        pair.link[1].reset();
        if (pair.waiting) pair.waiting->stop();
        pair.at[1] = {};
        pair.arenas[1].reset();
        for (std::uint32_t m = 0; m < fifo_depth; ++m) sender.commit(Kind::inlined, 8, m);
        sender.ring();
        REQUIRE_FALSE(sender.drained());
    }
}

TEST_CASE("what arrives for a rank that sleeps is brought in without it, and wakes it") {
    for (const Transport* transport : transports_here()) {
        if (!transport->needs_engine()) continue;
        CAPTURE(transport->name());
        LinkedPair pair = join(*transport, {}, false);
        Receiver receiver(pair.link[0]->inlet(0));
        Sender sender(pair.link[1]->outlet(0));
        Engine& asleep = *pair.at[0].engine;
        WakeUp& wake_up = pair.arenas[0]->page().wake_up;
        for (std::uint32_t m = 0; m < 3; ++m) {
            while (asleep.rest(true)) {
            }
            const std::uint32_t rings = wake_up.word.load();
            wake_up.sleeping.store(1);
            std::this_thread::sleep_for(std::chrono::milliseconds(m));
            sender.commit(Kind::inlined, 0, 1);
            wait_until([&] { return pair.at[1].engine->poll(), receiver.ready() && wake_up.word.load() != rings; });
            receiver.release();
            asleep.poll();
        }
    }
}

TEST_CASE("a dropped link stays silent") {
    LinkedPair pair = join(local_transport(), FaultPlan::parse("5:drop=1"));
    Sender sender(pair.link[0]->outlet(0));
    Receiver receiver(pair.link[1]->inlet(0));
    sender.commit(Kind::inlined, 0, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    REQUIRE_FALSE(receiver.ready());
}

TEST_CASE("fault plans are read, or refused with the reason") {
    const FaultPlan plan = FaultPlan::parse("42:delay=3,drop=1000");
    REQUIRE(plan.seed == 42);
    REQUIRE(plan.delay_one_in == 3);
    REQUIRE(plan.tear_one_in == 0);
    REQUIRE(plan.drop_one_in == 1000);
    for (const char* bad : {"", "x", "1", "1:delay", "1:delay=x", "1:delay=3tear=4", "1:explode=3", "1:tear=-1"}) {
        CAPTURE(bad);
        REQUIRE_THROWS_AS(FaultPlan::parse(bad), Error);
    }
}

TEST_CASE("transports are chosen by reach, or refused by name") {
    const EndpointInfo self{1, 2, 0, 0, 0}, same{1, 2, 0, 0, 0}, neighbour{1, 3, 0, 0, 0}, outsider{9, 9, 0, 0, 0};
    REQUIRE(choose_transport(self, same, "").name() == "local");
    REQUIRE(choose_transport(self, neighbour, "").name() == "shm");
    REQUIRE(choose_transport(self, same, "shm").name() == "shm");
    EndpointInfo near = self, far = outsider;
    near.addresses[0] = far.addresses[0] = bootstrap::Address::loopback();
    REQUIRE(choose_transport(near, far, "").name() == "tcp");
    REQUIRE(choose_transport(near, near, "tcp").name() == "tcp");
    REQUIRE_THROWS_AS(choose_transport(near, outsider, ""), Error);
    REQUIRE_THROWS_AS(choose_transport(self, same, "tcp"), Error);
    REQUIRE_THROWS_AS(choose_transport(self, neighbour, "local"), Error);
    REQUIRE_THROWS_AS(choose_transport(self, outsider, ""), Error);
    REQUIRE_THROWS_AS(choose_transport(self, same, "pigeon"), Error);
}
