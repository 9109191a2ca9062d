// The links of a rank (Connections), without a communicator.
#include "in_process.hpp"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "api/handles.hpp"
#include "base/config.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"

using namespace tutti;
using harness::connections_of;

TEST_CASE("a link is made when a peer is named first, and its FIFOs count as memory when a channel is") {
    const Options options = Options::from(nullptr);
    const auto all = connections_of(3, options);
    Connections& mine = *all[0];
    CHECK(mine.rank() == 0);
    CHECK(mine.ranks() == 3);
    CHECK_FALSE(mine.on_gpus());
    CHECK(mine.transport_to(1).name() == "local");
    CHECK(mine.find(1) == nullptr);
    CHECK(mine.page_of(1) == nullptr);
    const std::size_t before = mine.memory();
    mine.linked(1);
    CHECK(mine.find(1) != nullptr);
    CHECK(mine.find(2) == nullptr);
    CHECK(mine.page_of(1) == &all[1]->page());
    CHECK(mine.memory() == before);
    const Connection first = mine.connection(1, 0), again = mine.connection(1, 0), other = mine.connection(1, 1);
    CHECK(first.sender == again.sender);
    CHECK(first.sender != other.sender);
    CHECK(first.link == other.link);
    CHECK(mine.memory() > before);
    if (!config().fault.empty()) return;                 // such links carry no messages to all
    CHECK(mine.connection_to_all(0).sender != nullptr);  // which names everybody
    CHECK(mine.find(2) != nullptr);
}

TEST_CASE("the ranks of a host see the page of its first one") {
    const Options options = Options::from(nullptr);
    const auto all = connections_of(3, options);
    for (const auto& rank : all) CHECK(rank->host_page() == &all[0]->page());
}

#ifndef __SANITIZE_THREAD__  // which ends a process that makes threads after a fork
TEST_CASE("processes that outnumber their cores share a decision") {
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    cpu_set_t cores;
    REQUIRE(sched_getaffinity(0, sizeof cores, &cores) == 0);
    const auto rank = [&](int self) {
        cpu_set_t one{};
        for (std::size_t core = 0; CPU_COUNT(&one) == 0; ++core)
            if (CPU_ISSET(core, &cores)) CPU_SET(core, &one);
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = "shm";
        tuttiComm_t comm = nullptr;
        float x = 1;
        if (sched_setaffinity(0, sizeof one, &one) != 0) return 1;
        if (tuttiCommInitRankConfig(&comm, 2, id, self, &config) != tuttiSuccess) return 2;
        if (tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comm, nullptr) != tuttiSuccess || x != 2) return 3;
        Connections& connections = comm->comm->connections();
        const RankPage* const first = connections.host_page();
        if (first == nullptr || (first == &connections.page()) != (self == 0)) return 4;
        const auto made = [](const SharedDecision& d) { return d.question != 0 && d.state == 1; };
        if (std::ranges::count_if(first->decisions, made) != 1) return 5;
        return tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 6;
    };
    pid_t children[2];
    for (int r = 0; r < 2; ++r)
        if (children[r] = fork(); children[r] == 0) _exit(rank(r));
    for (const pid_t child : children) {
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
}
#endif

TEST_CASE("what a peer last called is told as far as this rank sees it") {
    const Options options = Options::from(nullptr);
    const auto all = connections_of(2, options);
    CHECK(all[0]->told_by(-1).empty());
    CHECK(all[0]->told_by(1).empty());  // no link, and no word of it
    all[0]->linked(1);
    CHECK(all[0]->told_by(1) == ", which has called no collective yet");
    all[1]->page().board[0].set({});
    all[1]->page().sequence = 1;
    CHECK(all[0]->told_by(1).starts_with(", which has called 1 collectives, the last one "));
    CHECK_FALSE(all[0]->has_left(1));
    all[1]->page().leaving = 1;
    CHECK(all[0]->has_left(1));
    all[1]->session().leave();
    CHECK(all[0]->told_by(1) == ", which has destroyed its communicator");
}

TEST_CASE("a message is unread until the peer has taken it") {
    const Options options = Options::from(nullptr);
    const auto all = connections_of(2, options);
    CHECK_FALSE(all[0]->unread(1));
    const Connection out = all[0]->connection(1, 0), in = all[1]->connection(0, 0);
    CHECK_FALSE(all[0]->unread(1));
    REQUIRE(out.sender->ready(false));
    out.sender->commit(Kind::inlined, 0, 1);
    CHECK(all[0]->unread(1));
    const auto soon = [](const auto& condition) {  // slow links take their time
        for (const Deadline limit = Clock::now() + std::chrono::seconds(10); Clock::now() < limit;)
            if (condition()) return true;
        return false;
    };
    REQUIRE(soon([&] { return in.receiver->ready(); }));
    in.receiver->release();
    CHECK(soon([&] { return !all[0]->unread(1); }));
}
