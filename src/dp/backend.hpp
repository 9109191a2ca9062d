// A kind of memory and the arithmetic on it: the host's, or a GPU's with one stream. On the host a call is complete
// when it returns. On a GPU calls are enqueued on the stream, in order; a call that returns a number waits for it. One
// thread at a time, except for allocate and free.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dp/exact_sum.hpp"
#include "dp/optimizer.hpp"
#include "tutti/tutti.h"

namespace tutti::dp {

/// A contiguous run of elements of a parameter.
struct Run {
    DataType type;
    std::byte* at;
    std::size_t count;
    std::size_t whole = 0;  // elements of the parameter; only for add_squares()
};

/// Shared by everything whose memory it allocated.
class Backend {
  public:
    virtual ~Backend() = default;                        // sweeps
    virtual std::byte* allocate(std::size_t bytes) = 0;  // zeroed; throws if there is no memory
    virtual void free(std::byte* memory) noexcept = 0;   // takes effect after the work enqueued here
    /// Returns freed GPU and pinned memory to the system. Waits for all work of the GPU, which includes kernels of
    /// other ranks that may wait for this one; that is why free() alone does not do it.
    virtual void sweep() noexcept {}
    virtual bool frees_at_once() const { return true; }  // free() returns the memory, and sweep() does nothing

    virtual tuttiStream_t stream() const = 0;            // for collectives on this memory; nullptr on hosts
    virtual bool reaches(const void* memory) const = 0;  // whether the functions below can access it
    virtual void settle() = 0;                           // waits until all enqueued work is done
    /// A point in this backend's stream, as a CUDA event; nullptr on hosts. Work that another backend enqueues after
    /// follow() runs after that point.
    using Mark = std::shared_ptr<void>;
    virtual Mark mark() = 0;
    virtual void follow(const Mark& mark) = 0;
    virtual void copy(void* to, const void* from, std::size_t bytes) = 0;  // one of them may be the host's
    void copy_now(void* to, const void* from, std::size_t bytes) {
        copy(to, from, bytes);
        settle();
    }

    // As the functions of the same names in numbers.hpp and optimizer.hpp.
    virtual void zero(DataType type, void* values, std::size_t count) = 0;
    virtual void convert(DataType to_type, void* to, DataType from_type, const void* from, std::size_t count) = 0;
    virtual void add(DataType into_type, void* into, DataType from_type, const void* from, std::size_t count) = 0;
    virtual void multiply(DataType type, void* values, std::size_t count, double factor) = 0;
    virtual void divide(DataType type, void* values, std::size_t count, int divisor) = 0;
    virtual void clamp(DataType type, void* values, std::size_t count, double limit) = 0;
    virtual void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
                        const void* gradients, const States& states) = 0;
    /// Adds the squares of runs, each of which begins at its parameter's first element, or where a shard does. The same
    /// bits on all backends.
    virtual void add_squares(std::span<const Run> runs, Squares& into) = 0;
    /// The index of the first run with a NaN or an infinity; runs.size() if there is none. Several threads may call it
    /// at the same time, if no other function of this class is called meanwhile.
    virtual std::size_t first_bad(std::span<const Run> runs) = 0;

    /// into[0] = the greatest magnitude in `values`, 0 if count is 0. `into` is in this backend's memory.
    virtual void largest(const float* values, std::size_t count, float* into) = 0;
    /// values[i] *= fp8_scale(*largest, ranks); back: divides by it instead.
    virtual void scale(float* values, std::size_t count, const float* largest, int ranks, bool back) = 0;
};
using BackendPtr = std::shared_ptr<Backend>;

/// The backends of one rank. Several of them may be the same object, depending on the device and the options.
struct Backends {
    int device = TUTTI_DEVICE_CPU;
    bool on_gpu = false, offloads = false;  // offloads: config.offload, on a GPU
    BackendPtr values;                      // for gradients and values; nullptr before the first use
    BackendPtr jobs;    // the same memory for jobs; differs from `values` only in asynchronous modes on GPUs
    BackendPtr states;  // for the optimizer's states and the updates
    BackendPtr pinned;  // for pinned host memory; nullptr on CPUs

    static Backends of(int device, const Options& options);
    void settle() const;
    void sweep() const;
};

/// Host memory that peers can map.
BackendPtr shared_host();
/// Host memory that only this process uses.
BackendPtr private_host();

// In gpu_backend.cpp.
/// Memory of a GPU. Work is enqueued on the caller's stream, which must not be captured now.
BackendPtr gpu_backend(int device, tuttiStream_t stream);
/// Memory of a GPU, with a stream of its own that does not wait for any other stream.
BackendPtr gpu_backend_beside(int device);
/// Pinned host memory, which a GPU copies from and to asynchronously.
BackendPtr pinned_host();
/// Throws tuttiInvalidUsage if a GPU's stream is being captured into a graph: this room counts iterations and requests
/// on the host, which a launch of the graph would not repeat.
void refuse_capture(const char* function, tuttiStream_t stream);
/// Whether this is a GPU's memory, or managed by CUDA. False for host memory, pinned or not.
bool is_on_gpu(const void* memory);

}  // namespace tutti::dp
