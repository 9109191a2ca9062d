// Whether threads of a block use the same bytes with no barrier of theirs between, one of them to store: beside every
// word of memory is who has used it since the last barrier of all. Strong accesses (volatile, relaxed, acquire,
// release, atomics) may meet each other; plain ones may meet none but plain loads. For the files ptx_*.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "ptx_order.hpp"

namespace tutti::ptx {

class Races {
  public:
    enum class Kind { load, store, strong_load, strong_store };
    /// Throws Fault for a race.
    void use(const std::byte* at, std::size_t size, std::uint32_t thread, Kind kind, const char* space);
    /// As Order has them.
    void barrier(std::uint32_t warps = all_warps, unsigned number = Order::none) {
        order_.meet(warps, number);
        if (warps == all_warps) ++epoch_;
    }
    void arrive(unsigned number, std::uint32_t thread) { order_.arrive(number, thread); }

  private:
    struct Users {
        std::uint16_t thread = 0;  // + 1; several: 0xffff; none: 0
        std::uint32_t warps = 0, last = 0;
    };
    struct Word {
        std::uint32_t epoch = 0;
        Users stored[8] = {}, loaded[8] = {}, strong[8] = {};
    };
    void note(Users& users, std::uint32_t thread) const;
    bool has_others(const Users& users, std::uint32_t thread) const;

    Order order_;
    std::uint32_t epoch_ = 1;  // counts barriers of all
    std::unordered_map<const std::byte*, Word> words_;
    std::size_t most_ = 1 << 16;  // words; more of them are swept, and those of this epoch stay
};

}  // namespace tutti::ptx
