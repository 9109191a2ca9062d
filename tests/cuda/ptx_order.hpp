// Which accesses of a block's warps come before which, by the barriers between them alone: each warp knows, by each
// other one, up to which time. Threads of a warp count as one, as barriers count them. For the files ptx_*.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

namespace tutti::ptx {

/// Bits of warps.
inline constexpr std::uint32_t all_warps = ~0u;
inline constexpr std::uint32_t bit_of_warp(std::uint32_t thread) {
    return 1u << thread / 32 % 32;
}

class Order {
  public:
    static constexpr unsigned warps = 32, barriers = 16;
    static constexpr unsigned none = barriers;  // of these: for barriers that have no number

    /// When an access takes place.
    std::uint32_t now() const { return now_; }
    /// Whether what these warps did at that time, and before, comes before what the thread does now.
    bool is_before(std::uint32_t time, std::uint32_t of, std::uint32_t thread) const {
        const Times& known = known_[thread / 32 % warps];
        for (; of != 0; of &= of - 1)
            if (known[static_cast<unsigned>(std::countr_zero(of))] <= time) return false;
        return true;
    }
    /// A thread comes to the barrier and does not wait.
    void arrive(unsigned barrier, std::uint32_t thread) {
        const unsigned warp = thread / 32 % warps;
        ++now_;
        merge(arrived_[barrier], known_[warp]);
        arrived_[barrier][warp] = now_;
    }
    /// These warps have waited at the barrier, which opens.
    void meet(std::uint32_t which, unsigned barrier) {
        ++now_;
        Times together = std::exchange(arrived_[barrier], {});
        for (unsigned w = 0; w < warps; ++w)
            if ((which >> w & 1) != 0) merge(together, known_[w]), together[w] = now_;
        for (unsigned w = 0; w < warps; ++w)
            if ((which >> w & 1) != 0) known_[w] = together;
    }

  private:
    using Times = std::array<std::uint32_t, warps>;
    static void merge(Times& into, const Times& other) {
        for (unsigned w = 0; w < warps; ++w) into[w] = std::max(into[w], other[w]);
    }
    std::uint32_t now_ = 1;
    std::array<Times, warps> known_{};
    std::array<Times, barriers + 1> arrived_{};  // of those that have not opened since
};

}  // namespace tutti::ptx
