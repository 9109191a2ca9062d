// Calls of the C API from C++: results become exceptions.
#pragma once

#include <cstdint>
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

/// What a rank says of itself.
struct Verdict {
    tuttiResult_t code = tuttiSuccess;
    char words[500] = "";

    template <class Body>
    static Verdict of(Body body) {
        Verdict mine;
        mine.code = guarded(body);
        if (mine.code != tuttiSuccess) std::snprintf(mine.words, sizeof mine.words, "%s", last_error());
        return mine;
    }
};

/// The verdicts of all ranks; none where nobody refuses, which takes one byte.
inline std::vector<Verdict> verdicts(tuttiComm_t comm, int ranks, const Verdict& mine) {
    std::uint8_t refused = mine.code != tuttiSuccess;
    must(tuttiAllReduce(&refused, &refused, 1, tuttiUint8, tuttiMax, comm, nullptr));
    return refused ? exchange(comm, ranks, mine) : std::vector<Verdict>{};
}

/// Throws the first refusal.
inline void judge(const std::vector<Verdict>& all) {
    for (std::size_t r = 0; r < all.size(); ++r)
        if (all[r].code != tuttiSuccess) fail(all[r].code, "on rank %zu: %s", r, all[r].words);
}

/// body throws or not; then all ranks do: tuttiInvalidUsage, with the first one's text.
template <class Body>
void all_or_none(tuttiComm_t comm, int ranks, Body body) {
    Verdict mine = Verdict::of(body);
    if (mine.code != tuttiSuccess) mine.code = tuttiInvalidUsage;
    judge(verdicts(comm, ranks, mine));
}

}  // namespace tutti::dp
