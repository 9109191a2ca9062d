// One rank's memory: parameters dealt to buckets; their gradients, values and states of the optimizer.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "dp/backend.hpp"
#include "dp/layout.hpp"
#include "dp/memory.hpp"
#include "dp/owners.hpp"

namespace tutti::dp {

/// Counts and offsets are of elements. Memory is the Storage's.
struct Bucket : BucketLayout {
    explicit Bucket(const BucketLayout& layout) : BucketLayout(layout) {}
    std::size_t index = 0;
    std::vector<Piece> mine;    // what this rank updates
    std::size_t own_begin = 0;  // the range that it owns
    std::size_t own_count = 0;

    std::byte* grad = nullptr;      // `count` gradients; nullptr: not borrowed yet
    Pool::Loan grad_loan;           // holds grad where gradients only pass
    std::byte* own_grad = nullptr;  // the owned range after the reduction; where gradients stay, in grad
    std::byte* data = nullptr;      // `count` values, where they lie as they are sent
    std::byte* own_data = nullptr;  // the owned range of values, which may be in data; nullptr: in each parameter
    States states;
    std::byte* host_grad = nullptr;  // config.offload: the owned range in the host's memory
    std::byte* host_data = nullptr;  // always the current values
};

/// Gradients of a bucket on their way; the bucket may be filled anew.
struct Gradients {
    std::byte* at;
    Pool::Loan loan;  // nullptr where they stay
};

/// One thread at a time, except gradients(), take() and what is const. Pointers are good until relayout().
class Storage {
  public:
    /// Allocates nothing yet. Both outlive this.
    Storage(const Registration& registration, const Backends& backends)
        : registration_(registration), backends_(backends) {}
    /// order: of parameters, in which they are dealt to buckets. Values are those that the caller has registered.
    void create(const Shards& shards, std::span<const std::size_t> order);
    /// What was there before buckets had other owners: memory of what this rank owned.
    struct Former {
        std::vector<std::byte*> values_at;
        Shards shards;
        Layout layout;
        std::vector<Bucket> buckets;
        std::unique_ptr<Block> gradients, values, own_values, states, staging;
    };
    /// The same buckets cut to other shards, where ranks own parts and nobody has a bucket's gradients. Only what is
    /// not trained has its values afterwards; the rest is zero here, and in the former memory as it was. If there is no
    /// memory it throws, and nothing has changed.
    Former reshape(const Shards& shards, std::span<const std::size_t> order);
    /// Takes a reshape() back: what has been in memory since is freed.
    void restore(Former former) noexcept;
    const Shards& shards() const { return shards_; }
    /// How buckets are dealt, for so many owners.
    Dealing dealing(int owners) const;
    /// Buckets in another order. Gradients and states move with their parameters. Only where each rank owns all.
    void relayout(std::span<const std::size_t> order);

    const std::vector<Parameter>& parameters() const { return registration_.parameters; }
    const Options& options() const { return registration_.options; }
    const Backends& backends() const { return backends_; }
    const Layout& layout() const { return layout_; }
    Pool& pool() { return pool_; }
    std::vector<Bucket>& buckets() { return buckets_; }
    const std::vector<Bucket>& buckets() const { return buckets_; }
    /// Of one that is trained.
    Bucket& bucket_of(std::size_t parameter) { return buckets_[layout_.bucket[parameter]]; }
    /// Bytes from a bucket's start to a parameter, in memory of that type.
    std::size_t offset(std::size_t parameter, DataType type) const { return layout_.offset[parameter] * size_of(type); }

    /// The bucket's gradients, which get memory if they have none. Any thread; zeroed before any sees it.
    std::byte* gradients(Bucket& bucket);
    /// A parameter's, in its bucket.
    std::byte* gradient(std::size_t p) { return gradients(bucket_of(p)) + offset(p, parameters()[p].main_type); }
    /// What is to be reduced. Any thread. Where gradients pass, the bucket has none afterwards.
    Gradients take(Bucket& bucket);
    void zero_gradients();
    void drop_gradients();

    /// By parameter, what tuttiDpData() returns; ZeRO-3: nullptr unless gathered.
    std::vector<std::byte*>& values() { return values_at_; }
    std::byte* values_of(std::size_t parameter) const { return values_at_[parameter]; }
    void forget_gathered();  // ZeRO-3: nothing is
    std::byte* value_of(const Bucket& bucket, const Piece& piece) const;
    std::size_t largest_values() const;  // bytes of a bucket's
    /// Owned values in the caller's memory, to where they are updated: the caller may have written.
    void take_callers_values(const Bucket& bucket);
    /// values: the whole bucket's. To where the caller looks for them.
    void copy_out(const Bucket& bucket, const std::byte* values);
    /// To everywhere, masters included.
    void store(Bucket& bucket, const std::byte* values);
    /// The caller's values of a bucket, side by side.
    void collect(const Bucket& bucket, std::byte* into) const;

    /// Of all buckets.
    std::span<std::byte> states() const { return {states_->base(), states_->bytes()}; }
    tuttiDpMemory_t memory() const;

  private:
    /// Owned values have memory of their own: the whole bucket's come and go.
    bool owns_apart() const {
        return !options().replicated() && (options().asynchronous() || options().mode == tuttiDpZero3);
    }
    void lay_out(std::span<const std::size_t> order);
    std::byte* borrow(Bucket& bucket, bool zero);
    void place_gradients();
    void place_values();
    void take_first_values();
    void place_states();

    const Registration& registration_;
    const Backends& backends_;
    Shards shards_;
    Layout layout_;
    std::vector<Bucket> buckets_;
    Pool pool_{nullptr};
    std::unique_ptr<Block> gradients_, values_, own_values_, states_, staging_;
    std::vector<std::byte*> values_at_;
    std::mutex borrowing_;
};

}  // namespace tutti::dp
