// A kind of memory, and the arithmetic on it: the host's, or a GPU's with one stream. On the host a call is done when
// it returns. On a GPU calls are enqueued on the stream, in order; those that return a number wait for it. One thread
// at a time, except for allocate and free.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dp/optimizer.hpp"
#include "tutti/tutti.h"

namespace tutti::dp {

/// Elements side by side.
struct Run {
    DataType type;
    std::byte* at;
    std::size_t count;
};

class Backend {
  public:
    virtual ~Backend() = default;                        // sweeps
    virtual std::byte* allocate(std::size_t bytes) = 0;  // zeroed; throws what is lacking
    virtual void free(std::byte* memory) noexcept = 0;   // after what is enqueued here
    /// Gives back memory of GPUs and pinned memory that was freed. Waits for everything that the GPU has to do, which
    /// includes kernels of other ranks that may wait for this one: so free() alone does not.
    virtual void sweep() noexcept {}
    virtual bool frees_at_once() const { return true; }  // sweep() has nothing to do

    virtual tuttiStream_t stream() const = 0;            // for collectives on this memory
    virtual bool reaches(const void* memory) const = 0;  // whether the functions below work on it
    virtual void settle() = 0;                           // waits for everything that is enqueued
    /// A moment in this backend's stream; nullptr on hosts. What another backend enqueues after follow() comes after
    /// it.
    using Mark = std::shared_ptr<void>;
    virtual Mark mark() = 0;
    virtual void follow(const Mark& mark) = 0;
    virtual void copy(void* to, const void* from, std::size_t bytes) = 0;  // one of them may be the host's
    void copy_now(void* to, const void* from, std::size_t bytes) {
        copy(to, from, bytes);
        settle();
    }

    // As in numbers.hpp and optimizer.hpp.
    virtual void zero(DataType type, void* values, std::size_t count) = 0;
    virtual void convert(DataType to_type, void* to, DataType from_type, const void* from, std::size_t count) = 0;
    virtual void add(DataType into_type, void* into, DataType from_type, const void* from, std::size_t count) = 0;
    virtual void multiply(DataType type, void* values, std::size_t count, double factor) = 0;
    virtual void divide(DataType type, void* values, std::size_t count, int divisor) = 0;
    virtual void clamp(DataType type, void* values, std::size_t count, double limit) = 0;
    virtual void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
                        const void* gradients, const States& states) = 0;
    virtual double sum_of_squares(std::span<const Run> runs) = 0;
    virtual std::size_t first_bad(std::span<const Run> runs) = 0;  // which run has one; how many there are: none

    /// into[0] = the greatest magnitude of `values`, 0 if there are none.
    virtual void largest(const float* values, std::size_t count, float* into) = 0;
    /// values[i] *= fp8_scale(*largest, ranks), or back again.
    virtual void scale(float* values, std::size_t count, const float* largest, int ranks, bool back) = 0;
};
using BackendPtr = std::shared_ptr<Backend>;

/// One rank's. Which of them are the same depends on its device and on the options.
struct Backends {
    int device = TUTTI_DEVICE_CPU;
    bool on_gpu = false, offloads = false;  // config.offload, on a GPU
    BackendPtr values;                      // gradients and values; nullptr: none yet
    BackendPtr jobs;    // the same memory, as jobs see it: `values` itself but in asynchronous modes on GPUs
    BackendPtr states;  // what updates work on
    BackendPtr pinned;  // nullptr on CPUs

    static Backends of(int device, const Options& options);
    void settle() const;
    void sweep() const;
};

/// Of the host: memory that peers can map, and memory that nobody needs to.
BackendPtr shared_host();
BackendPtr private_host();

/// Of a GPU, with the caller's stream; and with a stream of its own, which waits for no other. gpu_backend.cpp
BackendPtr gpu_backend(int device, tuttiStream_t stream);
BackendPtr gpu_backend_beside(int device);
/// Of the host: memory that a GPU copies from and to in the background.
BackendPtr pinned_host();

}  // namespace tutti::dp
