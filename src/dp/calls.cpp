#include "dp/calls.hpp"

#include <chrono>
#include <thread>

namespace tutti::dp {
namespace {

/// What comm says of itself once nothing of it goes on in the background.
tuttiResult_t settled(tuttiComm_t comm) {
    for (tuttiResult_t state = tuttiSuccess;; std::this_thread::sleep_for(std::chrono::microseconds(200))) {
        must(tuttiCommGetAsyncError(comm, &state));
        if (state != tuttiInProgress) return state;
    }
}

}  // namespace

tuttiComm_t split(tuttiComm_t comm, int color, int key, const tuttiConfig_t* config) {
    tuttiComm_t made = nullptr;
    const tuttiResult_t begun = tuttiCommSplit(comm, color, key, &made, config);
    if (begun != tuttiInProgress) return must(begun), made;
    tuttiResult_t state = settled(comm);
    if (made != nullptr) state = settled(made);
    if (state == tuttiSuccess) return made;
    const Error error(state, tuttiGetLastError(made != nullptr ? made : comm));
    if (made != nullptr) tuttiCommDestroy(made);
    throw error;
}

}  // namespace tutti::dp
