// What a rank knows of its waits: for whom, and whether to look on while they run.
#include <cstring>
#include <deque>

#include "algorithms/prove.hpp"
#include "harness/catch.hpp"
#include "kernels/host/executor.hpp"
#include "links.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// One rank's part of an all-reduce of 2 floats by `flat`, over a link of that pair.
struct Half {
    Half(LinkedPair& pair, Rank rank)
        : sender(pair.link[rank]->outlet(0)),
          receiver(pair.link[rank]->inlet(0)),
          execution(BoundProgram::bind(all_programs(*find_algorithm("flat"), Collective::all_reduce,
                                                    2)[static_cast<std::size_t>(rank)],
                                       false, false),
                    pair.arenas[rank]->page(), 1, CacheShare(), [&](BoundProgram::Peer peer, int, bool) {
                        return Connection{peer.rank, pair.link[rank].get(), &sender, &receiver};
                    }) {
        Job job;
        job.input = reinterpret_cast<const std::byte*>(in);
        job.output = reinterpret_cast<std::byte*>(out);
        job.type = DataType::float32;
        job.op = ReduceOp::sum;
        job.count = job.block = job.tile = 2;
        job.tiles = 1;
        execution.start(job);
    }
    float in[2] = {1, 2}, out[2] = {};
    Sender sender;
    Receiver receiver;
    HostExecution execution;
};

}  // namespace

TEST_CASE("a rank knows whether only ranks on other cores keep it waiting") {
    LinkedPair pair = join(local_transport());
    Half mine(pair, 0);
    mine.execution.progress();
    REQUIRE(!mine.execution.finished());
    std::atomic<std::int32_t>& its_core = pair.arenas[1]->page().wake_up.core;
    CHECK(!mine.execution.waits_for_other_cores(1));  // nobody knows where the peer is
    its_core = 2;
    CHECK(mine.execution.waits_for_other_cores(1));
    CHECK(!mine.execution.waits_for_other_cores(2));
    Half theirs(pair, 1);
    theirs.execution.progress();
    CHECK(mine.execution.waits_for_other_cores(2));  // it is there: this rank waits for nobody
    mine.execution.progress();
    CHECK(mine.execution.finished());
    CHECK(mine.out[1] == 4);
}

TEST_CASE("a rank of the same core that a later step waits for has to run, too") {
    LinkedPair first = join(local_transport()), second = join(local_transport());
    LinkedPair* const to[] = {nullptr, &first, &second};
    std::deque<Sender> senders;
    std::deque<Receiver> receivers;
    HostExecution execution(
        BoundProgram::bind(all_programs(*find_algorithm("direct"), Collective::all_gather, 3)[0], false, false),
        first.arenas[0]->page(), 1, CacheShare(), [&](BoundProgram::Peer peer, int, bool) {
            Link* const link = to[peer.rank]->link[0].get();
            return Connection{peer.rank, link, &senders.emplace_back(link->outlet(0)),
                              &receivers.emplace_back(link->inlet(0))};
        });
    float in[] = {1}, out[3] = {};
    Job job;
    job.input = reinterpret_cast<const std::byte*>(in);
    job.output = reinterpret_cast<std::byte*>(out);
    job.type = DataType::float32;
    job.count = job.block = job.tile = 1;
    job.tiles = 1;
    execution.start(job);
    execution.progress();
    std::atomic<std::int32_t>&next = first.arenas[1]->page().wake_up.core,
    &last = second.arenas[1]->page().wake_up.core;
    next = 2;  // what the current step waits for
    last = 2;
    CHECK(execution.waits_for_other_cores(1));
    CHECK(!execution.waits_for_other_cores(2));
    last = 1;  // what the last step takes
    CHECK(!execution.waits_for_other_cores(1));
    next = 1;
    last = 2;
    CHECK(!execution.waits_for_other_cores(1));

    next = 2;
    last = 1;
    Sender sender(second.link[1]->outlet(0));
    const float sent = 3;
    std::memcpy(sender.cell().payload, &sent, sizeof sent);
    sender.commit(Kind::inlined, sizeof sent, job.call.signature);
    CHECK(execution.waits_for_other_cores(1));  // it has sent, so only the next one keeps this rank
}

TEST_CASE("who has lost too often looks on no more, but tries again") {
    AdaptiveSpin adaptive_spin;
    int lost = 0;
    for (; adaptive_spin.worth_it(); ++lost) adaptive_spin.lost();
    CHECK(lost > 1);
    int passed = 1;
    for (; !adaptive_spin.worth_it(); ++passed) REQUIRE(passed < 1000);
    CHECK(passed > 10);
    adaptive_spin.lost();  // at once again
    CHECK(!adaptive_spin.worth_it());

    AdaptiveSpin good;
    for (int i = 0; i < 1000; ++i) {  // two gains for a loss are enough
        good.won(), good.won(), good.lost();
        REQUIRE(good.worth_it());
    }
}
