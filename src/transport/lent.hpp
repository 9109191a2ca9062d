// A rank's parts of windows, as its engine writes to them for peers on other hosts. Those on its host write themselves,
// and look at RankPage::gates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace tutti {

/// By gate. Any thread.
class LentMemory {
  public:
    /// Under this key, until it is taken back. key: not 0.
    void lend(std::uint32_t gate, std::uint32_t key, std::span<std::byte> memory);
    /// Nobody writes there any more when it returns. Does nothing to what is not lent.
    void take_back(std::uint32_t gate);
    void take_all_back();

    enum class Written { done, not_lent, out_of_bounds };
    Written write(std::uint32_t gate, std::uint32_t key, std::uint64_t offset, std::span<const std::byte> data);

  private:
    struct Part {
        std::uint32_t key = 0;  // 0: not lent
        std::span<std::byte> memory = {};
    };
    std::mutex mutex_;  // also of what is written: a message's data at a time
    std::vector<Part> parts_;
};

}  // namespace tutti
