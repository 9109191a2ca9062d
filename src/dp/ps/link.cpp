#include "dp/ps/link.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"

namespace tutti::dp::ps {
namespace {

tuttiConfig_t link_config(const Settings& s, const char* name) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = TUTTI_DEVICE_CPU;
    config.blocking = 1;
    config.timeoutMs = s.timeoutMs;
    config.commName = name;
    return config;
}

/// Makes both ends of a link of a rank to itself.
void join_itself(const tuttiConfig_t& config, tuttiComm_t& workers, tuttiComm_t& servers) {
    tuttiUniqueId id;
    must(tuttiGetUniqueId(&id));
    try {
        in_group([&] {
            must(tuttiCommInitRankConfig(&workers, 2, id, 0, &config));
            must(tuttiCommInitRankConfig(&servers, 2, id, 1, &config));
        });
    } catch (...) {  // maybe before anybody has used the id: to join alone closes the place that it stands for
        tuttiComm_t alone = nullptr;
        if (tuttiCommInitRankConfig(&alone, 1, id, 0, &config) == tuttiSuccess) tuttiCommDestroy(alone);
        throw;
    }
}

}  // namespace

Link::Link(Link&& other) noexcept
    : worker(other.worker),
      server(other.server),
      up(std::exchange(other.up, nullptr)),
      down(std::exchange(other.down, nullptr)),
      aborted_(other.aborted_.load()) {}

Link::~Link() {
    if (aborted_) return;
    for (tuttiComm_t comm : {up, down})
        if (comm != nullptr) tuttiCommDestroy(comm);
}

void Link::abort() noexcept {
    if (aborted_.exchange(true)) return;
    for (tuttiComm_t comm : {up, down})
        if (comm != nullptr) tuttiCommAbort(comm);
}

void send(tuttiComm_t comm, int peer, const void* data, std::size_t bytes) {
    must(tuttiSend(data, bytes, tuttiUint8, peer, comm, nullptr));
}

void receive(tuttiComm_t comm, int peer, void* data, std::size_t bytes) {
    must(tuttiRecv(data, bytes, tuttiUint8, peer, comm, nullptr));
}

std::vector<std::size_t> rounds_of(const std::vector<std::pair<int, int>>& pairs, int ranks) {
    std::vector<std::vector<bool>> busy;  // by round and rank: whether the rank is in a pair of the round
    std::vector<std::size_t> rounds;
    for (const auto& [a, b] : pairs) {
        const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
        const auto free = [&](const std::vector<bool>& round) { return !round[x] && !round[y]; };
        const auto found = std::ranges::find_if(busy, free);
        rounds.push_back(static_cast<std::size_t>(found - busy.begin()));
        if (found == busy.end()) busy.emplace_back(static_cast<std::size_t>(ranks), false);
        busy[rounds.back()][x] = busy[rounds.back()][y] = true;
    }
    return rounds;
}

Links make_links(const Ranks& ranks, const Settings& settings) {
    const int here = ranks.rank();
    Links links;
    if (settings.worker_of(here) >= 0) links.as_worker.resize(settings.server_ranks.size());
    if (settings.server_of(here) >= 0) links.as_server.resize(settings.worker_ranks.size());
    struct Edge {
        std::size_t worker, server;
        tuttiComm_t Link::*way;
    };
    std::vector<Edge> edges;
    std::vector<std::pair<int, int>> pairs;
    for (std::size_t w = 0; w < settings.worker_ranks.size(); ++w)
        for (std::size_t s = 0; s < settings.server_ranks.size(); ++s)
            for (const auto way : {&Link::up, &Link::down}) {
                const int works = settings.worker_ranks[w], serves = settings.server_ranks[s];
                const std::string name = text("worker on rank %d, server on rank %d", works, serves);
                const auto of = [&](std::vector<Link>& all, std::size_t i) -> tuttiComm_t& {
                    all[i].worker = static_cast<int>(w);
                    all[i].server = static_cast<int>(s);
                    return all[i].*way;
                };
                if (works != serves) {
                    edges.push_back({w, s, way});
                    pairs.emplace_back(works, serves);
                } else if (works == here) {
                    join_itself(link_config(settings, name.c_str()), of(links.as_worker, s), of(links.as_server, w));
                }
            }
    const std::vector<std::size_t> rounds = rounds_of(pairs, ranks.size());
    const std::size_t count = rounds.empty() ? 0 : *std::ranges::max_element(rounds) + 1;
    for (std::size_t round = 0; round < count; ++round) {
        tuttiComm_t* made = nullptr;
        tuttiComm_t none = nullptr;
        int color = TUTTI_SPLIT_NOCOLOR;
        bool serves = false;
        std::string name;
        for (std::size_t e = 0; e < edges.size(); ++e) {
            serves = pairs[e].second == here;
            if (rounds[e] != round || (!serves && pairs[e].first != here)) continue;
            Link& link = serves ? links.as_server[edges[e].worker] : links.as_worker[edges[e].server];
            link.worker = static_cast<int>(edges[e].worker);
            link.server = static_cast<int>(edges[e].server);
            made = &(link.*edges[e].way);
            name = text("worker on rank %d, server on rank %d", pairs[e].first, pairs[e].second);
            color = static_cast<int>(e);
            break;
        }
        const tuttiConfig_t config = link_config(settings, name.c_str());
        must(tuttiCommSplit(ranks.cpu_comm(), color, serves ? to_server : to_worker, made != nullptr ? made : &none,
                            &config));
    }
    return links;
}

}  // namespace tutti::dp::ps
