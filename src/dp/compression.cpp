#include "dp/compression.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "dp/calls.hpp"
#include "dp/numbers.hpp"

namespace tutti::dp {
namespace {

/// The caller's.
class Hook : public Compression {
  public:
    Hook(tuttiDpHook_t function, void* user) : function_(function), user_(user) {}
    bool reduce(const tuttiDpBucket_t& bucket, tuttiComm_t comm) override {
        const tuttiResult_t result = function_(user_, &bucket, comm);
        if (result != tuttiSuccess)
            fail(result, "the hook returned %d for bucket %zu on rank %d", static_cast<int>(result), bucket.index,
                 bucket.rank);
        return true;
    }

  private:
    tuttiDpHook_t function_;
    void* user_;
};

/// Those that know fp32 only.
class OfFloats : public Compression {
  public:
    bool reduce(const tuttiDpBucket_t& bucket, tuttiComm_t comm) final {
        if (bucket.type != tuttiFloat32) return false;
        float* data = static_cast<float*>(bucket.data);
        divide(DataType::float32, data, bucket.count, bucket.divisor);
        reduce_floats(bucket, data, comm);
        return true;
    }

  protected:
    /// data: this rank's share of the mean.
    virtual void reduce_floats(const tuttiDpBucket_t& bucket, float* data, tuttiComm_t comm) = 0;
};

/// Sent in 16 bits.
class Halves : public OfFloats {
  public:
    explicit Halves(DataType type) : type_(type) {}
    void reduce_floats(const tuttiDpBucket_t& bucket, float* data, tuttiComm_t comm) override {
        wire_.resize(bucket.count);
        convert(type_, wire_.data(), DataType::float32, data, bucket.count);
        must(tuttiAllReduce(wire_.data(), wire_.data(), bucket.count, static_cast<tuttiDataType_t>(type_), tuttiSum,
                            comm, nullptr));
        convert(DataType::float32, data, type_, wire_.data(), bucket.count);
    }

  private:
    DataType type_;
    std::vector<std::uint16_t> wire_;
};

/// Sent in 8 bits. The scale is a power of two, so that it rounds nothing: the largest of all ranks' values, added as
/// often as there are ranks, stays below 448.
class Eighths : public OfFloats {
  public:
    void reduce_floats(const tuttiDpBucket_t& bucket, float* data, tuttiComm_t comm) override {
        float largest = largest_magnitude(data, bucket.count);
        must(tuttiAllReduce(&largest, &largest, 1, tuttiFloat32, tuttiMax, comm, nullptr));
        if (largest == 0) return;
        const int exponent = std::ilogb(448.0f / (largest * static_cast<float>(bucket.ranks)));
        const double scale = std::ldexp(1.0, std::clamp(exponent, -120, 120));
        multiply(DataType::float32, data, bucket.count, scale);
        wire_.resize(bucket.count);
        convert(DataType::float8e4m3, wire_.data(), DataType::float32, data, bucket.count);
        must(tuttiAllReduce(wire_.data(), wire_.data(), bucket.count, tuttiFloat8e4m3, tuttiSum, comm, nullptr));
        convert(DataType::float32, data, DataType::float8e4m3, wire_.data(), bucket.count);
        multiply(DataType::float32, data, bucket.count, 1 / scale);
    }

  private:
    std::vector<std::uint8_t> wire_;
};

/// What was not sent is added the next time (error feedback), so nothing is lost for good.
class WithMemory : public OfFloats {
  public:
    void reduce_floats(const tuttiDpBucket_t& bucket, float* data, tuttiComm_t comm) final {
        std::vector<float>& rest = rests_[bucket.index];
        rest.resize(bucket.count, 0.0f);
        for (std::size_t i = 0; i < bucket.count; ++i) rest[i] += data[i];
        send(bucket, rest.data(), data, comm);
    }

  protected:
    /// rest: in, what there is to send; out, what was not sent. sum: what all ranks have sent.
    virtual void send(const tuttiDpBucket_t& bucket, float* rest, float* sum, tuttiComm_t comm) = 0;

  private:
    std::map<std::size_t, std::vector<float>> rests_;  // by bucket
};

class TopK : public WithMemory {
  public:
    explicit TopK(double part) : part_(part) {}

  private:
    struct Entry {
        std::uint32_t index;
        float value;
    };
    void send(const tuttiDpBucket_t& bucket, float* rest, float* sum, tuttiComm_t comm) override {
        const auto wanted = static_cast<std::size_t>(std::ceil(part_ * static_cast<double>(bucket.count)));
        const std::size_t k = std::clamp<std::size_t>(wanted, 1, bucket.count);
        if (bucket.count > UINT32_MAX) fail(tuttiInvalidUsage, "top-k is for buckets of less than 2^32 elements");
        std::vector<std::uint32_t> order(bucket.count);
        std::iota(order.begin(), order.end(), 0u);
        std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k) - 1, order.end(),
                         [&](std::uint32_t a, std::uint32_t b) {
                             const float x = std::fabs(rest[a]), y = std::fabs(rest[b]);
                             return x != y ? x > y : a < b;
                         });
        std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
        std::vector<Entry> mine(k), all(k * static_cast<std::size_t>(bucket.ranks));
        for (std::size_t i = 0; i < k; ++i) mine[i] = {order[i], std::exchange(rest[order[i]], 0.0f)};
        must(tuttiAllGather(mine.data(), all.data(), k * sizeof(Entry), tuttiUint8, comm, nullptr));
        std::fill_n(sum, bucket.count, 0.0f);
        for (const Entry& e : all) {
            if (e.index >= bucket.count) fail(tuttiRemoteError, "a rank sent element %u of %zu", e.index, bucket.count);
            sum[e.index] += e.value;
        }
    }
    double part_;
};

/// The bucket as a matrix M of about as many rows as columns is sent as P = M Q and then Q = M^T P with orthonormal P,
/// each of few columns. Q is kept: every time is one more step of the power iteration.
class PowerSgd : public WithMemory {
  public:
    explicit PowerSgd(int rank) : rank_(static_cast<std::size_t>(rank)) {}

  private:
    void send(const tuttiDpBucket_t& bucket, float* rest, float* sum, tuttiComm_t comm) override {
        const auto columns = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(bucket.count))));
        const std::size_t rows = (bucket.count + columns - 1) / columns, r = std::min({rank_, rows, columns});
        const Matrix m{rest, bucket.count, rows, columns};
        std::vector<float>& q = q_[bucket.index];
        if (q.empty()) fill(q, columns * r);
        std::vector<float> p(rows * r, 0.0f);
        m.times(q, p, r);
        must(tuttiAllReduce(p.data(), p.data(), p.size(), tuttiFloat32, tuttiSum, comm, nullptr));
        orthonormalize(p, rows, r);
        m.transposed_times(p, q, r);  // of this rank: what it sends is P times this
        for (std::size_t i = 0; i < bucket.count; ++i) rest[i] -= product(p, q, r, i / columns, i % columns);
        must(tuttiAllReduce(q.data(), q.data(), q.size(), tuttiFloat32, tuttiSum, comm, nullptr));
        for (std::size_t i = 0; i < bucket.count; ++i) sum[i] = product(p, q, r, i / columns, i % columns);
    }

    /// Row by row; its last row may be short.
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

    /// Any numbers will do, if they are the same on all ranks.
    static void fill(std::vector<float>& q, std::size_t count) {
        std::uint32_t state = 1;
        for (std::size_t i = 0; i < count; ++i) {
            state = state * 1664525u + 1013904223u;
            q.push_back(static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
        }
    }

    /// Gram and Schmidt, column by column. A column of which nothing is left becomes zero: it sends nothing.
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
            const float factor = norm > 1e-6 * std::sqrt(before) ? static_cast<float>(1 / norm) : 0.0f;
            for (std::size_t i = 0; i < rows; ++i) p[i * r + k] *= factor;
        }
    }

    std::size_t rank_;
    std::map<std::size_t, std::vector<float>> q_;  // by bucket
};

}  // namespace

std::unique_ptr<Compression> Compression::make(const Options& options) {
    if (options.hook != nullptr) return std::make_unique<Hook>(options.hook, options.hook_user);
    switch (options.compression) {
        case tuttiDpFp16:
            return std::make_unique<Halves>(DataType::float16);
        case tuttiDpBf16:
            return std::make_unique<Halves>(DataType::bfloat16);
        case tuttiDpFp8:
            return std::make_unique<Eighths>();
        case tuttiDpTopK:
            return std::make_unique<TopK>(options.top_k);
        case tuttiDpPowerSgd:
            return std::make_unique<PowerSgd>(options.power_rank);
        default:
            return nullptr;
    }
}

}  // namespace tutti::dp
