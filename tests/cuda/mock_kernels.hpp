// Kernels that are functions of the tests, registered as nvcc's objects register theirs, in the place of the
// interpreter of PTX: so that the runtime is tested alone.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "internal.hpp"

namespace tutti::on_hosts {

/// A fatbin of one PTX text.
class Fatbin {
  public:
    Fatbin(const std::string& text, unsigned architecture, bool compressed = false);
    void add(const std::string& text, unsigned architecture, bool compressed = false);
    void* wrapper();

  private:
    std::vector<unsigned char> bytes_;
    struct {
        unsigned magic = 0x466243b1, version = 1;
        const void* container = nullptr;
        const void* more = nullptr;
    } wrapper_;
};

/// A kernel that takes one pointer. Its blocks call work(pointer, number of the block).
class MockKernel {
  public:
    using Work = std::function<void(void*, unsigned)>;
    /// Bounds: what its head says, such as ".minnctapersm 2".
    MockKernel(std::string name, Work work, const std::string& bounds = "");
    /// What cudaLaunchKernel and others take.
    const void* stub() const { return this; }
    cudaError_t launch(cudaStream_t stream, unsigned blocks = 1, unsigned threads = 32, void* argument = nullptr) const;
    const std::string& name() const { return name_; }

  private:
    const std::string name_;
    Fatbin fatbin_;
};

/// Where kernels wait, until it is opened. Also by its destruction.
class Gate {
  public:
    void pass();  // for kernels; throws where that takes half a minute
    void open();
    void await(int arrivals);  // for the test
    bool opened() const;

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    int arrived_ = 0;
    bool open_ = false;
};

/// What is enqueued now.
std::string snapshot();
/// Whether any block of the kernel has begun and the kernel has not ended.
bool begun(const MockKernel& kernel);
/// Whether it is enqueued.
bool waiting(const MockKernel& kernel);

struct Outcome {
    int status;  // as of waitpid
    std::string output;
};
/// Runs one test case of this program in a process of its own.
Outcome in_other_process(const std::string& test, const std::vector<std::string>& environment);

}  // namespace tutti::on_hosts
