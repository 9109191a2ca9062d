// One rank's memory: parameters dealt to buckets; their gradients, values and states of the optimizer.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "dp/backend.hpp"
#include "dp/layout.hpp"
#include "dp/memory.hpp"
#include "dp/owners.hpp"

namespace tutti::dp {

/// One bucket of this rank. Counts and offsets are in elements. The Storage owns all memory pointed to.
struct Bucket : BucketLayout {
    explicit Bucket(const BucketLayout& layout) : BucketLayout(layout) {}
    std::size_t index = 0;
    std::vector<Piece> mine;    // the pieces that this rank owns and updates
    std::size_t own_begin = 0;  // first element of the range that this rank owns
    std::size_t own_count = 0;

    std::byte* grad = nullptr;       // `count` gradients; nullptr while no memory is borrowed for them
    Pool::Loan grad_loan;            // keeps grad borrowed, in modes with Options::passing_gradients()
    std::byte* own_grad = nullptr;   // reduced gradients of the owned range; inside grad unless gradients pass
    std::byte* data = nullptr;       // `count` values; nullptr in modes that do not keep a bucket's values together
    std::byte* own_data = nullptr;   // values of the owned range, maybe inside data; nullptr if in each parameter
    States states;                   // of the optimizer, for the owned range
    std::byte* host_grad = nullptr;  // config.offload: gradients of the owned range, on the host
    std::byte* host_data = nullptr;  // config.offload: values of the owned range on the host, always current
};

/// A bucket's gradients while they are reduced. The bucket itself may already be filled for the next iteration.
struct Gradients {
    std::byte* at;
    Pool::Loan loan;  // keeps `at` borrowed; nullptr if the memory is permanent
};

/// Owned by the Engine. One thread at a time, except that any thread may call gradients(), borrow(), take() and const
/// functions. Pointers into a bucket are valid until create(), relayout(), reshape() or restore().
class Storage {
  public:
    enum class Holds { everything, no_gradients };
    /// Allocates nothing yet. Both arguments must outlive this. no_gradients: for values and states that are only saved
    /// or loaded.
    Storage(const Registration& registration, const Backends& backends, Holds holds = Holds::everything)
        : registration_(registration), backends_(backends), holds_(holds) {}
    /// Allocates all memory. order: trained parameters in the order in which they are dealt to buckets. Values are
    /// initialized from the memory that the caller has registered; otherwise they are zero.
    void create(const Shards& shards, std::span<const std::size_t> order);
    /// The buckets before a reshape(), with the memory of the elements that this rank owned.
    struct Former {
        std::vector<std::byte*> values_at;
        Shards shards;
        Layout layout;
        std::vector<Bucket> buckets;
        std::unique_ptr<Block> gradients, values, own_values, states, staging;
    };
    /// Cuts the same buckets to other shards, in memory that is newly allocated. For modes in which ranks own parts,
    /// while no gradients are borrowed. Returns the former memory, unchanged. The new memory has the values of
    /// parameters that are not trained; everything else in it is zero. If allocation fails it throws and changes
    /// nothing.
    Former reshape(const Shards& shards, std::span<const std::size_t> order);
    /// Undoes a reshape() and frees the memory that it allocated.
    void restore(Former former) noexcept;
    const Shards& shards() const { return shards_; }
    /// The rules by which parameters are dealt to buckets, for this many owners.
    Dealing dealing(int owners) const;
    /// Lays buckets out in another order of parameters. Gradients and states move with their parameters. Only for
    /// modes with Options::replicated().
    void relayout(std::span<const std::size_t> order);

    const std::vector<Parameter>& parameters() const { return registration_.parameters; }
    const Options& options() const { return registration_.options; }
    const Backends& backends() const { return backends_; }
    const Layout& layout() const { return layout_; }
    Pool& pool() { return pool_; }
    std::vector<Bucket>& buckets() { return buckets_; }
    const std::vector<Bucket>& buckets() const { return buckets_; }
    /// The bucket of a trained parameter.
    Bucket& bucket_of(std::size_t parameter) { return buckets_[layout_.bucket[parameter]]; }
    /// Bytes from the start of a bucket to a parameter, if its elements are of this type.
    std::size_t offset(std::size_t parameter, DataType type) const { return layout_.offset[parameter] * size_of(type); }

    /// The bucket's gradients. Borrows memory for them if there is none, and zeroes it, if that is wanted, before any
    /// thread sees it. Any thread.
    std::byte* gradients(Bucket& bucket);
    /// The gradient of a parameter inside its bucket.
    std::byte* gradient(std::size_t p) { return gradients(bucket_of(p)) + offset(p, parameters()[p].main_type); }
    /// Whether the bucket has memory for its gradients now. Any thread.
    static bool has_gradients(Bucket& bucket) {
        return std::atomic_ref(bucket.grad).load(std::memory_order_acquire) != nullptr;
    }
    /// Borrows memory for gradients of the bucket, which it is not given. zero: zeroes the memory. Any thread.
    Gradients borrow(const Bucket& bucket, bool zero);
    /// The gradients to reduce. With Options::passing_gradients() the bucket has none afterwards. Any thread.
    Gradients take(Bucket& bucket);
    void zero_gradients();
    void drop_gradients();

    /// By parameter: what tuttiDpData() returns. ZeRO-3: nullptr unless gathered.
    std::vector<std::byte*>& values() { return values_at_; }
    std::byte* values_of(std::size_t parameter) const { return values_at_[parameter]; }
    void forget_gathered();  // ZeRO-3: marks all trained parameters as not gathered
    /// Where the owned values of a piece are kept.
    std::byte* value_of(const Bucket& bucket, const Piece& piece) const;
    std::size_t largest_values() const;  // bytes of the values of the largest bucket
    /// Copies owned values from the caller's memory to where they are updated, because the caller may have written.
    void take_callers_values(const Bucket& bucket);
    /// Copies values, those of the whole bucket, to the memory that tuttiDpData() returns.
    void copy_out(const Bucket& bucket, const std::byte* values);
    /// Copies values, those of the whole bucket, to every place that keeps them, masters included.
    void store(Bucket& bucket, const std::byte* values);
    /// Packs the caller's values of a bucket into one array, with zeros in the gaps.
    void collect(const Bucket& bucket, std::byte* into) const;

    /// The optimizer's states of all buckets, with fp32 masters.
    std::span<std::byte> states() const { return {states_->base(), states_->bytes()}; }
    tuttiDpMemory_t memory() const;

  private:
    /// Whether owned values have memory of their own, because those of whole buckets are only borrowed.
    bool owns_apart() const {
        return !options().replicated() && (options().asynchronous() || options().mode == tuttiDpZero3);
    }
    void lay_out(std::span<const std::size_t> order);
    void place_gradients();
    void place_values();
    void take_first_values();
    void place_states();

    const Registration& registration_;
    const Backends& backends_;
    const Holds holds_;
    Shards shards_;
    Layout layout_;
    std::vector<Bucket> buckets_;
    Pool pool_{nullptr};
    std::unique_ptr<Block> gradients_, values_, own_values_, states_, staging_;
    std::vector<std::byte*> values_at_;  // by parameter
    std::mutex borrowing_;               // guards each bucket's grad and grad_loan
};

}  // namespace tutti::dp
