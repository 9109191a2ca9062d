// Lets callers in one by one, in the order in which they took their tickets. So the operations of a communicator run in
// the order of their calls, whatever streams they were issued on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/os.hpp"

namespace tutti {

/// Shared by a communicator, its handle and the reservations of its operations. Any thread may call it, except leave(),
/// which the holder of the turn calls.
class TicketLock {
  public:
    /// Takes the next ticket. Its owner must enter() soon, and leave(): all later tickets wait for that.
    std::uint32_t ticket() { return next_.fetch_add(1, std::memory_order_relaxed); }

    /// Waits for the ticket's turn, which leave() ends. The owner of the turn before is bounded by its own time-outs.
    void enter(std::uint32_t ticket) {
        for (int spins = 0; serving_.load(std::memory_order_acquire) != ticket; ++spins) {
            if (spins < 100)
                cpu_relax();
            else
                wait(ticket);
        }
    }
    void leave() { serve(serving_.load(std::memory_order_relaxed) + 1); }
    bool idle() const { return next_.load(std::memory_order_acquire) == serving_.load(std::memory_order_acquire); }

    /// Takes a ticket whose owner comes later, when its stream reaches the operation. The lock passes over a reserved
    /// ticket that was given back.
    std::uint32_t reserve();

    /// Waits for the turn of a reserved ticket, some milliseconds at most. waits: not yet. inside: the caller has the
    /// turn. called_off: the ticket was given back and is void.
    enum class Turn { waits, inside, called_off };
    Turn await(std::uint32_t reserved);
    void give_back(std::uint32_t reserved) noexcept;

    /// Gives back all reserved tickets and those that are reserved later. For a communicator that has failed: a thread
    /// that aborts it must not wait until streams reach operations that have not begun.
    void call_off() noexcept;

  private:
    struct Reserved {
        std::uint32_t ticket;
        bool given_back;
    };
    std::vector<Reserved>::iterator find(std::uint32_t ticket);
    void serve(std::uint32_t next) {
        serving_.store(next, std::memory_order_release);
        if (waiting_.load(std::memory_order_relaxed) != 0)
            futex_wake_all(serving_);  // a sleeper that this misses looks again in 10 ms
    }
    void wait(std::uint32_t ticket);
    void pass_given_back();

    std::atomic<std::uint32_t> next_{0};
    std::atomic<std::uint32_t> serving_{0};
    std::atomic<int> waiting_{0};
    std::mutex mutex_;  // guards the next two
    std::vector<Reserved> reserved_;
    bool called_off_ = false;
};

/// Holds a turn for as long as it lives.
class InTurn {
  public:
    explicit InTurn(TicketLock& ticket_lock) : InTurn(ticket_lock, ticket_lock.ticket()) {}
    InTurn(TicketLock& ticket_lock, std::uint32_t ticket) : ticket_lock_(ticket_lock) { ticket_lock_.enter(ticket); }
    ~InTurn() { ticket_lock_.leave(); }
    InTurn(const InTurn&) = delete;

  private:
    TicketLock& ticket_lock_;
};

/// A reserved ticket. Its destructor gives the ticket back or, if it is inside, leaves the turn. One made without a
/// lock holds nothing: the caller has the turn.
class Reservation {
  public:
    Reservation() = default;
    explicit Reservation(std::shared_ptr<TicketLock> ticket_lock)
        : ticket_lock_(std::move(ticket_lock)), ticket_(ticket_lock_->reserve()) {}
    Reservation(Reservation&& other) noexcept
        : ticket_lock_(std::move(other.ticket_lock_)), ticket_(other.ticket_), inside_(other.inside_) {}
    Reservation& operator=(Reservation&& other) noexcept {
        end();
        ticket_lock_ = std::move(other.ticket_lock_);
        ticket_ = other.ticket_;
        inside_ = other.inside_;
        return *this;
    }
    ~Reservation() { end(); }

    /// As TicketLock::await.
    TicketLock::Turn await() {
        if (inside_ || ticket_lock_ == nullptr) return TicketLock::Turn::inside;
        const TicketLock::Turn turn = ticket_lock_->await(ticket_);
        inside_ = turn == TicketLock::Turn::inside;
        return turn;
    }
    void end() noexcept {
        if (ticket_lock_ == nullptr) return;
        if (inside_)
            ticket_lock_->leave();
        else
            ticket_lock_->give_back(ticket_);
        ticket_lock_ = nullptr;
    }

  private:
    std::shared_ptr<TicketLock> ticket_lock_;
    std::uint32_t ticket_ = 0;
    bool inside_ = false;
};

}  // namespace tutti
