// What a rank calls, as its peers see it.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/types.hpp"

namespace tutti {

/// A description of a rank's call, for error texts.
struct Call {
    std::uint32_t signature = 0;  // 0: no call
    std::uint32_t sequence = 0;   // collectives: how many the rank had called before
    Collective collective{};
    DataType type{};
    std::uint8_t op = 0;  // as tuttiRedOp_t, every pre-multiplied sum as 5
    std::uint8_t algorithm = 0;
    std::int32_t root = 0;
    std::uint64_t count = 0;  // elements; uneven calls: Rows::digest(), which is larger than any count

    /// Sets the first two in one store, which the loads of SharedCall::set() need not wait for.
    void number(std::uint32_t its_signature, std::uint32_t its_sequence) {
        static_assert(std::endian::native == std::endian::little);
        const std::uint64_t both = its_signature | std::uint64_t{its_sequence} << 32;
        std::memcpy(static_cast<void*>(this), &both, sizeof both);
    }
};

static_assert(std::is_trivially_copyable_v<Call>);
static_assert(offsetof(Call, signature) == 0 && offsetof(Call, sequence) == 4, "see Call::number()");

/// A Call that one thread sets and any thread or peer reads at any time, without a lock. A reader may get a mixture of
/// two calls, so it serves for error texts only.
class SharedCall {
  public:
    void set(const Call& call) {
        for (int i = 0; i < size; ++i) {
            std::uint64_t word;
            std::memcpy(&word, reinterpret_cast<const std::byte*>(&call) + i * 8, sizeof word);
            words_[i].store(word, std::memory_order_relaxed);
        }
    }
    Call get() const {
        std::uint64_t words[size];
        for (int i = 0; i < size; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
        Call call;
        std::memcpy(&call, words, sizeof call);
        return call;
    }

  private:
    static constexpr int size = sizeof(Call) / 8;
    static_assert(sizeof(Call) % 8 == 0);
    std::atomic<std::uint64_t> words_[size];
};

}  // namespace tutti
