// Gets from other hosts: in a group, and from ranks that do nothing.
#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "adapters.hpp"
#include "comm/communicator.hpp"
#include "comm/driver.hpp"
#include "harness/asleep.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "transport/net/engine.hpp"

using namespace tutti;

TEST_CASE("gets of a group that follow each other are asked for at once, and puts between them wait for those before") {
    constexpr std::size_t gets = 7, count = 40'000;
    Options options = Options::from(nullptr);
    options.transport = "tcp";
    const auto comms = Communicator::in_process(2, options);
    std::vector<int> memory(gets * count), got(gets * count), none;
    std::iota(memory.begin(), memory.end(), 1);
    std::shared_ptr<const Window> windows[2];
    harness::run(2, [&](int rank) {
        std::vector<int>& mine = rank == 1 ? memory : none;
        windows[rank] = comms[static_cast<std::size_t>(rank)]->windows().open(mine.data(), mine.size() * 4, false, {});
    });
    std::vector<OneSided> calls;
    const auto get = [&](std::size_t part) {
        calls.push_back({.kind = OneSided::Kind::get, .peer = 1});
        calls.back().to = reinterpret_cast<std::byte*>(&got[part * count]);
        calls.back().bytes = count * 4, calls.back().offset = part * count * 4, calls.back().window = windows[0];
    };
    for (std::size_t part = 0; part < 5; ++part) get(part);
    calls.push_back({.kind = OneSided::Kind::put, .peer = 1});  // what the first has got, to where the last one looks
    calls.back().from = reinterpret_cast<const std::byte*>(got.data());
    calls.back().bytes = count * 4, calls.back().offset = 6 * count * 4, calls.back().window = windows[0];
    for (std::size_t part = 5; part < gets; ++part) get(part);

    auto& engine = dynamic_cast<net::Engine&>(*comms[1]->connections().engine());
    comms[0]->connections().connection(1, one_sided_channel);  // before nobody answers
    std::unique_lock held(engine.mutex());
    std::thread caller([&] {
        std::vector<Batch> batches(1);
        batches[0].comm = CommunicatorPtr(comms[0].get(), [](Communicator*) {});
        for (const OneSided& o : calls) batches[0].operations.push_back({.one_sided = &o});
        batches[0].turn = Reservation(comms[0]->ticket_lock());
        run_batches(batches);
    });
    harness::until_all_sleep();
    const std::size_t asked = comms[0]->connections().arena().awaited().state(1).asked;
    held.unlock();
    caller.join();
    CHECK(asked == 5);
    std::copy_n(memory.begin(), count, memory.begin() + 6 * count);  // as the put does
    CHECK(got == memory);
    for (std::size_t r = 0; r < 2; ++r) comms[r]->windows().close(*windows[r]);
}

TEST_CASE("every rank gets from every window, also of ranks that it has exchanged nothing with, which do nothing") {
    constexpr int ranks = 8;  // the smallest number where not every rank tells every other one of its part itself
    const char* const transport = GENERATE(from_range(harness::networks()));
    const harness::Adapters adapters(transport);
    const std::vector<tuttiComm_t> comms = harness::make_comms(ranks, transport, 5000);
    int memory[ranks];
    tuttiWindow_t windows[ranks];
    harness::run(ranks, [&](int rank) {
        memory[rank] = rank + 100;
        harness::must_succeed(tuttiCommWindowRegister(comms[static_cast<std::size_t>(rank)], &memory[rank],
                                                      sizeof *memory, &windows[rank], 0),
                              "window");
    });
    for (int caller = ranks - 1; caller >= 0; --caller)  // the higher rank first: the lower one makes connections
        for (int peer = 0; peer < ranks; ++peer) {
            CAPTURE(caller, peer);
            const tuttiComm_t comm = comms[static_cast<std::size_t>(caller)];
            int got = 0;
            const tuttiResult_t result = tuttiGet(&got, 1, tuttiInt32, peer, windows[caller], 0, 0, 0, comm, nullptr);
            INFO(tuttiGetLastError(comm));
            REQUIRE(result == tuttiSuccess);
            CHECK(got == peer + 100);
        }
    for (std::size_t r = 0; r < ranks; ++r) tuttiCommWindowDeregister(comms[r], windows[r]);
    for (tuttiComm_t comm : comms) tuttiCommDestroy(comm);
}
