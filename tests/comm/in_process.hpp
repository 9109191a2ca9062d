// Ranks of this process that know each other, without communicators around them.
#pragma once

#include <unistd.h>

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/service.hpp"
#include "comm/connections.hpp"
#include "tutti/tutti.h"

namespace tutti::harness {

/// On CPUs. options outlives them.
inline std::vector<std::unique_ptr<Connections>> connections_of(int ranks, const Options& options) {
    const std::vector<std::shared_ptr<Session>> sessions =
        Session::in_process(std::vector<std::vector<std::byte>>(static_cast<std::size_t>(ranks)));
    std::vector<std::shared_ptr<Arena>> arenas;
    SimilarRows<EndpointInfo> infos;
    SimilarRows<gpu::EndpointInfo> gpus;
    for (int rank = 0; rank < ranks; ++rank) {
        arenas.push_back(Arena::make(ranks, false));
        infos.push_back({host_id(), process_id(), arenas.back()->key(), getpid(), TUTTI_VERSION_CODE});
        gpus.push_back({});
    }
    std::vector<std::unique_ptr<Connections>> all;
    for (std::size_t rank = 0; rank < sessions.size(); ++rank)
        all.push_back(std::make_unique<Connections>(Neighbourhood{sessions[rank], arenas[rank], infos}, gpus, options));
    return all;
}

}  // namespace tutti::harness
