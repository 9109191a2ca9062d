// What train_chars needs of GPUs: memory, streams, and work on them. gpu.cu has it from CUDA; in a build without CUDA
// no_gpu.cpp finds none; the tests have GPUs that are made of host threads (tests/dp/emulated_training.cpp). Throws
// std::runtime_error that names what failed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels.hpp"

namespace gpu {

/// How many there are; 0: why says why. used: how many this process will use, of which several may be one GPU.
int count(int used, std::string& why);

struct Stream {
    int device = 0;
    void* handle = nullptr;  // what Tutti takes for a stream
};
Stream make_stream(int device);
void destroy(Stream stream) noexcept;
/// What comes on `later` from now on runs after all that is on `earlier` by now.
void follow(Stream later, Stream earlier);

void* allocate(int device, std::size_t bytes);  // zeroed
void release(int device, void* memory) noexcept;
void upload(Stream stream, void* to, const void* from, std::size_t bytes);    // done on return, and
void download(Stream stream, void* to, const void* from, std::size_t bytes);  // so is all that was on the stream

void run(Stream stream, const kernels::Work& work);

/// Numbers in a GPU's memory.
template <class T>
class Memory {
  public:
    Memory(int device, std::size_t count)
        : device_(device),
          count_(count),
          data_(static_cast<T*>(allocate(device, (count > 0 ? count : 1) * sizeof(T)))) {}
    Memory(Stream stream, const std::vector<T>& values) : Memory(stream.device, values.size()) {
        upload(stream, data_, values.data(), values.size() * sizeof(T));
    }
    ~Memory() { release(device_, data_); }
    Memory(const Memory&) = delete;

    T* data() const { return data_; }
    std::size_t count() const { return count_; }

  private:
    int device_;
    std::size_t count_;
    T* data_;
};

}  // namespace gpu
