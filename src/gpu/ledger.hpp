// What a rank has given to ranks of other processes, which open it by CUDA IPC handles: its arena, and memory of users
// (lending.hpp). CUDA leaves undefined what becomes of memory that is freed while another process has it open. So every
// borrower tells in the ledger's page what it may have open, from before it opens to after it has closed, and memory is
// freed, or its owner told that it may free, when nobody has.
//
//     lender                                        borrower
//     entry k = handle; turn = 2 i + 1  ----------> held[k] = 2 i + 1; looks at the turn again; opens
//                                                   borrowed[k] = 2 i + 1
//     turn = 2 i + 2; rings             ----------> its thread closes; held[k] = 0; rings
//     nobody holds k: it is back
//
// A process that dies holds nothing any more. That is seen by the lease: the end of a pipe, a copy of which every
// borrower has until it has closed all that is the lender's.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/os.hpp"
#include "gpu/gpus.hpp"
#include "gpu/places.hpp"

namespace tutti::gpu {

inline constexpr std::uint32_t most_loans = max_regions + 512;  // those above max_regions are windows' alone

/// Shared between processes; written by the lender but for what is by seat.
struct LendingPage {
    struct Entry {
        std::atomic<std::uint32_t> turn;  // odd: the handle is good; changes with it
        std::atomic<std::uint64_t> handle[sizeof(Handle) / 8];
    };
    std::atomic<std::uint32_t> bell;  // rung by others: something is back, or wanted back
    std::atomic<std::uint32_t> changes;
    Entry entries[most_loans];                                    // 0 is never used
    std::atomic<std::uint32_t> borrowed[most_seats][most_loans];  // by the borrower's seat: the turn that it opened
    std::atomic<std::uint32_t> held[most_seats][most_loans];      // not 0: it may have it open
    void ring();
};

/// A page as this process sees it.
class PageMapping {
  public:
    explicit PageMapping(const Fd& fd) : mapping_(Mapping::of(fd)) {}
    std::size_t size() const { return mapping_.size(); }
    LendingPage& operator*() const { return *reinterpret_cast<LendingPage*>(mapping_.base()); }
    LendingPage* operator->() const { return &**this; }

  private:
    Mapping mapping_;
};

/// From any thread.
class Ledger {
  public:
    Ledger();
    const Fd& fd() const { return fd_; }        // of the page
    const Fd& lease() const { return lease_; }  // both are for borrowers
    LendingPage& page() const { return *page_; }

    /// A borrower, and its own page, by whose bell it is told.
    void expect(int seat, std::shared_ptr<const PageMapping> its);
    bool has_borrowers() const;
    /// Whether all of them have opened what was lent so.
    bool is_everywhere(std::uint32_t number, std::uint32_t turn) const;
    /// Its process has died: it holds nothing.
    void bury(int seat);

    /// Takes the loan back, unless that was done: borrowers close it, each as soon as its GPU lets it.
    void recall(std::uint32_t number, std::uint32_t turn);
    /// The seat of a rank that may have it open; -1: there is none. turn 0: of whichever turn.
    int holder(std::uint32_t number, std::uint32_t turn = 0) const;

    /// Ranks of other processes fetch the lease from now on, until close().
    void open() { opened_.store(true, std::memory_order_relaxed); }
    void close();
    /// Some of them may have the arena open.
    bool is_leased() const;

  private:
    struct Member {
        int seat;
        std::shared_ptr<const PageMapping> page;
    };
    const Fd fd_;
    const PageMapping page_;
    Fd lease_, other_end_;
    std::atomic<bool> opened_{false};
    mutable std::mutex mutex_;
    std::vector<Member> borrowers_;
};

/// What keeps memory from being freed: a loan, or, number 0, the lease of an arena.
struct Claim {
    std::shared_ptr<Ledger> ledger;
    std::uint32_t number = 0, turn = 0;
    bool holds() const { return (number == 0 || ledger->holder(number, turn) >= 0) && ledger->is_leased(); }
};

/// Frees memory of this process once no claim to it holds: now, or when something is next given back, allocated or
/// freed. Where there is no room to remember it, it stays allocated.
void free_when_back(Gpus& gpus, int device, std::byte* memory, std::span<const Claim> claims) noexcept;
void free_what_is_back() noexcept;

/// Of this process' memory from `base` on, which the library has allocated: it was lent. recall_all() takes back all
/// that was said.
void remember_claim(const std::byte* base, Claim claim);
std::vector<Claim> recall_all(const std::byte* base);

}  // namespace tutti::gpu
