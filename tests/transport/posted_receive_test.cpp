// Sums that are stored straight to the place that the receiver has posted: only those that have its length.
#include <algorithm>
#include <memory>

#include "algorithms/algorithms.hpp"
#include "harness/catch.hpp"
#include "kernels/host/executor.hpp"
#include "links.hpp"
#include "schedule/compose.hpp"
#include "transport/regions.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr std::size_t most = 20000;  // elements

/// Rank 0 sends the sum of its two chunks, rank 1 takes it as its result. The verifier would not have it.
Program sum_to_1(Rank rank) {
    Program program = program_for({Collective::all_reduce, rank, 2, 0});
    program.columns = 2;
    if (rank == 0)
        program.step({input(0), input(1)}, {send(1)});
    else
        program.step({recv(0)}, {output(0)});
    return program;
}

/// A rank's part of it, in memory that peers can name.
struct Side {
    Side(LinkedPair& pair, Rank rank, std::size_t count)
        : memory(static_cast<float*>(allocate_region(2 * most * sizeof(float))), &free_region),
          sender(pair.link[rank]->outlet(0)),
          receiver(pair.link[rank]->inlet(0)),
          execution(BoundProgram::bind(sum_to_1(rank), true, true), pair.arenas[rank]->page(), 1, CacheShare(),
                    [&, rank](BoundProgram::Peer peer, int, bool) {
                        return Connection{peer.rank, pair.link[rank].get(), &sender, &receiver};
                    }) {
        std::fill_n(memory.get(), 2 * most, 1.0F);
        Job job;
        job.input = job.output = reinterpret_cast<std::byte*>(memory.get());
        job.type = DataType::float32;
        job.op = ReduceOp::sum;
        job.count = 2 * count;
        job.block = job.tile = count;
        job.tiles = 1;
        job.by_reference = true;
        execution.start(job);
    }
    const std::unique_ptr<float, void (*)(void*)> memory;
    Sender sender;
    Receiver receiver;
    HostExecution execution;
};

}  // namespace

TEST_CASE("a sum lands where it is wanted if it has the length that is, and nowhere beyond") {
    for (const Transport* transport : {&local_transport(), &shm_transport()})
        for (const std::size_t wanted : {most, most / 2, std::size_t{100}}) {
            CAPTURE(transport->name(), wanted);
            LinkedPair pair = join(*transport);
            Side from(pair, 0, most), to(pair, 1, wanted);
            const float* const got = to.memory.get();
            to.execution.progress();    // offers its place,
            from.execution.progress();  // and this takes it or not
            const bool landed = std::count(got, got + 2 * most, 2.0F) == most;
            CHECK(landed == (wanted == most));
            CHECK(std::count(got + wanted, got + 2 * most, 1.0F) == static_cast<std::ptrdiff_t>(2 * most - wanted));
            if (wanted == most)
                CHECK_NOTHROW(to.execution.progress());
            else
                CHECK_THROWS_AS(to.execution.progress(), Error);
            CHECK(std::count(got + wanted, got + 2 * most, 1.0F) == static_cast<std::ptrdiff_t>(2 * most - wanted));
        }
}
