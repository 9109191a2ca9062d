// Built into a libtutti.so.0 whose GPUs are emulated ones (tests/harness/emulated_gpus.hpp): the function through which
// device.cpp makes them a kind of device for torch.
#include "gpus.h"

#include "harness/emulated_gpus.hpp"

namespace {

tutti::harness::EmulatedGpus& emulated() {
    static auto* const gpus = new tutti::harness::EmulatedGpus(2);  // for as long as the process lives
    return *gpus;
}

const bool installed = [] {
    tutti::gpu::use_gpus(&emulated());
    return true;
}();

}  // namespace

int emulated_devices() {
    return installed ? emulated().count() : 0;
}
void* emulated_stream(int device) {
    return emulated().make_stream(device);
}
void emulated_synchronize(void* stream) {
    emulated().synchronize_stream(stream);
}
void emulated_call(int device, void (*work)(void*), void* argument, void* stream) {
    emulated().call(device, work, argument, stream);
}
void* emulated_allocate(int device, size_t bytes) {
    return emulated().allocate(device, bytes);
}
void emulated_free(int device, void* memory) {
    emulated().free(device, static_cast<std::byte*>(memory));
}
