// What a peer that has gone mad writes to the memory that both see.
#include "algorithms/prove.hpp"
#include "harness/catch.hpp"
#include "kernels/host/executor.hpp"
#include "links.hpp"
#include "transport/regions.hpp"

using namespace tutti;
using namespace tutti::harness;

TEST_CASE("a message that is longer than the place where it is said to lie has room is refused") {
    constexpr std::size_t count = 2 * slot_bytes;  // by reference, so it may be longer than a slot
    for (const Kind kind : {Kind::inlined, Kind::slot, Kind::placed, Kind::exchanged}) {
        LinkedPair pair = join(shm_transport());
        const std::unique_ptr<void, void (*)(void*)> memory(allocate_region(2 * count), &free_region);
        Sender sender(pair.link[0]->outlet(0));
        Receiver receiver(pair.link[0]->inlet(0));
        HostExecution execution(
            BoundProgram::bind(all_programs(*find_algorithm("flat"), Collective::all_reduce, 2)[0], true, true),
            pair.arenas[0]->page(), 1, CacheShare(), [&](BoundProgram::Peer peer, int, bool) {
                return Connection{peer.rank, pair.link[0].get(), &sender, &receiver};
            });
        Job job;
        job.input = static_cast<const std::byte*>(memory.get());
        job.output = static_cast<std::byte*>(memory.get()) + count;
        job.type = DataType::int8;
        job.count = job.block = job.tile = count;
        job.tiles = 1;
        job.by_reference = true;
        job.call.signature = 7;
        execution.start(job);
        Sender peer(pair.link[1]->outlet(0));
        if (kind == Kind::placed) peer.cell().offset = slot_depth * slot_stride - count + 1;
        peer.commit(kind, count, 7);
        CHECK_THROWS_AS(execution.progress(), Error);
    }
}

TEST_CASE("calls that no rank makes are text, too") {
    Call call{.signature = 1};
    for (int i = 0; i < 256; ++i) {
        call.collective = static_cast<Collective>(i);
        call.type = static_cast<DataType>(255 - i);
        call.op = static_cast<std::uint8_t>(i);
        CHECK(call_text(call) == "something that no call is");
    }
    call.type = DataType::int8;
    call.collective = Collective::all_reduce;
    call.op = 255;
    CHECK(call_text(call).starts_with("all_reduce(count 0, int8"));
}
