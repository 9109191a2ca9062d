#include "dp/compression.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "dp/calls.hpp"
#include "dp/memory.hpp"

namespace tutti::dp {
namespace {

/// The caller's hook.
class Hook : public Compression {
  public:
    Hook(tuttiDpHook_t function, void* user, tuttiComm_t comm) : function_(function), user_(user), comm_(comm) {}
    bool reduce(const tuttiDpBucket_t& bucket) override {
        const tuttiResult_t result = function_(user_, &bucket, comm_);
        tuttiResult_t cause = tuttiSuccess;  // the communicator's error, which may be the cause of the hook's
        if (result != tuttiSuccess && tuttiCommGetAsyncError(comm_, &cause) == tuttiSuccess && cause != tuttiSuccess)
            throw Error(cause, tuttiGetLastError(comm_));
        if (result != tuttiSuccess)
            fail(result, "the hook returned %d for bucket %zu on rank %d", static_cast<int>(result), bucket.index,
                 bucket.rank);
        return true;
    }

  private:
    tuttiDpHook_t function_;
    void* user_;
    tuttiComm_t comm_;
};

/// tuttiDpAllGather: every rank gets all gradients, adds them itself, and then divides.
class Gathered : public Compression {
  public:
    explicit Gathered(const Resources& resources)
        : backend_(resources.backend), comm_(resources.comm), all_(backend_, bytes_of(resources)) {}
    bool reduce(const tuttiDpBucket_t& bucket) override {
        const auto type = static_cast<DataType>(bucket.type);
        if (type != DataType::float32 && type != DataType::float64) return false;
        const std::size_t bytes = bucket.count * size_of(type);
        must(tuttiAllGather(bucket.data, all_.base(), bucket.count, bucket.type, comm_, backend_->stream()));
        backend_->copy(bucket.data, all_.base(), bytes);
        for (int r = 1; r < bucket.ranks; ++r)
            backend_->add(type, bucket.data, type, all_.base() + static_cast<std::size_t>(r) * bytes, bucket.count);
        if (bucket.divisor > 1) backend_->divide(type, bucket.data, bucket.count, bucket.divisor);
        return true;
    }

  private:
    static std::size_t bytes_of(const Resources& resources) {
        int ranks = 0;
        must(tuttiCommCount(resources.comm, &ranks));
        return static_cast<std::size_t>(ranks) * resources.most * sizeof(double);
    }
    const BackendPtr backend_;
    const tuttiComm_t comm_;
    const Block all_;
};

/// Base of compressions that handle only fp32.
class OfFloats : public Compression {
  public:
    explicit OfFloats(const Resources& resources) : resources_(resources) {}
    bool reduce(const tuttiDpBucket_t& bucket) final {
        if (bucket.type != tuttiFloat32) return false;
        float* data = static_cast<float*>(bucket.data);
        if (bucket.divisor > 1) backend().divide(DataType::float32, data, bucket.count, bucket.divisor);
        reduce_floats(bucket, data);
        return true;
    }

  protected:
    /// data: in: this rank's gradients, divided by bucket.divisor; out: the sum over all ranks, at least in the owned
    /// part.
    virtual void reduce_floats(const tuttiDpBucket_t& bucket, float* data) = 0;

    dp::Backend& backend() const { return *resources_.backend; }
    const Resources resources_;
};

/// tuttiDpFp16 and tuttiDpBf16.
class Halves : public OfFloats {
  public:
    Halves(DataType type, const Resources& resources)
        : OfFloats(resources), type_(type), wire_(resources.backend, 2 * resources.most) {}
    void reduce_floats(const tuttiDpBucket_t& bucket, float* data) override {
        backend().convert(type_, wire_.base(), DataType::float32, data, bucket.count);
        const auto [begin, count] = resources_.sum(bucket.index, wire_.base(), type_);
        backend().convert(DataType::float32, data + begin, type_, wire_.base() + 2 * begin, count);
    }

  private:
    const DataType type_;
    Block wire_;
};

/// tuttiDpFp8. The scale is a power of two, so that scaling rounds nothing. With it, the largest magnitude of all ranks
/// times the number of ranks stays below 448.
class Eighths : public OfFloats {
  public:
    explicit Eighths(const Resources& resources)
        : OfFloats(resources), largest_(resources.backend, sizeof(float)), wire_(resources.backend, resources.most) {}
    void reduce_floats(const tuttiDpBucket_t& bucket, float* data) override {
        float* const largest = reinterpret_cast<float*>(largest_.base());
        backend().largest(data, bucket.count, largest);
        must(tuttiAllReduce(largest, largest, 1, tuttiFloat32, tuttiMax, resources_.comm, backend().stream()));
        backend().scale(data, bucket.count, largest, bucket.ranks, false);
        backend().convert(DataType::float8e4m3, wire_.base(), DataType::float32, data, bucket.count);
        const auto [begin, count] = resources_.sum(bucket.index, wire_.base(), DataType::float8e4m3);
        backend().convert(DataType::float32, data + begin, DataType::float8e4m3, wire_.base() + begin, count);
        backend().scale(data + begin, count, largest, bucket.ranks, true);
    }

  private:
    Block largest_, wire_;
};

/// Base of compressions with error feedback: what was not sent is added the next time, so that nothing is lost for
/// good. They work on the host: a GPU's bucket is copied there, and the sum back.
class WithMemory : public OfFloats {
  public:
    explicit WithMemory(const Resources& resources) : OfFloats(resources) {
        if (resources.staging) here_ = std::make_unique<Block>(resources.staging, resources.most * sizeof(float));
    }
    void reduce_floats(const tuttiDpBucket_t& bucket, float* data) final {
        const std::size_t bytes = bucket.count * sizeof(float);
        float* const here = here_ ? reinterpret_cast<float*>(here_->base()) : data;
        if (here_) backend().copy_now(here, data, bytes);
        std::vector<float>& residual = residuals_[bucket.index];
        residual.resize(bucket.count, 0.0f);
        if (resources_.may_be_taken_back) before_[bucket.index] = residual;
        for (std::size_t i = 0; i < bucket.count; ++i) residual[i] += here[i];
        send(bucket, residual.data(), here);
        // All ranks have received a NaN or an infinity by now. If it were kept, it would be in every later step, too.
        for (float& kept : residual)
            if (!std::isfinite(kept)) kept = 0.0f;
        backend().copy(data, here, bytes);
    }
    std::vector<float>* residual(std::size_t bucket) final { return &residuals_[bucket]; }
    std::vector<float>* residual_before(std::size_t bucket) final {
        return resources_.may_be_taken_back ? &before_[bucket] : nullptr;
    }
    void take_back() override { residuals_.swap(before_); }
    void forget() override { residuals_.clear(), before_.clear(); }

  protected:
    /// residual: in: what there is to send; out: what was not sent. sum: out: the sum of what all ranks have sent.
    virtual void send(const tuttiDpBucket_t& bucket, float* residual, float* sum) = 0;

  private:
    std::map<std::size_t, std::vector<float>> residuals_, before_;  // by bucket; before_: before the last reduce()
    std::unique_ptr<Block> here_;  // the host's copy of a GPU's bucket; nullptr if buckets are on the host
};

class TopK : public WithMemory {
  public:
    TopK(double part, const Resources& resources) : WithMemory(resources), part_(part) {}

  private:
    struct Entry {
        std::uint32_t index;
        float value;
    };
    void send(const tuttiDpBucket_t& bucket, float* residual, float* sum) override {
        const auto wanted = static_cast<std::size_t>(std::ceil(part_ * static_cast<double>(bucket.count)));
        const std::size_t k = std::clamp<std::size_t>(wanted, 1, bucket.count);
        if (bucket.count > UINT32_MAX) fail(tuttiInvalidUsage, "top-k is for buckets of less than 2^32 elements");
        std::vector<std::uint32_t> order(bucket.count);
        std::iota(order.begin(), order.end(), 0u);
        std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k) - 1, order.end(),
                         [&](std::uint32_t a, std::uint32_t b) {
                             const float x = weight(residual[a]), y = weight(residual[b]);
                             return x != y ? x > y : a < b;
                         });
        std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
        std::vector<Entry> mine(k), all(k * static_cast<std::size_t>(bucket.ranks));
        for (std::size_t i = 0; i < k; ++i) mine[i] = {order[i], std::exchange(residual[order[i]], 0.0f)};
        must(tuttiAllGather(mine.data(), all.data(), k * sizeof(Entry), tuttiUint8, resources_.cpu_comm, nullptr));
        std::fill_n(sum, bucket.count, 0.0f);
        for (const Entry& e : all) {
            if (e.index >= bucket.count) fail(tuttiRemoteError, "a rank sent element %u of %zu", e.index, bucket.count);
            sum[e.index] += e.value;
        }
    }
    /// NaNs count as infinite: so they are sent first, and have a defined place in the order.
    static float weight(float value) {
        return std::isnan(value) ? std::numeric_limits<float>::infinity() : std::fabs(value);
    }
    double part_;
};

/// Treats the bucket as a matrix M with about as many rows as columns, and sends P = M Q and then, with P made
/// orthonormal, Q = M^T P; both have few columns. Q is kept, so that each reduction is another step of the power
/// iteration.
class PowerSgd : public WithMemory {
  public:
    PowerSgd(int rank, const Resources& resources) : WithMemory(resources), rank_(static_cast<std::size_t>(rank)) {}
    void forget() override {
        WithMemory::forget();
        q_.clear();
        before_.clear();
    }
    std::vector<float>* factor(std::size_t bucket) override { return &q_[bucket]; }
    void take_back() override {
        WithMemory::take_back();
        q_.swap(before_);
    }

  private:
    void send(const tuttiDpBucket_t& bucket, float* residual, float* sum) override {
        const auto columns = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(bucket.count))));
        const std::size_t rows = (bucket.count + columns - 1) / columns, r = std::min({rank_, rows, columns});
        const Matrix m{residual, bucket.count, rows, columns};
        std::vector<float>& q = q_[bucket.index];
        if (resources_.may_be_taken_back) before_[bucket.index] = q;
        if (q.size() != columns * r) fill(q, columns * r);  // none, or from a checkpoint with another powerRank
        renew(q, r);
        std::vector<float> p(rows * r, 0.0f);
        m.times(q, p, r);
        must(tuttiAllReduce(p.data(), p.data(), p.size(), tuttiFloat32, tuttiSum, resources_.cpu_comm, nullptr));
        // P is the same on all ranks, so all of them return here: nothing was sent except that a value is not finite.
        if (!finite(p)) {
            std::fill_n(sum, bucket.count, std::numeric_limits<float>::quiet_NaN());
            return;
        }
        orthonormalize(p, rows, r);
        m.transposed_times(p, q, r);  // this rank's Q: what it sends of the bucket is P Q^T
        for (std::size_t i = 0; i < bucket.count; ++i) residual[i] -= product(p, q, r, i / columns, i % columns);
        must(tuttiAllReduce(q.data(), q.data(), q.size(), tuttiFloat32, tuttiSum, resources_.cpu_comm, nullptr));
        for (std::size_t i = 0; i < bucket.count; ++i) sum[i] = product(p, q, r, i / columns, i % columns);
        if (!finite(q)) q.clear();  // begins anew the next time
    }

    static bool finite(const std::vector<float>& all) {
        return std::ranges::all_of(all, [](float v) { return std::isfinite(v); });
    }

    /// Row-major. The last row may be incomplete.
    struct Matrix {
        const float* at;
        std::size_t count, rows, columns;
        void times(const std::vector<float>& q, std::vector<float>& p, std::size_t r) const {
            for (std::size_t i = 0; i < count; ++i)
                for (std::size_t k = 0; k < r; ++k) p[i / columns * r + k] += at[i] * q[i % columns * r + k];
        }
        void transposed_times(const std::vector<float>& p, std::vector<float>& q, std::size_t r) const {
            std::ranges::fill(q, 0.0f);
            for (std::size_t i = 0; i < count; ++i)
                for (std::size_t k = 0; k < r; ++k) q[i % columns * r + k] += at[i] * p[i / columns * r + k];
        }
    };

    static float product(const std::vector<float>& p, const std::vector<float>& q, std::size_t r, std::size_t row,
                         std::size_t column) {
        float sum = 0;
        for (std::size_t k = 0; k < r; ++k) sum += p[row * r + k] * q[column * r + k];
        return sum;
    }

    /// Fills Q with pseudo-random numbers, which must be the same on all ranks.
    static void fill(std::vector<float>& q, std::size_t count) {
        std::uint32_t state = 1;
        q.clear();
        for (std::size_t i = 0; i < count; ++i) {
            state = state * 1664525u + 1013904223u;
            q.push_back(static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
        }
    }

    /// Makes a kept Q fit for the next product. It has the magnitude of the last gradients, and its product with the
    /// next ones might underflow or overflow: so each column is scaled by a power of two. A column of zeros, from
    /// gradients of zero or of a lower rank, would stay so for ever: it begins anew.
    static void renew(std::vector<float>& q, std::size_t r) {
        std::vector<float> anew;
        for (std::size_t k = 0; k < r; ++k) {
            float most = 0;
            for (std::size_t i = k; i < q.size(); i += r) most = std::max(most, std::fabs(q[i]));
            if (most == 0 && anew.empty()) fill(anew, q.size());
            const int power = most == 0 ? 0 : -std::ilogb(most);
            for (std::size_t i = k; i < q.size(); i += r) q[i] = most == 0 ? anew[i] : std::ldexp(q[i], power);
        }
    }

    /// Gram-Schmidt, column by column. A column that depends on the earlier ones, or is as small as subnormal numbers,
    /// becomes zero, so that it sends nothing.
    static void orthonormalize(std::vector<float>& p, std::size_t rows, std::size_t r) {
        for (std::size_t k = 0; k < r; ++k) {
            const auto dot = [&](std::size_t a, std::size_t b) {
                double sum = 0;
                for (std::size_t i = 0; i < rows; ++i) sum += static_cast<double>(p[i * r + a]) * p[i * r + b];
                return sum;
            };
            const double before = dot(k, k);
            for (std::size_t j = 0; j < k; ++j) {
                const auto part = static_cast<float>(dot(j, k));
                for (std::size_t i = 0; i < rows; ++i) p[i * r + k] -= part * p[i * r + j];
            }
            const double norm = std::sqrt(dot(k, k));
            const double least = std::max<double>(1e-6 * std::sqrt(before), std::numeric_limits<float>::min());
            const float factor = norm > least ? static_cast<float>(1 / norm) : 0.0f;
            for (std::size_t i = 0; i < rows; ++i) p[i * r + k] *= factor;
        }
    }

    std::size_t rank_;
    std::map<std::size_t, std::vector<float>> q_, before_;  // by bucket; before_: before the last send()
};

}  // namespace

std::unique_ptr<Compression> Compression::make(const Options& options, const Resources& resources) {
    if (options.hook != nullptr) return std::make_unique<Hook>(options.hook, options.hookUser, resources.comm);
    switch (options.compression) {
        case tuttiDpFp16:
            return std::make_unique<Halves>(DataType::float16, resources);
        case tuttiDpBf16:
            return std::make_unique<Halves>(DataType::bfloat16, resources);
        case tuttiDpFp8:
            return std::make_unique<Eighths>(resources);
        case tuttiDpAllGather:
            return std::make_unique<Gathered>(resources);
        case tuttiDpTopK:
            return std::make_unique<TopK>(options.topK, resources);
        case tuttiDpPowerSgd:
            return std::make_unique<PowerSgd>(options.powerRank, resources);
        default:
            return nullptr;
    }
}

}  // namespace tutti::dp
