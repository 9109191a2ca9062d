// The only file of this room that knows GPUs: their memory, and kernels over arrays (kernels/cuda/flat.hpp).
#include <algorithm>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "dp/host_backend.hpp"
#include "gpu/gpus.hpp"

namespace tutti::dp {
namespace {

using gpu::Flat;
using gpu::FlatOp;

gpu::Gpus& the_gpus() {
    gpu::Gpus* const gpus = gpu::gpus();
    if (gpus == nullptr) fail(tuttiInternalError, "a rank is on a GPU, but %s", gpu::why_no_gpus().c_str());
    return *gpus;
}

/// Freed memory that waits for a sweep. Any thread; guarded by mutex_.
class Freed {
  public:
    void add(std::byte* memory) noexcept {
        const std::lock_guard lock(mutex_);
        all_.push_back(memory);
    }
    template <class Body>
    void take(Body body) noexcept {
        std::vector<std::byte*> all;
        {
            const std::lock_guard lock(mutex_);
            all.swap(all_);
        }
        for (std::byte* memory : all) body(memory);
    }

  private:
    std::mutex mutex_;
    std::vector<std::byte*> all_;
};

class GpuBackend : public Backend {
  public:
    enum class Stream { theirs, own };
    GpuBackend(int device, tuttiStream_t stream, Stream whose)
        : gpus_(the_gpus()), device_(device), stream_(stream), whose_(whose) {
        if (gpus_.device_of(stream) != device)
            fail(tuttiInvalidArgument, "the stream is of device %d, the rank is on device %d", gpus_.device_of(stream),
                 device);
        refuse_capture("data parallelism", stream);
    }
    ~GpuBackend() override {
        if (findings_ != nullptr) free(findings_);
        sweep();
        if (whose_ == Stream::theirs) return;
        gpus_.destroy_stream(stream_);
    }

    std::byte* allocate(std::size_t bytes) override { return gpus_.allocate(device_, std::max<std::size_t>(bytes, 1)); }
    void free(std::byte* memory) noexcept override { freed_.add(memory); }
    bool frees_at_once() const override { return false; }
    void sweep() noexcept override {
        guarded([&] { settle(); });
        freed_.take([&](std::byte* memory) { gpus_.free(device_, memory); });
    }

    tuttiStream_t stream() const override { return stream_; }
    bool reaches(const void* memory) const override { return gpus_.pointee(memory).kind != gpu::Pointee::Kind::host; }
    void settle() override {
        void* event = nullptr;
        gpus_.mark(device_, event, stream_);
        gpus_.await(device_, event);
        gpus_.drop(device_, event);
    }
    Mark mark() override {
        void* event = nullptr;
        gpus_.mark(device_, event, stream_);
        return {event, [&gpus = gpus_, device = device_](void* passed) { gpus.drop(device, passed); }};
    }
    void follow(const Mark& mark) override {
        if (mark) gpus_.follow(device_, mark.get(), stream_);
    }
    /// A copy of pageable memory waits inside CUDA for earlier work on the stream, and lets no other thread allocate or
    /// copy meanwhile. That work may wait for another rank, which may be a thread of this process. So wait for it
    /// first.
    void copy(void* to, const void* from, std::size_t bytes) override {
        if (bytes == 0 || to == from) return;
        if (!reaches(to) || !reaches(from)) settle();
        gpus_.copy(device_, to, from, bytes, stream_);
    }

    void zero(DataType type, void* values, std::size_t count) override {
        run(made(FlatOp::zero, type, values, type, nullptr, count));
    }
    void convert(DataType to_type, void* to, DataType from_type, const void* from, std::size_t count) override {
        if (to_type == from_type) return copy(to, from, count * size_of(to_type));
        run(made(FlatOp::convert, to_type, to, from_type, from, count));
    }
    void add(DataType into_type, void* into, DataType from_type, const void* from, std::size_t count) override {
        run(made(FlatOp::add, into_type, into, from_type, from, count));
    }
    void multiply(DataType type, void* values, std::size_t count, double factor) override {
        Flat task = made(FlatOp::multiply, type, values, type, nullptr, count);
        task.number = factor;
        run(task);
    }
    void divide(DataType type, void* values, std::size_t count, int divisor) override {
        Flat task = made(FlatOp::divide, type, values, type, nullptr, count);
        task.number = divisor;
        run(task);
    }
    void clamp(DataType type, void* values, std::size_t count, double limit) override {
        Flat task = made(FlatOp::clamp, type, values, type, nullptr, count);
        task.number = limit;
        run(task);
    }

    void update(const Update& how, const Piece& piece, DataType data_type, void* weights, DataType grad_type,
                const void* gradients, const States& states) override {
        const tuttiDpOptimizerKind_t kind = how.optimizer->kind;
        const FlatOp op = kind == tuttiDpSgd        ? FlatOp::sgd
                          : kind == tuttiDpMomentum ? FlatOp::momentum
                          : kind == tuttiDpNesterov ? FlatOp::nesterov
                                                    : FlatOp::adam;
        TUTTI_ASSERT(kind != tuttiDpNoOptimizer && kind != tuttiDpCallback);  // refused by tuttiDpCreate
        Flat task = made(op, data_type, weights, grad_type, gradients, piece.count);
        const auto at = [&](std::byte* base) {
            return base == nullptr ? nullptr : base + piece.at * size_of(state_type(data_type));
        };
        task.master = at(states.master);
        for (int k = 0; k < 2; ++k) task.state[k] = at(states.state[k]);
        task.update = numbers_of(how);
        run(task);
    }

    void add_squares(std::span<const Run> runs, Squares& into) override {
        std::size_t words = 0;
        for (const Run& r : runs) words += sums_of(r) * words_of(r);
        std::byte* const findings = reserve(words);
        std::size_t at = 0;
        for (const Run& r : runs) {
            Flat task = made(FlatOp::squares, r.type, nullptr, r.type, r.at, r.count);
            task.number = together(r);
            task.result = findings + at * 8;
            run(task);
            at += sums_of(r) * words_of(r);
        }
        std::vector<std::int64_t> found(words);
        if (words > 0) copy_now(found.data(), findings, words * 8);
        const std::int64_t* next = found.data();
        for (const Run& r : runs)
            for (std::size_t i = 0; i < sums_of(r); ++i, next += words_of(r))
                r.type == DataType::float64 ? into.doubles.add(next) : into.floats.add(next);
    }
    std::size_t first_bad(std::span<const Run> runs) override {
        const std::lock_guard lock(looking_);
        const std::vector<std::uint64_t> found = find(FlatOp::bad, runs);
        std::size_t tile = 0;
        for (std::size_t i = 0; i < runs.size(); ++i)
            for (const std::size_t end = tile + gpu::flat_tiles(runs[i].count); tile < end; ++tile)
                if (found[tile] < runs[i].count) return i;
        return runs.size();
    }

    /// Each pass writes two floats per tile, which the next pass reads, until one tile is left.
    void largest(const float* values, std::size_t count, float* into) override {
        if (count == 0) return zero(DataType::float32, into, 1);
        std::byte* room = reserve(2 * gpu::flat_tiles(count) + 2);
        const std::byte* from = reinterpret_cast<const std::byte*>(values);
        for (;;) {
            Flat task = made(FlatOp::largest, DataType::float32, nullptr, DataType::float32, from, count);
            task.result = room;
            run(task);
            from = room;
            const std::size_t tiles = gpu::flat_tiles(count);
            if (tiles == 1) break;
            room += tiles * 8;
            count = tiles * 2;
        }
        copy(into, from, sizeof *into);
    }
    void scale(float* values, std::size_t count, const float* largest, int ranks, bool back) override {
        const FlatOp op = back ? FlatOp::unscale : FlatOp::scale;
        Flat task = made(op, DataType::float32, values, DataType::float32, largest, count);
        task.number = ranks;
        run(task);
    }

  private:
    static Flat made(FlatOp op, DataType to_type, void* to, DataType from_type, const void* from, std::size_t count) {
        Flat task;
        task.op = op;
        task.to_type = to_type;
        task.to = static_cast<std::byte*>(to);
        task.from_type = from_type;
        task.from = static_cast<const std::byte*>(from);
        task.count = count;
        return task;
    }
    void run(const Flat& task) {
        if (task.count > 0) gpus_.run(device_, task, stream_);
    }

    // Of FlatOp::squares over a run.
    static int together(const Run& r) {
        if (r.whole < least_together) return 1;
        return r.type == DataType::float64 ? ExactLimbs<double>::together : ExactLimbs<float>::together;
    }
    static std::size_t sums_of(const Run& r) { return gpu::flat_sums(r.count, together(r)); }
    static std::size_t words_of(const Run& r) {
        return static_cast<std::size_t>(r.type == DataType::float64 ? ExactLimbs<double>::words
                                                                    : ExactLimbs<float>::words);
    }

    /// Runs op over all runs. Returns one number per tile of each run, in order.
    std::vector<std::uint64_t> find(FlatOp op, std::span<const Run> runs) {
        std::size_t tiles = 0;
        for (const Run& r : runs) tiles += gpu::flat_tiles(r.count);
        std::byte* const findings = reserve(tiles);
        std::size_t at = 0;
        for (const Run& r : runs) {
            Flat task = made(op, r.type, nullptr, r.type, r.at, r.count);
            task.result = findings + at * 8;
            run(task);
            at += gpu::flat_tiles(r.count);
        }
        std::vector<std::uint64_t> found(tiles);
        if (tiles > 0) copy_now(found.data(), findings, tiles * 8);
        return found;
    }

    /// Room for this many numbers of 8 bytes, in memory that every pass reuses.
    std::byte* reserve(std::size_t numbers) {
        if (findings_ != nullptr && numbers <= room_) return findings_;
        std::byte* const more = allocate(numbers * 8);
        if (findings_ != nullptr) free(findings_);
        room_ = numbers;
        return findings_ = more;
    }

    gpu::Gpus& gpus_;
    const int device_;
    const tuttiStream_t stream_;
    const Stream whose_;
    Freed freed_;
    std::byte* findings_ = nullptr;  // results of a pass, on the GPU
    std::size_t room_ = 0;           // numbers of 8 bytes in findings_
    std::mutex looking_;             // guards them while several threads call first_bad()
};

class PinnedHost : public HostBackend {
  public:
    PinnedHost() : gpus_(the_gpus()) {}
    std::byte* allocate(std::size_t bytes) override { return gpus_.allocate_pinned(std::max<std::size_t>(bytes, 1)); }
    ~PinnedHost() override { sweep(); }
    void free(std::byte* memory) noexcept override { freed_.add(memory); }
    bool frees_at_once() const override { return false; }
    void sweep() noexcept override {
        freed_.take([&](std::byte* memory) { gpus_.free_pinned(memory); });
    }

  private:
    gpu::Gpus& gpus_;
    Freed freed_;
};

}  // namespace

void refuse_capture(const char* function, tuttiStream_t stream) {
    if (the_gpus().capturing(stream))
        fail(tuttiInvalidUsage,
             "%s: the stream is being captured into a CUDA graph, which does not repeat what the layer counts on the "
             "host; end the capture first",
             function);
}

BackendPtr gpu_backend(int device, tuttiStream_t stream) {
    return std::make_shared<GpuBackend>(device, stream, GpuBackend::Stream::theirs);
}

BackendPtr gpu_backend_beside(int device) {
    return std::make_shared<GpuBackend>(device, the_gpus().make_stream(device), GpuBackend::Stream::own);
}

BackendPtr pinned_host() {
    return std::make_shared<PinnedHost>();
}

bool is_on_gpu(const void* memory) {
    using Kind = gpu::Pointee::Kind;
    const gpu::Gpus* const gpus = gpu::gpus();
    if (gpus == nullptr) return false;
    const Kind kind = gpus->pointee(memory).kind;
    return kind == Kind::device || kind == Kind::managed;
}

bool HostBackend::reaches(const void* memory) const {
    const gpu::Gpus* const gpus = gpu::gpus();
    return gpus == nullptr || gpus->pointee(memory).kind != gpu::Pointee::Kind::device;
}

}  // namespace tutti::dp
