// What a rank shares with ranks of other processes, which open it by CUDA IPC handles: its arena, and users' memory
// (lending.hpp), of which virtual memory is opened by descriptors (offered.hpp). CUDA leaves undefined what happens to
// memory that is freed while another process has it open. So every borrower notes in the lender's page what it may have
// open, from before it opens it until after it has closed it. The library frees memory, or tells its owner that it may
// free it, only when no borrower has it open.
//
//     lender                                        borrower
//     entry k = name; turn = 2 i + 1    ----------> held[k] = 2 i + 1; looks at the turn again; opens
//                                                   borrowed[k] = 2 i + 1
//     turn = 2 i + 2; rings             ----------> its thread closes; held[k] = 0; rings
//     nobody holds k: it is back
//
// A process that has died holds nothing. The lease shows that: it is one end of a pipe. Every borrower keeps a copy
// until it has closed everything of the lender, and the pipe hangs up when the last copy is gone. Forked children,
// which have nothing open, get no copy.
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

/// In memory shared by a lender and its borrowers. The lender writes it, a borrower only the rows of its seat and
/// `bell`.
struct LendingPage {
    struct Entry {
        std::atomic<std::uint32_t> turn;        // odd: the name is valid; goes up when the loan begins and when it ends
        std::atomic<std::uint32_t> is_virtual;  // 1: the name is an Offered; 0: a Handle
        std::atomic<std::uint64_t> name[sizeof(Handle) / 8];
    };
    std::atomic<std::uint32_t> bell;     // rung by peers: a loan has come back, or a peer wants one back
    std::atomic<std::uint32_t> changes;  // goes up with every change of `entries`
    Entry entries[most_loans];           // by number of the loan; 0 is never used
    std::atomic<std::uint32_t> borrowed[most_seats][most_loans];  // by the borrower's seat: the turn it has opened
    std::atomic<std::uint32_t> held[most_seats][most_loans];      // the turn it may have open; 0: none
    void ring();
};

/// A mapping of a rank's page in this process.
class PageMapping {
  public:
    explicit PageMapping(const Fd& fd) : mapping_(Mapping::of(fd)) {}
    std::size_t size() const { return mapping_.size(); }
    LendingPage& operator*() const { return *reinterpret_cast<LendingPage*>(mapping_.base()); }
    LendingPage* operator->() const { return &**this; }

  private:
    Mapping mapping_;
};

/// Owned by its Arena and by the claims to it. Any thread may use it; mutex_ guards borrowers_.
class Ledger {
  public:
    Ledger();
    const Fd& fd() const { return fd_; }        // the page's, for borrowers to map
    const Fd& lease() const { return lease_; }  // for borrowers to keep
    LendingPage& page() const { return *page_; }

    /// Adds a borrower. its: the borrower's own page, whose bell recall() rings.
    void expect(int seat, std::shared_ptr<const PageMapping> its);
    bool has_borrowers() const;
    /// Whether all borrowers have opened this turn of the loan.
    bool is_everywhere(std::uint32_t number, std::uint32_t turn) const;
    /// The borrower's process has died: clears what it held.
    void bury(int seat);

    /// Asks for the loan back, unless that was done before. Borrowers close it, each as soon as its GPU permits.
    void recall(std::uint32_t number, std::uint32_t turn);
    bool is_recalled(std::uint32_t number, std::uint32_t turn) const;
    /// The seat of a borrower that may have the loan open; -1 if there is none. turn: 0 for any turn.
    int holder(std::uint32_t number, std::uint32_t turn = 0) const;

    /// From open() to close(), ranks of other processes may fetch the lease. close() gives up this rank's own copy.
    void open() { opened_.store(true, std::memory_order_relaxed); }
    void close();
    /// Whether some process may still hold the lease, and so may have the arena open.
    bool is_leased() const;

  private:
    struct Member {
        int seat;
        std::shared_ptr<const PageMapping> page;
    };
    const Fd fd_;
    const PageMapping page_;
    Fd lease_, other_end_;  // of the pipe: the write end, the read end
    std::atomic<bool> opened_{false};
    mutable std::mutex mutex_;
    std::vector<Member> borrowers_;
};

/// One loan of an allocation: an entry of the ledger's page, and its turn. number: 0 for none.
struct Loan {
    std::uint32_t number = 0, turn = 0;
};

/// Keeps memory from being freed while it holds: one turn of a loan, or the lease of an arena if number is 0.
struct Claim {
    std::shared_ptr<Ledger> ledger;
    std::uint32_t number = 0, turn = 0;
    std::shared_ptr<const void> offer = nullptr;  // of virtual memory: ends with the last copy of the claim
    bool holds() const { return (number == 0 || ledger->holder(number, turn) >= 0) && ledger->is_leased(); }
    /// Of a loan: whether it never holds again.
    bool is_over() const { return ledger->is_recalled(number, turn) && !holds(); }
};

/// Frees memory of this process once none of the claims holds: at once, or in a later free_what_is_back(), which runs
/// when memory is given back, allocated or freed. Any thread. If the host has no memory to note it, it is never freed.
void free_when_back(Gpus& gpus, int device, std::byte* memory, std::span<const Claim> claims) noexcept;
void free_what_is_back() noexcept;

/// Notes that the allocation at `base`, which the library made for a user, was lent, and forgets earlier loans of it
/// that are over. recall_all() recalls all its loans and returns their claims. Any thread.
void remember_claim(const std::byte* base, Claim claim);
std::vector<Claim> recall_all(const std::byte* base);

}  // namespace tutti::gpu
