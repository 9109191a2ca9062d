// Parameter servers whose peers say what they can't mean.
#include <algorithm>
#include <cmath>
#include <functional>

#include "dp/on_ranks.hpp"
#include "dp/ps/client.hpp"
#include "dp/ps/server.hpp"
#include "harness/catch.hpp"
#include "harness/no_mappings.hpp"

using namespace tutti;
using namespace tutti::dp::ps;
using namespace tutti::harness;

namespace {

using HeaderKind = Header::Kind;

struct Job {
    Settings settings;
    Table table;
};

/// Rank 0 serves one key for rank 1.
Job one_key(std::size_t count = 10) {
    tuttiPsConfig_t config = TUTTI_PS_CONFIG_INITIALIZER;
    config.servers = 1;
    config.dedicated = 1;
    config.optimizer.kind = tuttiDpSgd;
    config.threads = 1;
    config.timeoutMs = 20000;
    config.partBytes = std::max(config.partBytes, 4 * count);
    const tuttiPsKey_t key{"key", count, tuttiFloat32, nullptr};
    Job job{read_settings(&config, 2), {}};
    job.table = deal(read_keys(&key, 1, job.settings), job.settings.partBytes, 1);
    return job;
}

/// Runs both ends of a link, each on a thread of its own.
template <class Worker, class Serves>
void on_link(Worker worker, Serves serves) {
    tuttiUniqueId ids[2];
    for (tuttiUniqueId& id : ids) must_succeed(tuttiGetUniqueId(&id), "id");
    harness::run(2, [&](int r) {
        Link link;
        link.worker = link.server = 0;
        link.up = harness::join(ids[0], r, 2, true);
        link.down = harness::join(ids[1], r, 2, true);
        r == to_worker ? worker(std::move(link)) : serves(std::move(link));
    });
}

Header of(HeaderKind kind, std::uint32_t part = 0) {
    Header header{kind};
    header.part = part;
    return header;
}

/// What a worker is told that pulls the key, and is answered so.
std::string answered(const std::function<void(Header request, tuttiComm_t down)>& answer) {
    std::string told;
    on_link(
        [&](Link link) {
            const Job job = one_key();
            std::vector<Link> links;
            links.push_back(std::move(link));
            Client client(job.settings, job.table, std::move(links));
            client.start();
            std::vector<float> values(10, NAN);
            try {
                client.wait(client.request("pull", 0, nullptr, values.data()));
            } catch (const Error& error) {
                told = error.what();
            }
        },
        [&](Link link) {
            answer(receive<Header>(link.up, to_worker), link.down);
            Header end = of(HeaderKind::beat);
            while (tuttiRecv(&end, sizeof end, tuttiUint8, to_worker, link.up, nullptr) == tuttiSuccess) {
            }
            link.abort();
        });
    return told;
}

}  // namespace

TEST_CASE("Servers: an answer that can't be meant ends the link, and names the server") {
    const auto with = [](auto change) {
        return answered([&](Header header, tuttiComm_t down) {
            header.kind = HeaderKind::values;
            change(header);
            send(down, to_worker, header);
        });
    };
    const auto names = [](const std::string& told, const char* why) {
        CAPTURE(told, why);
        CHECK(told.find("the server on rank 0") != std::string::npos);
        CHECK(told.find(why) != std::string::npos);
    };
    names(with([](Header& h) { h.part = 7; }), "nobody waits for");
    names(with([](Header& h) { ++h.ticket; }), "nobody waits for");
    names(with([](Header& h) { h.number = -5; }), "below 0");
    names(with([](Header& h) { h.kind = HeaderKind::push; }), "is none");
    names(with([](Header& h) { h.kind = HeaderKind::snapshot; }), "is none");
    names(with([](Header& h) { h.kind = HeaderKind::stored; }), "is none");
    names(with([](Header& h) { h.kind = static_cast<HeaderKind>(77); }), "is none");
    names(with([](Header& h) { h.kind = HeaderKind::bye; }), "too early");
}

TEST_CASE("Servers: words without an end, and a code that there is not") {
    for (const HeaderKind kind : {HeaderKind::refusal, HeaderKind::failure}) {
        const std::string told = answered([&](Header header, tuttiComm_t down) {
            header.kind = kind;
            header.code = 12345;
            Text words;
            std::fill(std::begin(words.words), std::end(words.words), 'x');
            send(down, to_worker, header);
            send(down, to_worker, words);
        });
        CHECK(told.find(std::string(479, 'x')) != std::string::npos);
        CHECK(told.find(std::string(480, 'x')) == std::string::npos);
    }
}

TEST_CASE("Servers: a worker whose requests can't be meant is dropped") {
    const std::vector<std::function<void(tuttiComm_t)>> all = {
        [](tuttiComm_t up) { send(up, to_server, of(HeaderKind::pull, 1)); },
        [](tuttiComm_t up) { send(up, to_server, of(HeaderKind::push, 0xffff'ffff)); },
        [](tuttiComm_t up) { send(up, to_server, of(HeaderKind::fetch, 1)); },
        [](tuttiComm_t up) { send(up, to_server, of(HeaderKind::stored)); },
        [](tuttiComm_t up) { send(up, to_server, of(HeaderKind::values)); },
        [](tuttiComm_t up) { send(up, to_server, of(static_cast<HeaderKind>(99))); },
        [](tuttiComm_t up) {  // less than the header says, which the communicator refuses
            send(up, to_server, of(HeaderKind::push));
            const float gradient[5] = {};
            tuttiSend(gradient, sizeof gradient, tuttiUint8, to_server, up, nullptr);
        }};
    for (const auto& say : all)
        on_link(
            [&](Link link) {
                say(link.up);
                Header answer;
                while (tuttiRecv(&answer, sizeof answer, tuttiUint8, to_server, link.down, nullptr) == tuttiSuccess)
                    harness::check(answer.kind == HeaderKind::beat, "no answer but a sign of life");
                link.abort();
            },
            [&](Link link) {
                const Job job = one_key();
                std::vector<Link> links;
                links.push_back(std::move(link));
                Server server(job.settings, job.table, 0, std::move(links));
                server.start();
                server.wait();
                tuttiPsStatistics_t statistics = TUTTI_PS_STATISTICS_INITIALIZER;
                server.add_to(statistics);
                harness::check(statistics.lost == 1 && statistics.workers == 0, "it is dropped");
                harness::check(statistics.updates == 0, "nothing is applied");
            });
}

#if TUTTI_TEST_CAN_FORBID_MAPPINGS
TEST_CASE("Servers: a worker that is dropped because its server has no memory is told so") {
    constexpr std::size_t count = 16 << 20;
    std::string told;
    on_link(
        [&](Link link) {
            harness::check(receive<Header>(link.down, to_server).kind == HeaderKind::beat, "the server has begun");
            const harness::NoMappings poor(count);  // a fourth of a gradient
            send(link.up, to_server, of(HeaderKind::push));
            Header answer = of(HeaderKind::beat);
            while (answer.kind == HeaderKind::beat) answer = receive<Header>(link.down, to_server);
            harness::check(answer.kind == HeaderKind::failure && answer.code == tuttiSystemError, "a failure");
            told = receive<Text>(link.down, to_server).words;
            link.abort();
        },
        [&](Link link) {
            const Job job = one_key(count);
            std::vector<Link> links;
            links.push_back(std::move(link));
            Server server(job.settings, job.table, 0, std::move(links));
            server.start();
            const auto begin = Clock::now();
            server.wait();
            harness::check(Clock::now() - begin < std::chrono::seconds(15), "the worker's end is noticed");
        });
    INFO(told);
    CHECK(told.find("memory") != std::string::npos);
}
#endif
