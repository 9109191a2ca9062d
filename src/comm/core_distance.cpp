#include "comm/core_distance.hpp"

#include <algorithm>
#include <chrono>

namespace tutti {
namespace {

constexpr std::chrono::milliseconds to_arrive{20}, patience{1};
constexpr std::uint32_t exchanges = 16, repeats = 8, last = 2 * exchanges * repeats;
constexpr std::uint32_t measured = 1u << 31;  // with it: the result

}  // namespace

/// The word counts: the first rank makes it even, the other one odd. The least of all repeats is the result, since
/// whatever disturbs takes longer. Who waits too long ends it by writing a result of 0.
int line_ns_between(RankPage& page, bool first) {
    std::atomic<std::uint32_t>& word = page.core_distance.word;
    if (first) futex_wait(word, 0, to_arrive);  // asleep: the other one needs this rank's service thread to come here
    const Deadline give_up = Clock::now() + patience;
    const auto give = [&](std::uint32_t from, std::uint32_t value) {
        return word.compare_exchange_strong(from, value, std::memory_order_acq_rel);
    };
    const auto wait_for = [&](std::uint32_t value) {
        for (int looks = 0;; ++looks) {
            const std::uint32_t now = word.load(std::memory_order_acquire);
            if (now == value) return true;
            if ((now & measured) != 0) return false;
            if (looks % 64 == 63 && Clock::now() > give_up) give(now, measured);
        }
    };
    if (first) {
        Clock::duration least = patience;
        std::uint32_t turn = 1;
        bool together = wait_for(turn);
        while (together && turn < last) {
            const auto begin = Clock::now();
            for (std::uint32_t i = 0; together && i < exchanges; ++i, turn += 2)
                together = give(turn, turn + 1) && wait_for(turn + 2);
            if (together) least = std::min(least, Clock::now() - begin);
        }
        const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(least).count() / (2 * exchanges);
        if (together) give(turn, measured | static_cast<std::uint32_t>(std::max<long long>(ns, 1)));
    } else if (give(0, 1)) {
        futex_wake_all(word);
        for (std::uint32_t turn = 2; wait_for(turn) && give(turn, turn + 1); turn += 2) continue;
    }
    return static_cast<int>(word.load(std::memory_order_acquire) & ~measured);
}

}  // namespace tutti
