// Users' GPU memory that ranks of other processes read and write in place: buffers of large messages by reference, and
// windows. The owner lends whole allocations: it numbers each and puts its IPC handle into the ledger's page
// (gpu/ledger.hpp). Peers open the handle at their next call, and once all have, messages refer to the memory instead
// of carrying it. Memory of windows they open when the window is registered.
//
// Only memory whose end the library hears of is lent, because no peer may have it open by then: memory of
// tuttiMemAllocDevice until it is freed, and memory that is registered or in a window until that ends. Kernels of the
// owner that used it have ended by then, and with them everything that peers do there.
#pragma once

#include <map>

#include "base/thread.hpp"
#include "gpu/ledger.hpp"

namespace tutti::gpu {

/// One loan of an allocation: its number in the page, and the turn of that entry.
struct Loan {
    std::uint32_t number = 0, turn = 0;
};

/// What this rank lends. Owned by its Neighbours; for any thread.
class Lender {
  public:
    Lender(Gpus& gpus, int device, std::shared_ptr<Ledger> ledger);
    ~Lender();

    /// Allows the allocation to be lent until forbid(). Calls are counted.
    void permit(const Pointee& memory);
    /// Undoes one permit(). The last one asks the loan back, unless the library has allocated the memory. Returns the
    /// loan that has to come back before the memory may be freed; number 0 if there is none.
    Loan forbid(const Pointee& memory);

    /// The number by which messages can refer to the allocation. Lends it if it may be lent. 0 if some borrowers have
    /// not opened it yet, it may not be lent, or can't be shared (memory of pools, virtual memory).
    std::uint32_t find(const Pointee& memory);

    /// For windows: lends the allocation at once. Throws if it can't be shared, or too many are lent.
    Loan lend_now(const Pointee& memory);

    /// Forbids all that is still permitted, and asks it back.
    std::vector<Loan> recall_permitted();

    Ledger& ledger() const { return *ledger_; }

  private:
    struct Lent {
        std::byte* base = nullptr;  // nullptr if the number is free
        std::size_t size = 0;
        std::uint64_t id = 0;
        std::uint32_t turn = 0;   // 0 if it can't be shared
        bool everywhere = false;  // all borrowers have opened it
    };
    using Key = std::pair<std::byte*, std::uint64_t>;  // an allocation's base and id
    bool may_lend(const Pointee& memory) const;
    std::uint32_t number_of(const Pointee& memory);
    std::uint32_t free_number(std::uint32_t first, std::uint32_t end) const;
    void share(std::uint32_t number, const Pointee& memory);
    void take_back(std::uint32_t number);

    Gpus& gpus_;
    const int device_;
    const std::shared_ptr<Ledger> ledger_;
    std::mutex mutex_;                                        // guards what follows
    std::map<Key, int> permitted_;                            // how often
    std::vector<Lent> lent_ = std::vector<Lent>(most_loans);  // by number
    bool told_of_room_ = false;                               // has logged that numbers ran out
};

/// What one peer lends to this rank, and where this rank's GPU sees it. Owned by Borrowers, used under its mutex.
class Borrower {
  public:
    /// page: the peer's. own_seat: this rank's. table: in device memory, where kernels find the loans: max_regions
    /// pointers, by number.
    Borrower(Gpus& gpus, int device, std::shared_ptr<const PageMapping> page, Rank peer, int own_seat,
             std::byte* table);
    Borrower(Borrower&&) noexcept = default;
    ~Borrower();

    /// Opens new loans for references, and closes those that are asked back.
    void look();
    /// Closes the loans that are asked back.
    void give_back();
    bool has_any() const { return open_ != 0; }
    bool has_news() const { return (*page_)->changes.load(std::memory_order_relaxed) != changes_; }
    Rank peer() const { return peer_; }
    /// Opens a loan for a window, and returns where this rank's GPU sees it. Throws if it can't be opened, or was asked
    /// back.
    std::byte* open_now(Loan loan);

  private:
    void close(std::uint32_t number);
    bool open(std::uint32_t number, std::uint32_t turn);

    struct Seen {
        std::uint32_t turn = 0;   // that was opened, or could not be
        std::byte* at = nullptr;  // nullptr if it could not
    };
    Gpus* gpus_;
    int device_;
    std::shared_ptr<const PageMapping> page_;
    Rank peer_;
    int own_seat_;
    std::byte* table_;
    std::uint32_t changes_ = 0;  // LendingPage::changes at the last complete look()
    int open_ = 0;               // number of loans that are open for references
    std::vector<Seen> seen_;     // by number
};

/// What all peers lend to this rank. A thread of its own closes what they ask back, because they wait for that whatever
/// this rank does. Owned by Neighbours. For any thread, except add(); guarded by mutex_.
class Borrowers {
  public:
    /// own: the page of this rank's own ledger, whose bell wakes the thread. It must outlive this.
    explicit Borrowers(LendingPage& own) : own_(own) {}
    ~Borrowers();
    Borrowers(const Borrowers&) = delete;

    void add(Borrower borrower) { all_.push_back(std::move(borrower)); }  // before any other call
    void look();                                                          // see Borrower
    bool have_any();                                                      // whether any loan is open for references
    std::byte* open_now(Rank peer, Loan loan);

  private:
    void serve();
    void start();

    LendingPage& own_;
    std::mutex mutex_;
    std::vector<Borrower> all_;
    Thread thread_;
    std::atomic<bool> ends_{false};
};

}  // namespace tutti::gpu
