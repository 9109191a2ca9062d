// What a GPU computes on flat arrays has the bits that a host computes.
#include "dp/backend.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dp/memory.hpp"
#include "gpu/world.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::dp;

namespace {

constexpr DataType types[] = {DataType::float16, DataType::bfloat16, DataType::float32, DataType::float64};
constexpr std::size_t room = 5000;

/// The same arrays on both sides; what runs on one of them is compared with what runs on the other.
class HostAndGpu {
  public:
    HostAndGpu() : gpus_(1) {
        gpu::use_gpus(&gpus_);
        stream_ = gpus_.make_stream(0);
        host_ = shared_host();
        gpu_ = gpu_backend(0, stream_);
    }
    ~HostAndGpu() {
        for (auto* blocks : {&on_host_, &on_gpu_}) blocks->clear();
        gpu_.reset();
        gpus_.destroy_stream(stream_);
        gpu::use_gpus(nullptr);
    }

    /// An array of count + 8 numbers of many magnitudes, as `type`; negative: some are.
    std::size_t array(DataType type, bool negative = true, std::size_t count = room) {
        std::vector<double> numbers(count + 8);
        for (double& x : numbers) {
            state_ = state_ * 6364136223846793005u + 1442695040888963407u;
            x = std::ldexp(static_cast<double>(state_ >> 40) * 0x1p-24 + 0.5, static_cast<int>(state_ >> 33 & 15) - 12);
            if (negative && (state_ >> 32 & 1) != 0) x = -x;
        }
        on_host_.push_back(std::make_unique<Block>(host_, numbers.size() * size_of(type)));
        on_gpu_.push_back(std::make_unique<Block>(gpu_, numbers.size() * size_of(type)));
        if (type == DataType::float64)
            std::memcpy(on_host_.back()->base(), numbers.data(), on_host_.back()->bytes());
        else
            host_->convert(type, on_host_.back()->base(), DataType::float64, numbers.data(), numbers.size());
        gpu_->copy_now(on_gpu_.back()->base(), on_host_.back()->base(), on_host_.back()->bytes());
        return on_host_.size() - 1;
    }

    /// body(backend, base): base(i) is array i there. All arrays are the same afterwards.
    template <class Body>
    void both(Body body) {
        body(*host_, [this](std::size_t i) { return on_host_[i]->base(); });
        body(*gpu_, [this](std::size_t i) { return on_gpu_[i]->base(); });
        gpu_->settle();
        for (std::size_t i = 0; i < on_host_.size(); ++i)
            REQUIRE(std::memcmp(on_host_[i]->base(), on_gpu_[i]->base(), on_host_[i]->bytes()) == 0);
    }
    void clear() {
        on_host_.clear();
        on_gpu_.clear();
    }

  private:
    harness::EmulatedGpus gpus_;
    void* stream_ = nullptr;
    BackendPtr host_, gpu_;
    std::vector<std::unique_ptr<Block>> on_host_, on_gpu_;
    std::uint64_t state_ = 1;
};

}  // namespace

TEST_CASE("backends: arithmetic on GPUs has the bits of the host's, for all types and any alignment") {
    HostAndGpu s;
    for (const DataType to : types)
        for (const DataType from : types) {
            CAPTURE(name_of(to), name_of(from));
            const std::size_t a = s.array(to), b = s.array(from), c = s.array(to);
            // A first element that begins a word of 8 bytes, and one that does not; an odd end.
            for (const std::size_t first : {0, 1}) {
                const std::size_t count = room - 1;
                s.both([&](dp::Backend& backend, auto base) {
                    std::byte *x = base(a) + first * size_of(to), *z = base(c) + 4 * size_of(to);
                    backend.convert(to, x, from, base(b), count);
                    backend.add(to, z, from, base(b) + 3 * size_of(from), 1027);
                    if (from != to) return;
                    backend.multiply(to, x, count, 1.0 / 3);
                    backend.divide(to, z, 100, 7);
                    backend.clamp(to, x, count, 0.1);
                    backend.zero(to, z + 5 * size_of(to), 3);
                });
            }
            s.clear();
        }
}

TEST_CASE("backends: optimizers on GPUs have the bits of the host's") {
    HostAndGpu s;
    for (const auto kind : {tuttiDpSgd, tuttiDpMomentum, tuttiDpNesterov, tuttiDpAdam, tuttiDpAdamW})
        for (const DataType type : types)
            for (const DataType grad_type : {type, DataType::float32}) {
                CAPTURE(kind, name_of(type), name_of(grad_type));
                const DataType own = state_type(type);
                const std::size_t w = s.array(type), g = s.array(grad_type), master = s.array(own), m = s.array(own),
                                  v = s.array(own, false);
                tuttiDpOptimizer_t optimizer{kind, 0.01, 0.9, 0.9, 0.999, 1e-8, 0, nullptr, nullptr};
                const Update how{&optimizer, 0.013, 0.07, 3, 0.25};
                const std::size_t first = kind == tuttiDpAdam ? 1 : 0;
                const Piece piece{0, 0, first == 1 ? 77 : room - 1, first};
                s.both([&](dp::Backend& backend, auto base) {
                    States states{has_master(kind, type) ? base(master) : nullptr, {base(m), base(v)}};
                    backend.update(how, piece, type, base(w) + first * size_of(type), grad_type, base(g), states);
                });
                s.clear();
            }
}

TEST_CASE("backends: sums of squares and what is not finite, over several arrays") {
    HostAndGpu s;
    for (const DataType type : types) {
        CAPTURE(name_of(type));
        const std::size_t a = s.array(type), large = s.array(type, true, 40'001);  // of several sums
        dp::Squares sums[2];
        std::size_t found[2][3];
        const auto runs = [&](std::byte* base) {
            const auto at = [&](std::size_t i) { return base + i * size_of(type); };
            return std::vector<Run>{
                {type, at(1), 1, 1}, {type, at(2), 3000, 3000}, {type, at(3002), 0, 5}, {type, at(3002), 1999, 4000}};
        };
        int side = 0;
        s.both([&](dp::Backend& backend, auto base) {
            const std::vector<Run> all = runs(base(a));
            backend.add_squares(all, sums[side]);
            const Run few{type, base(a), 63, 63}, many{type, base(large), 40'001, 40'001};
            backend.add_squares({&few, 1}, sums[side]);
            backend.add_squares({&many, 1}, sums[side]);
            found[side][0] = backend.first_bad(all);
            const float bad[] = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
            const std::size_t places[] = {3002 + 1998, 2 + 1500};
            for (int k = 0; k < 2; ++k) {
                std::byte one[8];
                shared_host()->convert(type, one, DataType::float32, &bad[k], 1);
                backend.copy_now(base(a) + places[k] * size_of(type), one, size_of(type));
                found[side][k + 1] = backend.first_bad(all);
            }
            ++side;
        });
        REQUIRE(sums[0].value() > 0);
        REQUIRE(std::memcmp(&sums[0], &sums[1], sizeof sums[0]) == 0);
        for (const auto& f : found) {
            REQUIRE(f[0] == 4);  // none
            REQUIRE(f[1] == 3);
            REQUIRE(f[2] == 1);
        }
        s.clear();
    }
}

TEST_CASE("backends: the largest magnitude, and 8 bits scaled by it") {
    HostAndGpu s;
    // Through one tile, more than one, and more of them than a second pass takes at once.
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3000}, std::size_t{600'001}}) {
        CAPTURE(count);
        const std::size_t v = s.array(DataType::float32, true, count), wire = s.array(DataType::float8e4m3),
                          found = s.array(DataType::float32);
        const std::size_t some = std::min(count, room);
        s.both([&](dp::Backend& backend, auto base) {
            float* const values = reinterpret_cast<float*>(base(v));
            float* const largest = reinterpret_cast<float*>(base(found));
            const float odd[] = {-1e4f, std::numeric_limits<float>::quiet_NaN()};  // the last counts; a NaN does not
            if (count > 1) backend.copy_now(values + count - 1, &odd[0], 4);
            if (count > 1) backend.copy_now(values, &odd[1], 4);
            backend.largest(values, count, largest);
            float seen = -1;
            backend.copy_now(&seen, largest, 4);
            REQUIRE((count > 1 ? seen == 1e4f : count == 1 ? seen > 0 : seen == 0));
            if (count > 1) backend.copy_now(values, &odd[0], 4);
            backend.scale(values, some, largest, 3, false);
            backend.convert(DataType::float8e4m3, base(wire), DataType::float32, values, some);
            backend.convert(DataType::float32, values, DataType::float8e4m3, base(wire), some);
            backend.scale(values, some, largest, 3, true);
        });
        s.clear();
    }
    // Where the power of two would be none: all zeros, and the ends of what floats are.
    for (const float extreme : {0.0f, 1e-45f, 3e38f, std::numeric_limits<float>::infinity()}) {
        CAPTURE(extreme);
        const std::size_t v = s.array(DataType::float32), found = s.array(DataType::float32);
        s.both([&](dp::Backend& backend, auto base) {
            backend.copy_now(base(found), &extreme, 4);
            backend.scale(reinterpret_cast<float*>(base(v)), 100, reinterpret_cast<float*>(base(found)), 4, false);
        });
        s.clear();
    }
}

TEST_CASE("backends: what is freed on a GPU, or pinned, stays until it is swept") {
    harness::EmulatedGpus gpus(1);
    gpu::use_gpus(&gpus);
    const auto there = [&](const std::byte* at) { return gpus.pointee(at).kind != gpu::Pointee::Kind::host; };
    {
        const BackendPtr backends[] = {gpu_backend_beside(0), pinned_host()};
        for (const BackendPtr& backend : backends) {
            std::byte* const at = backend->allocate(64);
            backend->free(at);
            REQUIRE(there(at));
            backend->sweep();
            REQUIRE(!there(at));
            backend->free(backend->allocate(64));  // with the backend itself
        }
    }
    gpu::use_gpus(nullptr);
}
