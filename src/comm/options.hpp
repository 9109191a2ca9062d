// What a communicator was asked to be.
#pragma once

#include <chrono>
#include <string>

#include "tutti/tutti.h"

namespace tutti {

/// By which a rank shares its large calls; parallel: what lends the caller's own, see tuttiParallel_t.
struct Threads {
    int number = 1;
    tuttiParallel_t parallel = nullptr;
    void* context = nullptr;
};

/// tuttiConfig_t over the environment over the defaults.
struct Options {
    std::chrono::milliseconds timeout;
    std::chrono::milliseconds init_timeout;
    bool check;
    std::string algorithm;
    std::string transport;
    std::string name;
    int device = -1;  // the rank's GPU; -1: it is on the CPU
    bool reproducible = false;
    int channels = 0;      // 0: as the tuner says
    std::string programs;  // files of user algorithms, separated by ':'
    bool blocking = true;  // functions that make or end communicators return when they have done so
    Threads threads;

    /// config may be null. Throws tuttiInvalidArgument that names the field.
    static Options from(const tuttiConfig_t* config);
};

}  // namespace tutti
