// The options of a communicator.
#pragma once

#include <chrono>
#include <string>

#include "tutti/tutti.h"

namespace tutti {

/// The threads that share a rank's large calls. parallel: lends the caller's own, see tuttiParallel_t; nullptr if the
/// library starts them.
struct Threads {
    int number = 1;
    tuttiParallel_t parallel = nullptr;
    void* context = nullptr;
};

/// A communicator's options: those of tuttiConfig_t, else of the environment, else the defaults.
struct Options {
    std::chrono::milliseconds timeout;
    std::chrono::milliseconds init_timeout;
    bool check;
    std::string algorithm;
    std::string transport;
    std::string name;
    int device = -1;  // the rank's GPU; -1: it is on the CPU
    bool reproducible = false;
    int channels = 0;      // 0: the tuner chooses
    std::string programs;  // files of user algorithms, separated by ':'
    bool blocking = true;  // functions that make or end communicators return only when that is done
    Threads threads;
    bool zero_cta = false;  // copy engines run what they can; the same on all ranks once they have met

    /// config may be null. Throws tuttiInvalidArgument that names the field.
    static Options from(const tuttiConfig_t* config);
};

}  // namespace tutti
