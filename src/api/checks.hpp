// What a call's arguments must satisfy before anything is issued.
#pragma once

#include "api/handles.hpp"

namespace tutti {

/// The arguments of a collective, send or receive as the user gave them.
struct Arguments {
    const char* function;
    Collective collective;
    const void* input;
    void* output;
    std::size_t count;
    tuttiDataType_t type;
    tuttiRedOp_t op;
    int root;
};

/// Throws tuttiInvalidArgument that names the function, the argument and what was expected. ops may only be used for
/// the call.
Operation check(const Arguments& arguments, const Communicator& comm, const std::vector<PremultipliedSum>& ops);

DataType check_type(const char* function, tuttiDataType_t type);

}  // namespace tutti
