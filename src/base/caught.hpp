// Whatever the library catches becomes an Error.
#pragma once

#include "base/result.hpp"

namespace tutti {

/// The exception that is being handled, as an Error: one by itself, std::bad_alloc and std::system_error as
/// tuttiSystemError, any other as tuttiInternalError. Call it in a catch block.
Error caught();

}  // namespace tutti
