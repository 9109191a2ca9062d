// Network plugins: finding and refusing them, every version of the interface, what they may do, and calls that fail.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "bootstrap/service.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "links.hpp"
#include "mailbox.hpp"
#include "transport/net_plugins.hpp"
#include "transport/plugin/endpoint.hpp"
#include "transport/plugin/plugin_net.hpp"

using namespace tutti;
using harness::has;
using plugin::PluginNet;

namespace {

const std::string every_version[] = {NET_PLUGIN_8, NET_PLUGIN_9, NET_PLUGIN_10, NET_PLUGIN_11, NET_PLUGIN_12};

/// What the next plugins that are loaded do wrong; see net_plugin.cpp.
class Faults {
  public:
    explicit Faults(const std::string& text) {
        for (const std::string& file : every_version)
            if (access(file.c_str(), R_OK) != 0) throw std::runtime_error(file + " was not built");
        setenv("TEST_NET_PLUGIN_FAULTS", text.c_str(), 1);
    }
    ~Faults() {
        unsetenv("TEST_NET_PLUGIN_FAULTS");
        for (const std::string& file : every_version) plugin::load(file);  // who initializes it forgets
    }
};

/// A function of a plugin, which stays loaded.
template <class Function>
Function* function_of(const std::string& file, const char* name) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());  // it was not built
    return reinterpret_cast<Function*>(dlsym(library, name));
}

struct Debts {
    int of[3] = {};  // connections, registrations, closed too early
    explicit Debts(const std::string& file) { function_of<void(int*)>(file, "test_net_plugin_debts")(of); }
};

/// When ends that were left behind, because the other end was busy for longer than they wait, have been closed, too.
Debts settled(const std::string& file, const Debts& before) {
    for (const Deadline limit = Clock::now() + std::chrono::minutes(2);; std::this_thread::yield()) {
        const Debts now(file);
        if (now.of[0] == before.of[0] || Clock::now() > limit) return now;
        plugin::Frames::tend_kept();
    }
}

template <class Body>
std::string complaint(Body&& body) {
    try {
        body();
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

/// One end, without an engine: it keeps what arrives.
struct End : net::Recipient {
    std::shared_ptr<Arena> mine = Arena::make(2, false), inbox = Arena::make(1, false);
    std::unique_ptr<net::NetEndpoint> endpoint;
    std::uint32_t begun[channels_per_link] = {};
    std::byte cell[inline_bytes];
    std::vector<net::Header> seen;
    bool right = true;

    End(PluginNet& net, Rank self, const DeviceSlots* device = nullptr)
        : endpoint(net.open(self, 1 - self, {*mine, *inbox, device}, std::chrono::seconds(5))) {}

    static std::byte* slot(const Arena& arena, Rank reader, int channel, std::uint32_t number) {
        return arena.wire(reader, channel, nullptr).slots + number % slot_depth * slot_stride;
    }
    std::byte* begin(const net::Header& h, const char*&) override {
        return h.in_slot ? slot(*inbox, 0, h.channel, begun[h.channel]++) : cell;
    }
    void finish(const net::Header& h) override {
        const std::byte* const body = h.in_slot ? slot(*inbox, 0, h.channel, begun[h.channel] - 1) : cell;
        for (std::size_t i = 0; i < h.bytes; i += 97) right &= body[i] == static_cast<std::byte>(h.signature + i);
        seen.push_back(h);
    }
    /// Queues message `signature` of this size on this channel, in slot `number`.
    void send(int channel, std::size_t bytes, std::uint32_t signature, std::uint32_t number, Rank to) {
        net::Header h{};
        h.channel = static_cast<std::uint8_t>(channel);
        h.in_slot = bytes > inline_bytes;
        h.bytes = static_cast<std::uint32_t>(bytes);
        h.signature = signature;
        std::byte* const body = slot(*mine, to, channel, number);
        for (std::size_t i = 0; i < bytes; ++i) body[i] = static_cast<std::byte>(signature + i);
        endpoint->queue(h, body);
    }
    void look() {
        endpoint->receive(*this);
        endpoint->send();
    }
};

struct Two {
    PluginNet net;
    End a, b;
    explicit Two(const std::string& file) : net(file, true), a((net.fabric(), net), 0), b(net, 1) {
        a.endpoint->meet(b.endpoint->offer());
        b.endpoint->meet(a.endpoint->offer());
    }
    template <class Ready>
    bool until(Ready&& ready) {
        for (const Deadline limit = Clock::now() + std::chrono::minutes(2); Clock::now() < limit;) {
            if (ready()) return true;
            a.look();
            b.look();
        }
        return false;
    }
    std::string trouble() const { return a.endpoint->trouble() + b.endpoint->trouble(); }
};

const std::size_t sizes[] = {0, 8, inline_bytes, 1000, 4048, 4049, 100000, slot_bytes};

/// All sizes on all channels from a to b, two of a channel at a time.
void carry_all(Two& two) {
    std::uint32_t sent = 0;
    for (const std::size_t size : sizes)
        for (int channel = 0; channel < channels_per_link && two.trouble().empty(); ++channel)
            for (std::uint32_t twice = 0; twice < 2 && two.trouble().empty(); ++twice) {
                two.until([&] { return !two.trouble().empty() || two.a.endpoint->has_room(); });
                if (!two.trouble().empty()) return;
                ++sent;
                two.a.send(channel, size, sent, sent % slot_depth, 1);
                if (twice == 1)  // what is in its slots must not be overwritten
                    two.until([&] { return !two.trouble().empty() || two.b.seen.size() == sent; });
            }
}

}  // namespace

TEST_CASE("a plugin of every version is found, by path or in a list, and asked for what it can") {
    for (const std::string& file : every_version) {
        CAPTURE(file);
        const auto p = plugin::load(file);
        REQUIRE(p->name() == "Test" + std::to_string(p->version()));
        REQUIRE(has(file, "v" + std::to_string(p->version())));
        REQUIRE(p->file() == file);
        REQUIRE(p->devices() == 2);
        REQUIRE(p->device(1).name == "loopback1");
        REQUIRE(p->device(1).host_memory);
        REQUIRE(p->device(1).speed == 10000);
        REQUIRE(p->device(1).most_connections == 64);
        REQUIRE(p->device(1).most_bytes == 1 << 30);
    }
    REQUIRE(plugin::load("no-such-plugin," + every_version[0])->version() == 8);
    PluginNet same(every_version[0], true), again(every_version[0], true), other(every_version[3], true);
    REQUIRE(same.fabric() == again.fabric());
    REQUIRE(same.fabric() != other.fabric());
}

TEST_CASE("what is no plugin, or of another version, is refused by its name") {
    std::string why = complaint([] { plugin::load("no-such-plugin"); });
    CAPTURE(why);
    REQUIRE(has(why, "no-such-plugin: cannot open"));
    REQUIRE(has(why, "libnccl-net-no-such-plugin.so: cannot open"));
    why = complaint([] { plugin::load("/no/such/plugin.so"); });
    REQUIRE(has(why, "/no/such/plugin.so: cannot open"));
    REQUIRE_FALSE(has(why, "libnccl-net"));
    why = complaint([] { plugin::load(NET_PLUGIN_0); });
    REQUIRE(has(why, std::string(NET_PLUGIN_0) + " is not a network plugin of NCCL"));
    why = complaint([] { plugin::load(NET_PLUGIN_7); });
    REQUIRE(has(why, std::string(NET_PLUGIN_7) + " is a network plugin of NCCL for other versions"));
    REQUIRE(has(why, "v8 to v12, and has v7"));
    const std::string noise = "./noise-" + std::to_string(getpid()) + ".so";
    std::ofstream(noise) << "this is not a library";
    why = complaint([&] { plugin::load(noise); });
    unlink(noise.c_str());
    REQUIRE(has(why, noise));
    for (const char* nothing : {"", "none"}) {
        PluginNet none(nothing, *nothing != 0);
        REQUIRE(none.fabric() == 0);
        REQUIRE(has(none.absence(), "TUTTI_NET_PLUGIN"));
    }
    PluginNet hoped("no-such-plugin", false), demanded("no-such-plugin", true);
    REQUIRE(hoped.fabric() == 0);
    REQUIRE(has(hoped.absence(), "no-such-plugin"));
    for (int again = 0; again < 2; ++again)
        REQUIRE(has(complaint([&] { demanded.fabric(); }), "the network plugin that TUTTI_NET_PLUGIN names"));
}

TEST_CASE("a plugin that does not start, or has no device, says so") {
    for (const auto& [fault, part] : {std::pair{"init:fail:1", "init failed: it returned 2 (system error)"},
                                      {"devices:fail:1", "devices failed"},
                                      {"getProperties:fail:2", "getProperties failed"},
                                      {"devices:none:0", "has 0 devices"},
                                      {"getProperties:none:0", "has 2 devices, and none that takes"}})
        for (const std::string& file : every_version) {
            const Faults faults(fault);
            PluginNet net(file, true);
            const std::string why = complaint([&] { net.fabric(); });
            CAPTURE(why);
            REQUIRE(has(why, file));
            REQUIRE(has(why, part));
        }
}

TEST_CASE("messages of all sizes pass every version whole, and everything is closed in order") {
    for (const std::string& file : every_version) {
        CAPTURE(file);
        const Debts before(file);
        {
            Two two(file);
            carry_all(two);
            REQUIRE(two.trouble() == "");
            REQUIRE(two.b.seen.size() == 2 * channels_per_link * std::size(sizes));
            REQUIRE(two.b.right);
            REQUIRE(has(two.a.endpoint->describe(), "loopback0 to loopback1"));
            REQUIRE(two.until([&] { return two.a.endpoint->is_empty(); }));
            harness::run(2, [&](int rank) { (rank == 0 ? two.a : two.b).endpoint.reset(); });
        }
        const Debts after = settled(file, before);
        REQUIRE(after.of[0] == before.of[0]);
        REQUIRE(after.of[1] == before.of[1]);
        REQUIRE(after.of[2] == before.of[2]);
    }
}

TEST_CASE("whoever goes first is helped by the other one, and what is sent to it then is dropped") {
    const std::string& file = every_version[3];
    const Debts before(file);
    {
        Two two(file);
        carry_all(two);
        std::thread first([&] { two.a.endpoint.reset(); });
        const Deadline limit = Clock::now() + std::chrono::minutes(2);
        for (bool gone = false; !gone && Clock::now() < limit;) {
            two.b.look();
            // Four connections and two listeners each.
            gone = Debts(file).of[0] == before.of[0] + 6;
        }
        first.join();
        for (std::uint32_t m = 0; m < 100; ++m) {
            REQUIRE(two.b.endpoint->has_room());
            two.b.send(0, 8, m, 0, 0);
        }
        REQUIRE(two.b.endpoint->is_empty());
    }
    REQUIRE(settled(file, before).of[0] == before.of[0]);
    REQUIRE(Debts(file).of[2] == before.of[2]);
}

TEST_CASE("an end that nobody helps is kept until somebody does, and closed then") {
    for (const std::string& file : {every_version[0], every_version[3]}) {
        const Debts before(file);
        Two two(file);
        REQUIRE(two.until([&] { return two.a.endpoint->has_room() && two.b.endpoint->has_room(); }));
        two.a.endpoint.reset();                              // the other end does not look
        REQUIRE(Debts(file).of[0] == before.of[0] + 6 + 3);  // its bodies' connections are closed, its frames' are not
        REQUIRE(Debts(file).of[2] == before.of[2]);
        two.b.look();
        two.b.look();
        two.b.endpoint.reset();
        REQUIRE(settled(file, before).of[0] == before.of[0]);
        REQUIRE(Debts(file).of[1] == before.of[1]);
        REQUIRE(Debts(file).of[2] == before.of[2]);
    }
}

TEST_CASE("a plugin may say 'not yet' and 'no room' as long as it likes") {
    for (const std::string& file : every_version) {
        const Faults faults(
            "connect:later:20,accept:later:10,isend:later:50,irecv:later:30,test:later:2000,regMr:slow:100");
        Two two(file);
        carry_all(two);
        REQUIRE(two.trouble() == "");
        REQUIRE(two.b.seen.size() == 2 * channels_per_link * std::size(sizes));
        REQUIRE(two.b.right);
    }
}

TEST_CASE("a call that fails ends the endpoint with the file's and the call's name") {
    for (const auto& [call, number] : {std::pair{"connect", 1},
                                       {"connect", 7},
                                       {"accept", 3},
                                       {"regMr", 1},
                                       {"regMr", 8},
                                       {"isend", 1},
                                       {"isend", 42},
                                       {"irecv", 1},
                                       {"irecv", 53},
                                       {"test", 1},
                                       {"test", 300}}) {
        const std::string& file = every_version[number % std::size(every_version)];
        const Faults faults(text("%s:fail:%d", call, number));
        Two two(file);
        two.until([&] { return two.a.endpoint->has_room() || !two.trouble().empty(); });
        carry_all(two);
        CAPTURE(two.trouble());
        REQUIRE(has(two.trouble(), file));
        REQUIRE(has(two.trouble(), std::string(call) + " failed: it returned 2"));
    }
    const Faults faults("listen:fail:2");
    PluginNet net(every_version[0], true);
    REQUIRE(net.fabric() != 0);
    REQUIRE(has(complaint([&] { End end(net, 0); }), "listen failed"));
}

TEST_CASE("offers and frames that lie are trouble") {
    PluginNet net(every_version[3], true);
    REQUIRE(net.fabric() != 0);
    End end(net, 0);
    end.endpoint->meet(std::vector<std::byte>(17));
    REQUIRE(has(end.endpoint->trouble(), "offered"));

    for (const int lie : {0, 1}) {
        Two two(every_version[3]);
        REQUIRE(two.until([&] { return two.a.endpoint->has_room() && two.b.endpoint->has_room(); }));
        net::Header h{};
        h.channel = lie == 0 ? channels_per_link : 0;
        h.bytes = lie == 0 ? 0 : inline_bytes + 1;  // and not in a slot
        two.a.endpoint->queue(h, two.a.mine->wire(1, 0, nullptr).slots);
        REQUIRE(two.until([&] { return !two.b.endpoint->trouble().empty(); }));
        REQUIRE(has(two.b.endpoint->trouble(), "no version of the protocol"));
        REQUIRE(two.b.seen.empty());
    }
}

TEST_CASE("a frame of which a plugin says that it has no bytes is trouble, not a link that stands still") {
    for (const int number : {1, 20}) {
        const std::string& file = every_version[number % std::size(every_version)];
        const Faults faults(text("arrival:fail:%d", number));
        Two two(file);
        REQUIRE(two.until([&] { return two.a.endpoint->has_room() && two.b.endpoint->has_room(); }));
        for (std::uint32_t m = 1; m <= 100 && two.trouble().empty(); ++m) {
            REQUIRE(two.until([&] { return two.a.endpoint->has_room() || !two.trouble().empty(); }));
            if (two.trouble().empty()) two.a.send(0, 8, m, m % slot_depth, 1);
        }
        REQUIRE(two.until([&] { return !two.trouble().empty(); }));
        REQUIRE(has(two.b.endpoint->trouble(), "no version of the protocol"));
        REQUIRE(two.b.seen.size() == static_cast<std::size_t>(number - 1));
    }
}

TEST_CASE("a body for a GPU's memory that comes with its frame, which is the host's, is trouble") {
    PluginNet net(every_version[3], true);
    REQUIRE(net.fabric() != 0);
    DeviceSlots device;
    device.fd = make_memfd("gpu", 1 << 20);
    const Mapping memory = Mapping::of(device.fd);
    device.memory = {memory.base(), memory.size()};
    device.in = {memory.base(), memory.size() / channels_per_link, memory.size() / channels_per_link / slot_depth};
    End host(net, 0), gpu(net, 1, &device);
    std::vector<std::byte> offer = gpu.endpoint->offer();
    const std::size_t apart = 8 + 56 + 2 * sizeof(plugin::Handle) + 64;  // behind a magic, two handles and a name
    REQUIRE(offer.at(apart) == std::byte{1});
    offer[apart] = std::byte{0};  // else the host would keep them apart
    host.endpoint->meet(offer);
    gpu.endpoint->meet(host.endpoint->offer());
    bool sent = false;
    for (const Deadline limit = Clock::now() + std::chrono::minutes(2); Clock::now() < limit;) {
        if (!gpu.endpoint->trouble().empty()) break;
        if (!sent && (sent = host.endpoint->has_room())) host.send(0, 100, 1, 0, 1);
        host.look();
        gpu.look();
    }
    REQUIRE(has(gpu.endpoint->trouble(), "for a GPU's memory"));
    REQUIRE(gpu.seen.empty());
}

TEST_CASE("connections are dealt to devices, and no device gets more than it takes") {
    PluginNet net(every_version[0], true);
    REQUIRE(net.fabric() != 0);
    std::vector<std::unique_ptr<End>> ends;
    for (int i = 0; i < 2 * 64 / 4; ++i) ends.push_back(std::make_unique<End>(net, 0));
    REQUIRE(has(ends[0]->endpoint->describe(), "loopback0"));
    REQUIRE(has(ends[1]->endpoint->describe(), "loopback1"));
    REQUIRE(has(complaint([&] { End more(net, 0); }), "no more than 64 connections"));
    ends.pop_back();
    REQUIRE_NOTHROW(End(net, 0));
}

TEST_CASE("an end whose plugin fails is a lost link that names rank, plugin and call") {
    const Faults faults("isend:fail:3");
    PluginNet net(every_version[3], true);
    harness::NetUnderTest transport(net);
    REQUIRE(net.fabric() != 0);
    harness::LinkedPair pair = harness::join(transport, {}, false);
    Sender sender(pair.link[0]->outlet(0));
    // Whose call fails is chance; the other end may only see that its peer is gone, and may see it first.
    std::string said[2];
    std::uint32_t sent = 0;
    for (const Deadline limit = Clock::now() + std::chrono::minutes(2);
         (said[0].empty() || said[1].empty()) && Clock::now() < limit;) {
        if (said[0].empty() && sent < 8 && sender.ready(false)) sender.commit(Kind::inlined, 8, ++sent);
        for (const int at : {0, 1}) {
            if (said[at].empty()) said[at] = complaint([&] { pair.at[at].engine->poll(); });
        }
    }
    CAPTURE(said[0], said[1]);
    REQUIRE(has(said[0], "rank 0 lost its connection with rank 1"));
    REQUIRE(has(said[1], "rank 1 lost its connection with rank 0"));
    const std::string& what = has(said[0], "isend failed") ? said[0] : said[1];
    REQUIRE(has(what, "isend failed"));
    REQUIRE(has(what, every_version[3]));
}

TEST_CASE("a plugin's call that does not return keeps nobody waiting but its caller") {
    const bool in_background = GENERATE(false, true);
    // No other test has left connections of these versions to be closed, so this test makes the first call.
    const std::string& file = every_version[in_background ? 1 : 2];
    const Faults faults("isend:hang:1");
    const auto hangs = function_of<bool()>(file, "test_net_plugin_hangs");
    const auto let_go = function_of<void()>(file, "test_net_plugin_let_go");
    PluginNet net(file, true);
    harness::NetUnderTest transport(net);
    REQUIRE(net.fabric() != 0);
    harness::LinkedPair pair = harness::join(transport, {}, false);
    std::atomic<bool> over{false};
    std::thread rank([&] {
        while (!over && !in_background) pair.at[0].engine->poll();
    });
    for (Neighbourhood& n : pair.at) n.engine->rest(true);
    Sender(pair.link[0]->outlet(0)).commit(Kind::inlined, 8, 1);
    for (const Deadline limit = Clock::now() + std::chrono::minutes(2); !hangs() && Clock::now() < limit;)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(hangs());
    // What an abort does.
    pair.at[0].engine->withdraw();
    CHECK_FALSE(pair.at[0].engine->pending());
    CHECK_FALSE(pair.at[0].engine->rest(true));
    CHECK(has(pair.link[0]->describe(), "does not return"));
    CHECK(pair.link[0]->arriving());  // perhaps
    Reference reference{};
    std::vector<std::byte> memory(slot_bytes);
    CHECK_FALSE(pair.link[0]->refer(memory.data(), memory.size(), reference));
    CHECK_FALSE(pair.link[0]->puts_from(memory.data(), memory.size(), 0, 1));
    CHECK(has(complaint([&] { pair.link[0]->outlet(1); }), "does not return"));
    CHECK(has(complaint([&] { pair.link[0]->inlet(1); }), "does not return"));
    CHECK(has(complaint([&] { transport.connect(pair.at[0], 1, {}); }), "does not return"));
    CHECK(bootstrap::Service::get()->run([] {}));  // which tells the others
    pair.link[0].reset();
    CHECK(hangs());
    let_go();
    over = true;
    rank.join();
}
