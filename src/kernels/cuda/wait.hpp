// Waits of a kernel's threads, for a word or for a line. Every wait polls the host's abort flag and the clock now and
// then, so all of them end.
#pragma once

#include "kernels/cuda/plan.hpp"
#include "kernels/cuda/simt.hpp"

namespace tutti::gpu {

enum class Outcome : std::uint32_t { met, aborted, timed_out };

/// What ends a wait early.
struct Limits {
    const std::uint32_t* abort;  // Control::abort
    std::uint64_t timeout_ns;    // from the first check of the clock on
};

struct WordSeen {
    Outcome outcome;
    std::uint32_t value;
};
struct LineSeen {
    Outcome outcome;
    std::uint64_t data;
};

/// Of a loop that waits.
class Patience {
  public:
    /// To be called after each look in vain: whether to look again (met).
    TUTTI_DEVICE Outcome look(const Limits& limits) {
        constexpr std::uint32_t looks_per_check = 1024;  // reading the host's memory is slow
        relax();
        if (++looks_ % looks_per_check != 0) return Outcome::met;
        if (load_acquire(limits.abort) != 0) return Outcome::aborted;
        const std::uint64_t now = now_ns();
        if (since_ == 0) since_ = now;
        return now - since_ >= limits.timeout_ns ? Outcome::timed_out : Outcome::met;
    }

  private:
    std::uint32_t looks_ = 0;
    std::uint64_t since_ = 0;
};

namespace detail {

template <class Look>
TUTTI_DEVICE Outcome until(Look&& look, const Limits& limits) {
    Patience patience;
    for (;;) {
        if (look()) return Outcome::met;
        const Outcome outcome = patience.look(limits);
        if (outcome != Outcome::met) return outcome;
    }
}

}  // namespace detail

/// Waits until 0 <= *word - least < range, modulo 2^32. Returns the last value read, with acquire semantics.
TUTTI_DEVICE_APART inline WordSeen wait_for_word(const std::uint32_t* word, std::uint32_t least, std::uint32_t range,
                                                 Limits limits) {
    std::uint32_t value = 0;
    const Outcome outcome = detail::until(
        [&] {
            value = load_acquire(word);
            return value - least < range;
        },
        limits);
    return {outcome, value};
}

/// Waits until both halves of a line carry the flag.
TUTTI_DEVICE_APART inline LineSeen wait_for_line(const Line* from, std::uint32_t flag, Limits limits) {
    Line line{};
    const Outcome outcome = detail::until(
        [&] {
            line = load_line(from);
            return line.flag_low == flag && line.flag_high == flag;
        },
        limits);
    return {outcome, line.low | static_cast<std::uint64_t>(line.high) << 32};
}

/// Ends a kernel: the first caller on the GPU writes the verdict, and `abort` ends all other waits. verdict: its
/// `claimed` and `done` do not matter.
TUTTI_DEVICE void give_up(Control& control, const Verdict& verdict) {
    Verdict& v = control.verdict;
    if (claim(&v.claimed)) {
        v.cause = verdict.cause;
        v.peer = verdict.peer;
        v.source = verdict.source;
        v.call = verdict.call;
        v.channel = verdict.channel;
        v.tile = verdict.tile;
        v.step = verdict.step;
        v.expected = verdict.expected;
        v.seen = verdict.seen;
        store_release(&v.done, 1);
    }
    store_release(&control.abort, 1);
}

}  // namespace tutti::gpu
