#include "dp/storage.hpp"

#include <algorithm>
#include <atomic>

namespace tutti::dp {
namespace {

/// Places several arrays in one block, each at the start of a cache line.
class Arena {
  public:
    /// Asks for `bytes` bytes. allocate() sets `at`, which must stay valid until then.
    void reserve(std::byte*& at, std::size_t bytes) {
        wanted_.push_back({&at, bytes_});
        bytes_ = (bytes_ + bytes + 63) / 64 * 64;
    }
    /// Allocates the block and sets all pointers.
    std::unique_ptr<Block> allocate(const BackendPtr& backend) {
        auto block = std::make_unique<Block>(backend, bytes_);
        for (const auto& [at, offset] : wanted_) *at = block->base() + offset;
        return block;
    }

  private:
    std::vector<std::pair<std::byte**, std::size_t>> wanted_;
    std::size_t bytes_ = 0;
};

}  // namespace

void Storage::create(const Shards& shards, std::span<const std::size_t> order) {
    shards_ = shards;
    pool_ = Pool(backends_.values);
    values_at_.assign(parameters().size(), nullptr);
    lay_out(order);
    place_gradients();
    place_states();
    place_values();
    take_first_values();
}

Dealing Storage::dealing(int owners) const {
    const Options& o = options();
    return {o.firstBucketBytes, o.bucketBytes, owners, o.mode == tuttiDpNaive, o.mode == tuttiDpZero3, o.whole()};
}

void Storage::lay_out(std::span<const std::size_t> order) {
    layout_ = dp::lay_out(parameters(), order, dealing(shards_.owners));
    buckets_.clear();
    for (const BucketLayout& bucket : layout_.buckets) {
        Bucket& b = buckets_.emplace_back(bucket);
        b.index = buckets_.size() - 1;
        if (shards_.own >= 0) {
            b.own_begin = b.begin(shards_.own);
            b.own_count = b.shard(shards_.own);
        }
        b.mine = pieces_of(layout_, parameters(), b.index, b.own_begin, b.own_begin + b.own_count);
    }
}

Storage::Former Storage::reshape(const Shards& shards, std::span<const std::size_t> order) {
    // values_at_ is copied first: that may throw, and nothing may have been moved then.
    Former former{values_at_,
                  shards_,
                  std::move(layout_),
                  std::move(buckets_),
                  std::move(gradients_),
                  std::move(values_),
                  std::move(own_values_),
                  std::move(states_),
                  std::move(staging_)};
    try {
        shards_ = shards;
        lay_out(order);
        place_gradients();
        place_states();
        place_values();
        for (std::size_t p = 0; p < parameters().size(); ++p)
            if (const Parameter& q = parameters()[p]; !q.is_trained() && values_at_[p] != former.values_at[p])
                backends_.values->copy(values_at_[p], former.values_at[p], q.count * size_of(q.type));
        backends_.values->settle();
    } catch (...) {
        restore(std::move(former));
        throw;
    }
    return former;
}

void Storage::restore(Former former) noexcept {
    values_at_ = std::move(former.values_at);
    shards_ = former.shards;
    layout_ = std::move(former.layout);
    buckets_ = std::move(former.buckets);
    gradients_ = std::move(former.gradients);
    values_ = std::move(former.values);
    own_values_ = std::move(former.own_values);
    states_ = std::move(former.states);
    staging_ = std::move(former.staging);
}

void Storage::relayout(std::span<const std::size_t> order) {
    const std::vector<Bucket> old = std::move(buckets_);
    const Layout before = layout_;
    const std::unique_ptr<Block> gradients = std::move(gradients_), states = std::move(states_),
                                 staging = std::move(staging_);
    lay_out(order);
    place_gradients();
    place_states();
    for (const std::size_t p : order) {
        const Bucket &from = old[before.bucket[p]], &to = bucket_of(p);
        const auto move = [&](Backend& backend, std::byte* into, const std::byte* out_of, DataType type) {
            const std::size_t size = size_of(type);
            if (into != nullptr && out_of != into)
                backend.copy(into + layout_.offset[p] * size, out_of + before.offset[p] * size,
                             parameters()[p].count * size);
        };
        const DataType type = state_type(to.data_type);
        move(*backends_.values, to.grad, from.grad, to.type);
        move(*backends_.states, to.host_data, from.host_data, to.data_type);
        move(*backends_.states, to.states.master, from.states.master, type);
        for (int k = 0; k < 2; ++k) move(*backends_.states, to.states.state[k], from.states.state[k], type);
    }
    backends_.values->settle();  // before the old blocks go
}

/// Permanent gradients are placed bucket by bucket. With Options::passing_gradients() only the owned ranges are.
void Storage::place_gradients() {
    Arena arena;
    for (Bucket& b : buckets_) {
        if (holds_ == Holds::no_gradients) break;
        const Parameter& first = parameters()[b.parameters[0]];
        if (options().passing_gradients())
            arena.reserve(b.own_grad, b.own_count * size_of(b.type));
        else if (options().mode == tuttiDpNaive && first.grad != nullptr && !first.accumulates())
            b.grad = static_cast<std::byte*>(first.grad);
        else
            arena.reserve(b.grad, b.count * size_of(b.type));
    }
    gradients_ = arena.allocate(backends_.values);
    for (Bucket& b : buckets_)
        if (b.grad != nullptr) b.own_grad = b.grad + b.own_begin * size_of(b.type);
}

/// Places the optimizer's states and masters; with config.offload also the host's copies of gradients and values.
void Storage::place_states() {
    const tuttiDpOptimizerKind_t kind = options().optimizer.kind;
    Arena states, staging;
    for (Bucket& b : buckets_) {
        const std::size_t size = b.own_count * size_of(state_type(b.data_type));
        if (has_master(kind, b.data_type)) states.reserve(b.states.master, size);
        for (int k = 0; k < states_of(kind); ++k) states.reserve(b.states.state[k], size);
        if (!backends_.offloads) continue;
        staging.reserve(b.host_grad, b.own_count * size_of(b.type));
        if (!owns_apart()) staging.reserve(b.host_data, b.own_count * size_of(b.data_type));
    }
    states_ = states.allocate(backends_.states);
    staging_ = staging.allocate(backends_.states);
}

/// Values that are sent are placed bucket by bucket. Others that the layer allocates are placed parameter by parameter.
void Storage::place_values() {
    const bool zero3 = options().mode == tuttiDpZero3, by_bucket = !options().replicated() && !owns_apart();
    Arena all, own;
    for (Bucket& b : buckets_) {
        if (by_bucket)
            all.reserve(b.data, b.count * size_of(b.data_type));
        else if (owns_apart())
            own.reserve(b.own_data, b.own_count * size_of(b.data_type));
    }
    for (std::size_t p = 0; p < parameters().size(); ++p)
        if (((!by_bucket && !zero3) || !parameters()[p].is_trained()) && parameters()[p].data == nullptr)
            all.reserve(values_at_[p], parameters()[p].count * size_of(parameters()[p].type));
    values_ = all.allocate(backends_.values);
    own_values_ = own.allocate(backends_.offloads ? backends_.states : backends_.values);
    for (std::size_t p = 0; p < parameters().size(); ++p) {
        const Parameter& q = parameters()[p];
        if (q.data != nullptr)
            values_at_[p] = static_cast<std::byte*>(q.data);
        else if (by_bucket && q.is_trained())
            values_at_[p] = bucket_of(p).data + offset(p, q.type);
    }
    for (Bucket& b : buckets_) {
        if (by_bucket) b.own_data = b.data + b.own_begin * size_of(b.data_type);
        if (owns_apart() && backends_.offloads) b.host_data = b.own_data;
    }
    if (zero3) forget_gathered();
}

/// Takes the initial values from the caller's memory, which ZeRO-3 does not use later.
void Storage::take_first_values() {
    const Block staged(backends_.values, largest_values());
    for (Bucket& b : buckets_) {
        collect(b, staged.base());
        store(b, staged.base());
    }
}

void Storage::forget_gathered() {
    for (std::size_t p = 0; p < parameters().size(); ++p)
        if (parameters()[p].is_trained()) values_at_[p] = nullptr;
}

std::byte* Storage::gradients(Bucket& b) {
    const std::atomic_ref<std::byte*> shared(b.grad);
    if (std::byte* const here = shared.load(std::memory_order_acquire)) return here;
    std::lock_guard lock(borrowing_);
    if (b.grad != nullptr) return b.grad;
    const Gradients borrowed = borrow(b, options().zeroGrad || options().fp32Gradients);
    b.grad_loan = borrowed.loan;
    shared.store(borrowed.at, std::memory_order_release);
    return borrowed.at;
}

/// Memory for compression is always zeroed, because it reads the gaps between parameters.
Gradients Storage::borrow(const Bucket& b, bool zero) {
    const Pool::Loan loan = pool_.take(b.count * size_of(b.type));
    if (zero || options().compresses()) backends_.values->zero(b.type, loan->base(), b.count);
    return {loan->base(), loan};
}

Gradients Storage::take(Bucket& b) {
    std::lock_guard lock(borrowing_);
    if (b.grad == nullptr) return borrow(b, false);
    const Gradients taken{b.grad, std::move(b.grad_loan)};
    if (options().passing_gradients()) b.grad = nullptr;
    return taken;
}

void Storage::zero_gradients() {
    const bool zero = options().zeroGrad;
    for (const Parameter& p : parameters())
        if (zero && p.grad != nullptr) backends_.values->zero(p.grad_type, p.grad, p.count);
    for (const Bucket& b : buckets_)  // main gradients are accumulated here
        if (!options().passing_gradients() && (zero || options().fp32Gradients))
            backends_.values->zero(b.type, b.grad, b.count);
}

void Storage::drop_gradients() {
    for (Bucket& b : buckets_) {
        if (options().passing_gradients()) b.grad = nullptr;
        b.grad_loan.reset();
    }
}

std::byte* Storage::value_of(const Bucket& b, const Piece& piece) const {
    return b.own_data != nullptr ? b.own_data + piece.at * size_of(b.data_type)
                                 : values_at_[piece.parameter] + piece.first * size_of(b.data_type);
}

std::size_t Storage::largest_values() const {
    std::size_t most = 0;
    for (const Bucket& b : buckets_) most = std::max(most, b.count * size_of(b.data_type));
    return most;
}

void Storage::take_callers_values(const Bucket& b) {
    if (options().replicated() || options().mode == tuttiDpZero3 || backends_.offloads) return;
    for (const Piece& piece : b.mine) {
        const std::size_t size = size_of(b.data_type);
        if (parameters()[piece.parameter].data != nullptr)
            backends_.values->copy(value_of(b, piece), values_at_[piece.parameter] + piece.first * size,
                                   piece.count * size);
    }
}

void Storage::copy_out(const Bucket& b, const std::byte* values) {
    if (values == nullptr) return;
    for (const std::size_t p : b.parameters)
        if (std::byte* const to = values_at_[p]; to != nullptr)
            backends_.values->copy(to, values + offset(p, b.data_type), parameters()[p].count * size_of(b.data_type));
}

void Storage::collect(const Bucket& b, std::byte* into) const {
    backends_.values->zero(b.data_type, into, b.count);
    for (const std::size_t p : b.parameters) {
        const Parameter& q = parameters()[p];
        const void* const from = values_at_[p] != nullptr ? values_at_[p] : q.data;
        if (from != nullptr)
            backends_.values->copy(into + offset(p, b.data_type), from, q.count * size_of(b.data_type));
    }
}

void Storage::store(Bucket& b, const std::byte* values) {
    const std::size_t size = size_of(b.data_type);
    const std::byte* own = values + b.own_begin * size;
    Backend &here = *backends_.values, &there = *backends_.states;
    if (b.data != nullptr) here.copy(b.data, values, b.count * size);
    if (b.own_data != nullptr) here.copy(b.own_data, own, b.own_count * size);
    if (options().mode != tuttiDpZero3) copy_out(b, values);
    if (b.host_data != nullptr) here.copy_now(b.host_data, own, b.own_count * size);
    if (b.states.master == nullptr) return;
    there.follow(here.mark());
    there.convert(state_type(b.data_type), b.states.master, b.data_type, b.host_data != nullptr ? b.host_data : own,
                  b.own_count);
    there.settle();  // the caller may free `values` now
}

tuttiDpMemory_t Storage::memory() const {
    tuttiDpMemory_t m{};
    m.parameters = values_->bytes() + own_values_->bytes();
    m.gradients = gradients_->bytes();
    for (const Parameter& p : parameters()) {
        if (p.data != nullptr && (options().mode != tuttiDpZero3 || !p.is_trained()))
            m.parameters += p.count * size_of(p.type);
        if (p.grad != nullptr) m.gradients += p.count * size_of(p.grad_type);
    }
    m.states = states_->bytes();
    if (backends_.offloads) m.host = own_values_->bytes() + states_->bytes() + staging_->bytes();
    m.transient = pool_.peak();
    return m;
}

}  // namespace tutti::dp
