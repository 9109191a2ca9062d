// How a rank that comes later finds those that train: by files that all of them see.
#pragma once

#include <tutti/tutti.h>

#include <string>

/// At a rendezvous "d" a newcomer makes a file d.request, and rank 0 answers with d.id, a unique id, which is secret.
/// Both have a number in them that the newcomer has made up, so that nobody takes an answer for somebody else's.
/// Collective, after a step: if there is a request, a communicator with the newcomer as its last rank, else NULL, also
/// if the newcomer did not come: then comm is as it was. Throws what Tutti says of a call that failed.
tuttiComm_t admit(const std::string& rendezvous, tuttiComm_t comm);

/// The newcomer's part. Throws if nobody answers within a minute.
tuttiComm_t join(const std::string& rendezvous);
