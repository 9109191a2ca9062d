// Calls of the C API from C++: results become exceptions.
#pragma once

#include <cstdio>
#include <vector>

#include "base/result.hpp"
#include "tutti/tutti.h"

namespace tutti::dp {

/// Throws the error of a call of the C API.
inline void must(tuttiResult_t result) {
    if (result != tuttiSuccess) throw Error(result, last_error());
}

/// The calls of body are issued together.
template <class Body>
void in_group(Body body) {
    must(tuttiGroupStart());
    try {
        body();
    } catch (...) {
        tuttiGroupEnd();
        throw;
    }
    must(tuttiGroupEnd());
}

/// What every rank has to say, by rank. T is plain data.
template <class T>
std::vector<T> exchange(tuttiComm_t comm, int ranks, const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(ranks));
    must(tuttiAllGather(&mine, all.data(), sizeof mine, tuttiUint8, comm, nullptr));
    return all;
}

/// body throws or not; then all ranks do, with the first one's text.
template <class Body>
void all_or_none(tuttiComm_t comm, int ranks, Body body) {
    struct Verdict {
        tuttiResult_t code;
        char words[500];
    } mine{tuttiSuccess, ""};
    if (guarded(body) != tuttiSuccess) {
        mine.code = tuttiInvalidUsage;
        std::snprintf(mine.words, sizeof mine.words, "%s", last_error().c_str());
    }
    const std::vector<Verdict> all = exchange(comm, ranks, mine);
    for (std::size_t r = 0; r < all.size(); ++r)
        if (all[r].code != tuttiSuccess) fail(all[r].code, "on rank %zu: %s", r, all[r].words);
}

}  // namespace tutti::dp
