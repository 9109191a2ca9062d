// What the extension needs of libtutti: errors as exceptions, communicators, and memory that peers can map.
#pragma once

#include <tutti/tutti.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torch.hpp"

namespace tutti_torch {

using Milliseconds = std::chrono::milliseconds;

/// Throws what Tutti says of a call that failed; torch.distributed.DistBackendError where torch has it, else
/// RuntimeError.
void must(tuttiResult_t result, const char* operation);
[[noreturn]] void fail(const std::string& text);

/// What a group's communicators are told beside their ranks (tuttiConfig_t). What is not set is the library's default.
struct Settings {
    std::optional<std::string> algorithm, transport, programs;
    std::optional<int> channels, threads;
    std::optional<bool> check, reproducible;
};

/// A communicator of Tutti's. One thread at a time uses it, except that any may revoke it.
class Communicator {
  public:
    /// Blocks until all ranks have come, at most for `timeout`. operation_timeout: how long an operation may wait.
    /// device: the GPU's number, or TUTTI_DEVICE_CPU.
    Communicator(const tuttiUniqueId& id, int rank, int size, Milliseconds timeout, Milliseconds operation_timeout,
                 const Settings& settings, int device = TUTTI_DEVICE_CPU);
    /// One that was made by a call of Tutti's; owned from now on.
    explicit Communicator(tuttiComm_t made) : comm_(made) {}
    ~Communicator();  // other ranks that still need this one are told
    Communicator(const Communicator&) = delete;

    tuttiComm_t get() const { return comm_; }
    /// Ends what is under way, here and on the other ranks.
    void revoke();
    /// A communicator of the ranks that live and are not excluded, made by all of them; nothing is under way. `abort`:
    /// this one may have failed. The caller owns it.
    tuttiComm_t shrunk(const std::vector<int>& excluded, bool abort, Milliseconds timeout,
                       Milliseconds operation_timeout, const Settings& settings);
    /// Throws what has befallen operations that were enqueued. Any thread.
    void check(const char* operation) const;
    /// The same as a code. Any thread.
    tuttiResult_t error() const;

  private:
    tuttiComm_t comm_ = nullptr;
};

/// The id that the rank for which `first` holds makes and the others read, under a key of the store. They look for it
/// again and again instead of waiting in the store, which would keep all other threads of the process out of it; `stop`
/// ends that with an exception.
tuttiUniqueId meet(c10d::Store& store, const std::string& key, bool first, Milliseconds timeout,
                   const std::function<bool()>& stop);

/// Waits until the store has the key, in the same way.
void await_key(c10d::Store& store, const std::string& key, Milliseconds timeout, const std::function<bool()>& stop);

/// A tensor in memory that peers can map (tuttiMemAlloc), and what allocates such memory for torch.
at::Tensor in_shared_memory(std::int64_t elements, at::TensorOptions options);
std::shared_ptr<c10::Allocator> shared_memory();

/// Memory kept for the next operation, as large as it ever had to be: such that peers can map it, or torch's on a
/// device, of the stream that is current when it is asked for.
class Memory {
  public:
    explicit Memory(c10::Device device = at::kCPU) : device_(device) {}
    ~Memory();
    Memory(const Memory&) = delete;

    c10::Device device() const { return device_; }
    void* at_least(std::size_t bytes);

  private:
    c10::Device device_;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
    at::Tensor on_device_;
};

}  // namespace tutti_torch
