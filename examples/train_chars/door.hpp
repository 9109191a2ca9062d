// How a rank that comes later finds those that train: by files that all of them see.
#pragma once

#include <tutti/tutti.h>

#include <string>

/// At a door "d" a newcomer knocks with a file d.knock, and one of those inside answers with d.id, which is secret.
/// Collective, after a step: whether somebody has come, and then a communicator with that rank as its last one; else
/// NULL. Throws what Tutti says of a call that failed.
tuttiComm_t let_in(const std::string& door, tuttiComm_t comm);

/// The newcomer's. Throws if nobody answers within a minute.
tuttiComm_t enter(const std::string& door);
