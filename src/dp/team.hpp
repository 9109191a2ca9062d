// Ranks that have told each other who they are, and are going to work together.
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
