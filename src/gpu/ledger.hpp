// The record of GPU memory that a rank lends to ranks of other processes, which open it by CUDA IPC handles: its arena,
// and users' memory (lending.hpp). CUDA leaves it undefined what happens if memory is freed while another process has
// it open. So every borrower notes in the lender's page what it may have open, from before it opens until after it has
// closed. Memory is freed, or its owner told that it may free it, when no borrower has it open.
//
//     lender                                        borrower
//     entry k = handle; turn = 2 i + 1  ----------> held[k] = 2 i + 1; looks at the turn again; opens
//                                                   borrowed[k] = 2 i + 1
//     turn = 2 i + 2; rings             ----------> its thread closes; held[k] = 0; rings
//     held[k] is 0 for all: it is back
//
// A process that dies has nothing open any more. The lease shows that no borrower is left: it is one end of a pipe, of
// which every borrower keeps a duplicate until it has closed all of the lender's memory.
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

inline constexpr std::uint32_t most_loans = max_regions + 512;  // numbers from max_regions on are for windows alone

/// A lender's page, in shared memory. The lender writes it, except for the bell and each borrower's row.
struct LendingPage {
    struct Entry {
        std::atomic<std::uint32_t> turn;  // odd while the handle is valid; changes with every loan and recall
        std::atomic<std::uint64_t> handle[sizeof(Handle) / 8];
    };
    std::atomic<std::uint32_t> bell;     // futex; others ring it when they give back, or want something back
    std::atomic<std::uint32_t> changes;  // counts changes of entries
    Entry entries[most_loans];           // by the loan's number; 0 is never used
    std::atomic<std::uint32_t> borrowed[most_seats][most_loans];  // by the borrower's seat: the turn that it opened
    std::atomic<std::uint32_t> held[most_seats][most_loans];      // the turn that it may have open; 0 if none
    void ring();
};

/// The mapping of a page in this process.
class PageMapping {
  public:
    explicit PageMapping(const Fd& fd) : mapping_(Mapping::of(fd)) {}
    std::size_t size() const { return mapping_.size(); }
    LendingPage& operator*() const { return *reinterpret_cast<LendingPage*>(mapping_.base()); }
    LendingPage* operator->() const { return &**this; }

  private:
    Mapping mapping_;
};

/// The lender's side. Shared by its arena, its lender and the claims on lent memory. For any thread.
class Ledger {
  public:
    Ledger();
    const Fd& fd() const { return fd_; }        // the page, for borrowers
    const Fd& lease() const { return lease_; }  // for borrowers
    LendingPage& page() const { return *page_; }

    /// Adds a borrower. its: the borrower's own page, whose bell wakes it.
    void expect(int seat, std::shared_ptr<const PageMapping> its);
    bool has_borrowers() const;
    /// Whether all borrowers have opened the loan.
    bool is_everywhere(std::uint32_t number, std::uint32_t turn) const;
    /// Clears all that a borrower holds, whose process has died.
    void bury(int seat);

    /// Asks the loan back, once. Each borrower closes it as soon as its GPU allows that.
    void recall(std::uint32_t number, std::uint32_t turn);
    /// The seat of a borrower that may have the loan open; any turn of it if turn is 0. -1 if there is none.
    int holder(std::uint32_t number, std::uint32_t turn = 0) const;

    /// To be called before borrowers fetch the lease.
    void open() { opened_.store(true, std::memory_order_relaxed); }
    /// Drops this process' end of the lease: nobody can fetch it any more.
    void close();
    /// Whether somebody still has the lease: this process until close(), and borrowers that may have memory open. False
    /// if open() was not called.
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
    std::vector<Member> borrowers_;  // guarded by mutex_
};

/// A reason not to free memory yet: a loan, or the lease of an arena if number is 0.
struct Claim {
    std::shared_ptr<Ledger> ledger;
    std::uint32_t number = 0, turn = 0;
    bool holds() const { return (number == 0 || ledger->holder(number, turn) >= 0) && ledger->is_leased(); }
};

/// Frees memory of this process once no claim on it holds: at once, or in a later free_what_is_back(). If there is no
/// host memory to note it, it stays allocated.
void free_when_back(Gpus& gpus, int device, std::byte* memory, std::span<const Claim> claims) noexcept;
/// Frees all such memory on which no claim holds any more. Called when something is given back, allocated or freed.
void free_what_is_back() noexcept;

/// Notes that an allocation that the library made at `base` was lent. recall_all() asks back all loans of it, and
/// returns the claims that were noted.
void remember_claim(const std::byte* base, Claim claim);
std::vector<Claim> recall_all(const std::byte* base);

}  // namespace tutti::gpu
