// The target of the custom calls in programs that JAX has compiled, over XLA's FFI. Collectives are the extension
// module's (csrc/jax_call.hpp): what they know of communicators and of Python is there.
#include <cstdint>

#include "jax_call.hpp"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;

tutti::python::JaxRun run = nullptr;

// Operations are chained by tokens, in the order of the program, which is the same on all ranks.
ffi::Error collective(ffi::AnyBuffer x, ffi::Token, ffi::Result<ffi::AnyBuffer> out, ffi::Result<ffi::Token>,
                      int64_t comm, int64_t what, int64_t type, int64_t op, int64_t root, int64_t count) {
    tutti::python::JaxCall call{comm, what, type, op, root, count, x.untyped_data(), out->untyped_data(), {}};
    return run(call) ? ffi::Error::Success() : ffi::Error(ffi::ErrorCode::kAborted, call.error);
}

}  // namespace

extern "C" void tutti_jax_begin(tutti::python::JaxRun of) {
    run = of;
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(tutti_jax_collective, collective,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::Token>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::Token>()
                                  .Attr<int64_t>("comm")
                                  .Attr<int64_t>("what")
                                  .Attr<int64_t>("type")
                                  .Attr<int64_t>("op")
                                  .Attr<int64_t>("root")
                                  .Attr<int64_t>("count"));
