// What a program that JAX has compiled asks of the package: between tutti/jax/target.cpp, which is compiled where it is
// used, for the XLA that is there, and the extension module. Both come from one wheel.
#pragma once
#include <cstdint>

namespace tutti::python {

/// One collective. The numbers of what: see tutti/jax.
struct JaxCall {
    int64_t comm;  // Communicator::number()
    int64_t what, type, op, root;
    int64_t count;  // as the C function takes it
    const void* in;
    void* out;
    char error[1024];  // why it has failed
};

/// Does it and waits, in whatever thread XLA has. Takes the GIL for the checks, not for the wait. False: call.error is
/// set.
using JaxRun = bool (*)(JaxCall& call);

}  // namespace tutti::python
