// Whether threads of a block use the same bytes with no barrier between, one of them to store: beside every word of
// memory is who has used it since the last barrier. Strong accesses (volatile, relaxed, acquire, release, atomics) may
// meet each other; plain ones may meet none but plain loads. For the files ptx_*.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace tutti::ptx {

class Races {
  public:
    enum class Kind { load, store, strong_load, strong_store };
    /// Throws Fault for a race.
    void use(const std::byte* at, std::size_t size, std::uint32_t thread, Kind kind, const char* space);
    void barrier() { ++epoch_; }

  private:
    struct Word {
        std::uint32_t epoch = 0;
        std::uint16_t stored[8] = {}, loaded[8] = {}, strong[8] = {};  // thread + 1; several: 0xffff
    };
    std::uint32_t epoch_ = 1;
    std::unordered_map<const std::byte*, Word> words_;
    std::size_t most_ = 1 << 16;  // words; more of them are swept, and those of this epoch stay
};

}  // namespace tutti::ptx
