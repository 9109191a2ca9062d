// A peer that is stopped while it copies from or to this rank's buffers: they are not given back before it has gone on
// or was killed, and where that takes too long the error says so.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/communicator.hpp"
#include "comm/driver.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using harness::check;

namespace {

Options with_timeout(int ms) {
    Options options = Options::from(nullptr);
    options.timeout = std::chrono::milliseconds(ms);
    return options;
}

/// What the rank shows to the others.
RankPage& page_of(Communicator& comm) {
    return comm.connections().page();
}

void all_reduce(Communicator& comm) {
    float in = 1, out = 0;
    Operation o;
    o.collective = Collective::all_reduce;
    o.type = DataType::float32;
    o.op = ReduceOp::sum;
    o.count = 1;
    o.input = &in;
    o.output = &out;
    run_one(comm, o);
    check(out == static_cast<float>(comm.ranks()), "the sum is wrong");
}

std::vector<std::unique_ptr<Communicator>> linked_pair(int timeout_ms) {
    auto comms = Communicator::in_process(2, with_timeout(timeout_ms));
    harness::run(2, [&](int r) { all_reduce(*comms[static_cast<std::size_t>(r)]); });
    return comms;
}

}  // namespace

TEST_CASE("a rank that gives up gets its buffers back when its peers have ended what they copy") {
    const auto comms = linked_pair(60'000);
    page_of(*comms[1]).touching[0] = 1;
    std::atomic<bool> ended{false}, waited{false};
    std::thread gives_up([&] {
        comms[0]->faults().fail(Error(tuttiRemoteError, "enough"));
        waited = ended.load();
    });
    while (page_of(*comms[0]).closed == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // so that it is seen if it does not wait so long
    ended = true;
    page_of(*comms[1]).touching[0] = 0;
    gives_up.join();
    CHECK(waited);
    CHECK(comms[0]->faults().fault()->text == "enough");
}

TEST_CASE("an error says who may still use the buffers, if that does not end") {
    const auto comms = linked_pair(3000);
    page_of(*comms[1]).touching[0] = 1;
    std::string said;
    try {
        all_reduce(*comms[0]);
    } catch (const Error& error) {
        said = error.what();
    }
    CAPTURE(said);
    CHECK(said.find("rank 0 waited") != std::string::npos);
    CHECK(said.find("rank 1") != std::string::npos);
    CHECK(said.find("may be stopped inside a copy from or to buffers of rank 0") != std::string::npos);
    page_of(*comms[1]).touching[0] = 0;
}

#ifndef __SANITIZE_THREAD__  // which ends a process that makes threads after a fork
TEST_CASE("a process that was killed while it copied is not waited for, one that was stopped is named") {
    const int how = GENERATE(SIGKILL, SIGSTOP);
    CAPTURE(how);
    tuttiUniqueId id;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    pid_t children[2];
    for (int rank = 0; rank < 2; ++rank) {
        children[rank] = fork();
        if (children[rank] != 0) continue;
        std::string said;
        try {
            const auto comm =
                Communicator::join(Identity::from(id), rank, 2, with_timeout(how == SIGKILL ? 60'000 : 3000));
            for (int i = 0; i < 3; ++i) all_reduce(*comm);
            if (rank == 1) {
                page_of(*comm).touching[0] = 1;
                kill(getpid(), how);
            }
            for (;;) all_reduce(*comm);
        } catch (const std::exception& error) {
            said = error.what();
        }
        const bool warned = said.find("may be stopped inside a copy from or to buffers of rank 0") != std::string::npos;
        if (warned != (how == SIGSTOP)) fprintf(stderr, "rank %d: %s\n", rank, said.c_str());
        _exit(warned == (how == SIGSTOP) ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(children[0], &status, 0) == children[0]);
    CHECK(status == 0);
    kill(children[1], SIGKILL);
    REQUIRE(waitpid(children[1], &status, 0) == children[1]);
}
#endif
