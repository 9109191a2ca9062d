// Calls of the C API from C++: results become exceptions.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "tutti/tutti.h"

namespace tutti::dp {

inline tuttiDataType_t c_type(DataType type) {
    return static_cast<tuttiDataType_t>(type);
}

/// Throws the error of a call of the C API.
inline void must(tuttiResult_t result) {
    if (result != tuttiSuccess) throw Error(result, last_error());
}

/// Splits a communicator from comm, and waits until it is made, also where comm or the environment has that go on in
/// the background. nullptr without a color. Collective.
tuttiComm_t split(tuttiComm_t comm, int color, int key, const tuttiConfig_t* config = nullptr);

/// Issues the calls that body makes as one group.
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

}  // namespace tutti::dp
