// Which ports and queue pairs carry a link, and what adapters are told of its packets.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "transport/regions.hpp"
#include "transport/verbs/endpoint.hpp"
#include "verbs_ends.hpp"

using namespace tutti;
using harness::Ends, harness::error_of, harness::fake_verbs, harness::has, harness::message;

namespace {

/// A tree like /sys, with devices that links lead to.
class FakeSys {
  public:
    FakeSys() {
        char name[] = "/tmp/tutti-sys-XXXXXX";
        if (mkdtemp(name) == nullptr) std::abort();
        root_ = std::filesystem::canonical(name);
    }
    ~FakeSys() { std::filesystem::remove_all(root_); }
    FakeSys(const FakeSys&) = delete;

    /// A device at `path` below the root; its directory.
    std::string device(const std::string& path, int node, const std::string& cores) {
        const std::filesystem::path directory = root_ / path;
        std::filesystem::create_directories(directory);
        std::ofstream(directory / "numa_node") << node << "\n";
        std::ofstream(directory / "local_cpulist") << cores << "\n";
        return directory;
    }
    /// What the adapter of that name is.
    void adapter(const std::string& name, const std::string& directory) {
        std::filesystem::create_directories(root_ / name);
        std::filesystem::create_symlink(directory, root_ / name / "device");
    }
    std::string root() const { return root_; }

  private:
    std::filesystem::path root_;
};

/// "fake0 fake2": whose ports carry this end's messages.
std::string adapters_of(const net::NetEndpoint& end) {
    const std::string text = end.describe();
    std::string all;
    for (std::size_t at = text.find("fake"); at != text.npos; at = text.find(", fake", at + 1)) {
        if (text[at] == ',') at += 2;
        all += (all.empty() ? "" : " ") + text.substr(at, 5);
    }
    return all;
}

/// After every channel has carried a message.
void use_all_channels(Ends& ends) {
    for (int channel = 0; channel < channels_per_link; ++channel)
        ends.end[0]->queue(message(8, 1, channel), ends.mine[0]->wire(1, channel, nullptr).fifo->cells[0].payload);
    while (ends.reader[1]->seen.size() < channels_per_link) ends.move();
    for (const auto& end : ends.end) REQUIRE(end->trouble().empty());
}

}  // namespace

TEST_CASE("traffic class, service level, partition, time-out and retries reach the queue pairs") {
    const harness::FakeVerbsReset reset;
    fake_verbs().adapters = 1;
    fake_verbs().infiniband = GENERATE(false, true);
    {
        verbs::Net net(harness::fake_library, {});
        const Ends ends(net);  // with a limit of silence of 1 s: 7 times 2^15 * 4.096 us are the most below that
        const harness::FakeConnection usual{0, 0, 0, 0, 15, 6};
        CHECK(harness::fake_connections() == std::vector{usual, usual});
    }
    verbs::Net net(harness::fake_library, {.pkey_index = 1, .delivery = {106, 3, 20, 4}});
    Ends ends(net);
    const harness::FakeConnection told{0, 1, 106, 3, 20, 4};
    CHECK(harness::fake_connections() == std::vector{told, told});
    use_all_channels(ends);
}

TEST_CASE("a partition that is not there, or that the peer is not in, is said") {
    const harness::FakeVerbsReset reset;
    verbs::Net full(harness::fake_library, {.pkey_index = 1}), any(harness::fake_library, {}),
        none(harness::fake_library, {.pkey_index = 2}), beyond(harness::fake_library, {.pkey_index = 3});
    REQUIRE(none.fabric() == 0);
    REQUIRE(has(none.absence(), "fake0 port 1 is without a partition key of index 2 (TUTTI_IB_PKEY; its table has 3"));
    REQUIRE(has(beyond.absence(), "without a partition key of index 3"));
    const Ends apart({&full, &any}, true);
    REQUIRE(has(apart.end[0]->trouble(), "has the partition key 0x8001, and fake0 port 1 (10.1.2.3) 0xffff"));
    REQUIRE(has(apart.end[1]->trouble(), "TUTTI_IB_PKEY"));
    CHECK(verbs::share_partition(0x8001, 0x8001));
    CHECK(verbs::share_partition(0x8001, 0x0001));
    CHECK_FALSE(verbs::share_partition(0x0001, 0x0001));  // members that may talk to full ones only
    CHECK_FALSE(verbs::share_partition(0x8001, 0x8002));
}

TEST_CASE("adapters may write in any order what is looked at after its completion") {
    const harness::FakeVerbsReset reset;
    const bool allowed = GENERATE(true, false);
    verbs::Net net(harness::fake_library, {.relaxed_ordering = allowed});
    Ends ends(net);
    const Wire in = ends.inbox[1]->wire(0, 0, nullptr);
    CHECK(harness::relaxed(in.slots) == allowed);
    auto* const memory = static_cast<std::byte*>(allocate_region(65536));
    REQUIRE(ends.end[1]->knows(memory, 65536));
    CHECK(harness::relaxed(memory) == allowed);
    use_all_channels(ends);
    for (auto& end : ends.end) end.reset();
    free_region(memory);
}

TEST_CASE("several queue pairs by each port: channels are dealt to ports first, and memory is registered once") {
    const harness::FakeVerbsReset reset;
    struct Row {
        int adapters, left, right, pairs;  // wanted by either end; in use at both together
    };
    for (const Row& row :
         {Row{1, 1, 1, 2}, Row{1, 4, 4, 8}, Row{2, 4, 4, 16}, Row{2, 4, 2, 8}, Row{4, 4, 4, 16}, Row{1, 8, 1, 2}}) {
        CAPTURE(row.adapters, row.left, row.right);
        fake_verbs().adapters = row.adapters;
        verbs::Net left(harness::fake_library, {.queue_pairs = row.left}),
            right(harness::fake_library, {.queue_pairs = row.right});
        REQUIRE((left.fabric() != 0 && right.fabric() != 0));
        const std::size_t before = harness::fake_verbs_tally().registered;
        Ends ends({&left, &right}, true);
        CHECK(harness::fake_connections().size() == static_cast<std::size_t>(row.pairs));
        use_all_channels(ends);
        // Two of each ring, and the slots once for each adapter.
        const auto rings = static_cast<std::size_t>(2 * row.pairs),
                   inboxes = static_cast<std::size_t>(2 * row.adapters);
        CHECK(harness::fake_verbs_tally().registered - before == rings + inboxes);
        net::Header bye{};
        bye.what = net::What::bye;
        ends.end[0]->queue(bye, nullptr);
        while (ends.reader[1]->seen.size() < channels_per_link + 1) ends.move();
        CHECK(ends.end[1]->trouble().empty());
    }
}

TEST_CASE("ports that are slow beside others are left out, and the fastest says which fabric it is") {
    CHECK(verbs::speed_of(2, 32) == 100);
    CHECK(verbs::speed_of(1, 1) == 2.5);
    CHECK(verbs::speed_of(16, 128) == 200);
    CHECK(verbs::speed_of(3, 32) == 0);
    CHECK_FALSE(verbs::is_slow(50, 100));
    CHECK(verbs::is_slow(40, 100));
    CHECK_FALSE(verbs::is_slow(0, 100));  // nobody knows
    const harness::FakeVerbsReset reset;
    fake_verbs().adapters = 3;
    fake_verbs().lanes[0] = 1;  // 25 Gbit/s, where the others have 100
    verbs::Net net(harness::fake_library, {});
    Ends ends(net);
    CHECK(adapters_of(*ends.end[0]) == "fake1 fake2");
    use_all_channels(ends);
    verbs::Net alone(harness::fake_library, {"fake0"});
    CHECK(adapters_of(*Ends(alone).end[0]) == "fake0");
}

TEST_CASE("of the ports of both ends those that are near both carry messages, then those near one") {
    const harness::FakeVerbsReset reset;
    FakeSys sys;
    sys.adapter("fake0", sys.device("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0", 0, "0-3,8-11"));
    sys.adapter("fake1", sys.device("pci0000:20/0000:20:01.0/0000:21:00.0", 0, "0-3,8-11"));
    sys.adapter("fake2", sys.device("pci0000:80/0000:80:01.0/0000:81:00.0", 1, "4-7,12-15"));
    sys.adapter("fake3", sys.device("pci0000:90/0000:90:01.0/0000:91:00.0", 1, "4-7,12-15"));
    const Whereabouts unbound{}, anywhere{{0, 1, 2, 3, 4, 5, 6, 7}}, first{{2, 8}}, second{{5}},
        gpu{{}, sys.device("pci0000:10/0000:10:01.0/0000:11:00.0/0000:13:00.0", 0, "0-3,8-11")},
        other_gpu{{}, sys.device("pci0000:80/0000:80:02.0/0000:82:00.0", 1, "4-7,12-15")};
    fake_verbs().adapters = 4;
    fake_verbs().sys = sys.root();
    verbs::Net net(harness::fake_library, {});
    struct Row {
        Whereabouts left, right;
        const char* adapters;
    };
    for (const Row& row :
         {Row{unbound, anywhere, "fake0 fake1 fake2 fake3"}, Row{first, first, "fake0 fake1"},
          Row{first, anywhere, "fake0 fake1"}, Row{second, second, "fake2 fake3"},
          Row{first, second, "fake0 fake1 fake2 fake3"}, Row{gpu, gpu, "fake0"}, Row{gpu, first, "fake0"},
          Row{gpu, second, "fake0"}, Row{other_gpu, second, "fake2 fake3"}}) {
        CAPTURE(row.adapters);
        for (const bool turned : {false, true}) {
            std::array<Whereabouts, 2> here{row.left, row.right};
            if (turned) std::swap(here[0], here[1]);
            Ends ends({&net, &net}, true, 0, here);
            CHECK(adapters_of(*ends.end[0]) == row.adapters);
            CHECK(adapters_of(*ends.end[1]) == row.adapters);
            use_all_channels(ends);
        }
    }
    // The near adapter is broken, so the remaining one is used.
    const Ends around({&net, &net}, true, 1, {gpu, gpu});
    CHECK(adapters_of(*around.end[0]) == "fake1");
}

TEST_CASE("of more ports than a link uses, both ends choose some in common, wherever their ranks are") {
    const harness::FakeVerbsReset reset;
    FakeSys sys;
    for (int i = 0; i < 8; ++i)
        sys.adapter("fake" + std::to_string(i),
                    sys.device("pci0000:" + std::to_string(10 + i) + "/0000:0" + std::to_string(i) + ":00.0", i / 4,
                               i < 4 ? "0-3" : "4-7"));
    fake_verbs().adapters = 8;
    fake_verbs().sys = sys.root();
    verbs::Net net(harness::fake_library, {});
    Ends apart({&net, &net}, true, 0, {Whereabouts{{0}}, Whereabouts{{4}}});
    use_all_channels(apart);
    CHECK_FALSE(adapters_of(*apart.end[0]).empty());
    CHECK(adapters_of(*apart.end[0]) == adapters_of(*apart.end[1]));
    Ends near({&net, &net}, true, 0, {Whereabouts{{5}}, Whereabouts{{4}}});
    use_all_channels(near);
    for (const char* far : {"fake0", "fake1", "fake2", "fake3"})
        CHECK(adapters_of(*near.end[0]).find(far) == std::string::npos);
}
