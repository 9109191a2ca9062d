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
