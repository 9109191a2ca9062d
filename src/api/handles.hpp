// What the opaque handles of the C API point to. A handle's memory is never given back, so a destroyed one is known as
// such.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "comm/group.hpp"

namespace tutti {

struct PremultipliedSum {
    DataType type;
    const void* scalar;       // read when the operation runs; nullptr: immediate
    std::uint64_t immediate;  // the bytes of one element
    bool alive;
};

}  // namespace tutti

struct tuttiComm {
    static constexpr std::uint32_t living = 0x54754331, dead = 0x54754330;
    std::atomic<std::uint32_t> magic{living};
    std::shared_ptr<tutti::Turnstile> turnstile;  // the communicator's; outlives it
    tutti::CommunicatorPtr comm;  // null once destroyed; changed inside the turnstile and under mutex, so either
                                  // will do to read it
    std::mutex mutex;
    bool finalized = false;
    bool checks = false;  // Options::check
    bool on_gpu = false;
    std::vector<tutti::PremultipliedSum> ops;
};

namespace tutti {

/// Throws tuttiInvalidArgument for null, destroyed and foreign handles.
tuttiComm& checked(tuttiComm_t handle);
CommunicatorPtr communicator(tuttiComm_t handle);

tuttiComm_t new_handle(CommunicatorPtr comm);

StreamPtr stream_of(tuttiStream_t handle);  // null for the null stream
tuttiStream_t new_stream();
void destroy_stream(tuttiStream_t handle);

}  // namespace tutti
