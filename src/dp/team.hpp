// The ranks of a communicator after they have exchanged the roster, before the layer's communicators are made.
#pragma once

#include <vector>

#include "dp/engine.hpp"

namespace tutti::dp {

struct Engine::Team {
    tuttiComm_t comm;
    Ranks::Roster roster;
    std::vector<Shards> shards;  // by rank
};

}  // namespace tutti::dp
