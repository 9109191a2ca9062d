// Lets callers in one by one, in the order in which they took their tickets: operations of one communicator run in the
// order of their calls, whichever streams they were issued on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/os.hpp"

namespace tutti {

class Turnstile {
  public:
    std::uint32_t ticket() { return next_.fetch_add(1, std::memory_order_relaxed); }

    /// Waits for the ticket's turn. The caller before is bounded by its own time-outs.
    void enter(std::uint32_t ticket) {
        for (int spins = 0; serving_.load(std::memory_order_acquire) != ticket; ++spins) {
            if (spins < 100) {
                cpu_relax();
                continue;
            }
            const std::uint32_t now = serving_.load(std::memory_order_acquire);
            if (now == ticket) break;
            waiting_.fetch_add(1, std::memory_order_seq_cst);
            futex_wait(serving_, now, std::chrono::milliseconds(10));
            waiting_.fetch_sub(1, std::memory_order_relaxed);
        }
    }
    void leave() {
        serving_.store(serving_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        if (waiting_.load(std::memory_order_relaxed) != 0)
            futex_wake_all(serving_);  // a missed one looks again in 10 ms
    }
    bool idle() const { return next_.load(std::memory_order_acquire) == serving_.load(std::memory_order_acquire); }

  private:
    std::atomic<std::uint32_t> next_{0};
    std::atomic<std::uint32_t> serving_{0};
    std::atomic<int> waiting_{0};
};

/// Keeps a turn for as long as it lives.
class InTurn {
  public:
    explicit InTurn(Turnstile& turnstile) : turnstile_(turnstile) { turnstile_.enter(turnstile_.ticket()); }
    ~InTurn() { turnstile_.leave(); }
    InTurn(const InTurn&) = delete;

  private:
    Turnstile& turnstile_;
};

}  // namespace tutti
