// Errors: the last one of each thread, and what they are called.
#include <utility>

#include "internal.hpp"

namespace tutti::on_hosts {
namespace {

struct Named {
    cudaError_t code;
    const char *name, *text;
};
#define NAMED(code, text) \
    Named {               \
        code, #code, text \
    }
constexpr Named names[] = {
    NAMED(cudaSuccess, "no error"),
    NAMED(cudaErrorInvalidValue, "invalid argument"),
    NAMED(cudaErrorMemoryAllocation, "out of memory"),
    NAMED(cudaErrorInitializationError, "initialization error"),
    NAMED(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    NAMED(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    NAMED(cudaErrorMissingConfiguration, "a launch without its configuration"),
    NAMED(cudaErrorInvalidDeviceFunction, "invalid device function"),
    NAMED(cudaErrorNoDevice, "no GPU was found"),
    NAMED(cudaErrorInvalidDevice, "invalid device number"),
    NAMED(cudaErrorDeviceUninitialized, "invalid device context"),
    NAMED(cudaErrorMapBufferObjectFailed, "mapping the buffer failed"),
    NAMED(cudaErrorNoKernelImageForDevice, "no kernel image can be run on the device"),
    NAMED(cudaErrorPeerAccessUnsupported, "there is no peer access between these two devices"),
    NAMED(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    NAMED(cudaErrorIllegalState, "the resource is in a state that does not allow this"),
    NAMED(cudaErrorSymbolNotFound, "named symbol not found"),
    NAMED(cudaErrorNotReady, "device not ready"),
    NAMED(cudaErrorPeerAccessAlreadyEnabled, "peer access is enabled already"),
    NAMED(cudaErrorHostMemoryAlreadyRegistered, "a part of the memory is pinned already"),
    NAMED(cudaErrorHostMemoryNotRegistered, "the memory was not pinned"),
    NAMED(cudaErrorLaunchFailure, "a kernel or copy failed"),
    NAMED(cudaErrorNotPermitted, "not permitted"),
    NAMED(cudaErrorNotSupported, "not supported"),
    NAMED(cudaErrorStreamCaptureUnsupported, "not permitted while a stream is captured"),
    NAMED(cudaErrorStreamCaptureInvalidated, "an earlier error has invalidated the capture"),
    NAMED(cudaErrorStreamCaptureMerge, "it would merge two captures"),
    NAMED(cudaErrorStreamCaptureUnmatched, "the capture began in another stream"),
    NAMED(cudaErrorStreamCaptureUnjoined, "captured work that the first stream does not wait for"),
    NAMED(cudaErrorStreamCaptureIsolation, "captured work would depend on work outside"),
    NAMED(cudaErrorStreamCaptureImplicit, "it would depend on a capture through the legacy stream"),
    NAMED(cudaErrorCapturedEvent, "the event was last recorded in a capture"),
    NAMED(cudaErrorStreamCaptureWrongThread, "the capture began in another thread"),
};
#undef NAMED

const Named* found(cudaError_t code) {
    for (const Named& n : names)
        if (n.code == code) return &n;
    return nullptr;
}

}  // namespace
}  // namespace tutti::on_hosts

using namespace tutti::on_hosts;

extern "C" {

/// Another call begins from success, but where the device has failed.
cudaError_t cudaGetLastError() {
    const Lock lock = locked();
    return std::exchange(thread().last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
    const Lock lock = locked();
    return thread().last_error;
}

const char* cudaGetErrorName(cudaError_t code) {
    const Named* const named = found(code);
    return named == nullptr ? "unrecognized error code" : named->name;
}

const char* cudaGetErrorString(cudaError_t code) {
    const Named* const named = found(code);
    return named == nullptr ? "unrecognized error code" : named->text;
}
}
