// Where memory of the layer's lies, and who computes there: this host, or the rank's GPU. On the host everything is
// done on return. On a GPU it is enqueued on one stream, in order, but for what returns a number.
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
    const std::byte* at;
    std::size_t count;
};

class Place {
  public:
    virtual ~Place() = default;
    virtual std::byte* allocate(std::size_t bytes) = 0;  // zeroed; throws what is lacking
    virtual void free(std::byte* memory) noexcept = 0;   // when nothing that was enqueued uses it any more
    /// Memory that belongs to a GPU or is pinned goes only now: that waits for all that the GPU has to do, for kernels
    /// of other ranks, too, and they may wait for this one. The last sweep is at the end of the place.
    virtual void sweep() noexcept {}
    virtual bool frees_at_once() const { return true; }  // not in a sweep only

    virtual tuttiStream_t stream() const = 0;            // for collectives on memory of this place
    virtual bool reaches(const void* memory) const = 0;  // whether what follows works on it
    virtual void settle() = 0;                           // what was enqueued is done on return
    /// What has been enqueued so far, for another place that follows: what is enqueued there from then on comes after
    /// it. nullptr on hosts, and nothing follows that.
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
    virtual void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
                        const void* gradients, const States& states) = 0;
    virtual double sum_of_squares(std::span<const Run> runs) = 0;
    virtual std::size_t first_bad(std::span<const Run> runs) = 0;  // which run has one; how many there are: none

    /// into[0] = the greatest magnitude of `values`, 0 if there are none.
    virtual void largest(const float* values, std::size_t count, float* into) = 0;
    /// values[i] *= fp8_scale(*largest, ranks), or back again.
    virtual void scale(float* values, std::size_t count, const float* largest, int ranks, bool back) = 0;
};
using PlacePtr = std::shared_ptr<Place>;

/// Memory that peers can map, and memory that nobody needs to.
PlacePtr shared_host();
PlacePtr private_host();

/// Memory of a GPU, and what kernels do on this stream. gpu_place.cpp
PlacePtr gpu_place(int device, tuttiStream_t stream);
/// The same on a stream of its own, which waits for no other but those that it follows.
PlacePtr gpu_place_beside(int device);
/// Memory of the host's that copies from and to GPUs go on beside.
PlacePtr pinned_host();

}  // namespace tutti::dp
