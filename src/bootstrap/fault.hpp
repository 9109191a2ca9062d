// What has befallen a job.
#pragma once

#include <string>

#include "base/types.hpp"
#include "tutti/tutti.h"

namespace tutti {

/// What has gone wrong, and which rank is behind it.
struct Fault {
    tuttiResult_t code = tuttiSuccess;
    Rank origin = -1;  // the rank that died or failed; -1 if none is known
    std::string text;
    Rank teller = -1;     // the rank that noticed; -1 if the rendezvous did
    bool died = false;    // the origin's process has ended, or its host is silent (see silent)
    bool silent = false;  // the origin's host does not answer, so all its ranks count as dead
};

inline constexpr const char* no_memory = "out of memory";  // fits into a string without an allocation

/// A copy of fault. If memory is short its text is no_memory.
Fault copy_of(const Fault& fault) noexcept;

}  // namespace tutti
