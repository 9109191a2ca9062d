// What other users of a host can do with the ports that communicators open.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "comm/communicator.hpp"
#include "comm/driver.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "harness/ports.hpp"

using namespace tutti;
using namespace tutti::bootstrap;

namespace {

Bytes take(const Fd& fd, std::size_t size) {
    Bytes all;
    pollfd ready{fd.get(), POLLIN, 0};
    while (all.size() < size && poll(&ready, 1, 5000) > 0) {
        std::byte buffer[128];
        const ssize_t got = recv(fd.get(), buffer, std::min(sizeof buffer, size - all.size()), 0);
        if (got <= 0) break;
        append(all, View(buffer, static_cast<std::size_t>(got)));
    }
    return all;
}

/// Whether the listener authenticates with that key. An attacker checks guessed keys in this way offline.
bool has_key(const Address& port, const Secret& key, std::uint64_t tag) {
    const Fd fd = connect_to(port);
    pollfd ready{fd.get(), POLLOUT, 0};
    poll(&ready, 1, 5000);
    const Handshake asks(key, tag, true);
    const Bytes hello = asks.hello();
    if (send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL) < 0) return false;
    const Bytes answer = take(fd, hello_size + proof_size);
    Handshake checks = asks;
    return answer.size() == hello_size + proof_size && checks.read_hello(View(answer).first(hello_size)) &&
           checks.check_proof(View(answer).subspan(hello_size));
}

}  // namespace

TEST_CASE("no port has a key that follows from what everybody can know") {
    constexpr int ranks = 2;
    // Without TUTTI_SECRET: a hash of this address, the user and a count.
    const Identity identity = Identity::at("127.0.0.1:29517");
    Options options = Options::from(nullptr);
    options.transport = "tcp";
    std::vector<std::unique_ptr<Communicator>> comms(ranks);
    harness::run(ranks, [&](int rank) {
        comms[static_cast<std::size_t>(rank)] = Communicator::join(identity, rank, ranks, options);
    });
    const Secret guess = Rendezvous::of(identity).secret, members = guess.derive("tutti members");
    const Secret right = comms[0]->session().secret("tutti data");
    CHECK(std::ranges::equal(right.view(), comms[1]->session().secret("tutti data").view()));
    bool opened = false;
    for (const Address& port : harness::open_ports())
        for (std::uint64_t rank = 0; rank < ranks; ++rank) {
            const std::uint64_t tag = std::uint64_t{1} << 33 | rank;  // that of data connections
            opened = opened || has_key(port, right, tag);
            for (const std::uint64_t t : {tag, rank})
                for (const Secret& g : {guess, members, members.derive("tutti data")}) CHECK_FALSE(has_key(port, g, t));
        }
    CHECK(opened);  // there was a port, and its key is another one
}

TEST_CASE("a rank's port for data stays for those that may have to connect again, and closes with its communicator") {
    constexpr int ranks = 3;
    Options options = Options::from(nullptr);
    options.transport = "tcp";
    const std::size_t before = harness::open_ports().size();
    auto comms = Communicator::in_process(ranks, options);
    CHECK(harness::open_ports().size() == before + 2);  // of two ranks the lower one dials
    std::uint8_t in[ranks * ranks] = {}, out[ranks * ranks] = {};
    harness::run(ranks, [&](int rank) {
        Operation o;
        o.collective = Collective::all_to_all;
        o.type = DataType::uint8;
        o.count = 1;
        o.input = in + rank * ranks;
        o.output = out + rank * ranks;
        run_one(*comms[static_cast<std::size_t>(rank)], o);
    });
    CHECK(harness::open_ports().size() == before + 2);
    for (auto& comm : comms) comm.reset();
    const Deadline limit = Clock::now() + std::chrono::minutes(2);
    while (harness::open_ports().size() > before && Clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(harness::open_ports().size() == before);
}
