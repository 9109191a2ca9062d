// Users' GPU memory that ranks of other processes read and write in place: buffers of large messages by reference, and
// windows. Its owner, the lender, lends whole allocations: it numbers them and puts a handle into its ledger's page
// (gpu/ledger.hpp). Borrowers open handles for references at their next call; once all have, messages name the memory
// instead of carrying it. They open handles of windows when the window is registered.
//
// No process may have memory open when it is freed, so only memory whose end the library hears of is lent: that of
// tuttiMemAllocDevice, and memory that is registered or in a window, until it is deregistered. By then the owner's
// kernels that used it have ended, and with them all that peers do there.
#pragma once

#include <map>

#include "base/thread.hpp"
#include "gpu/ledger.hpp"

namespace tutti::gpu {

/// One loan of an allocation: an entry of the ledger's page, and its turn. number: 0 for none.
struct Loan {
    std::uint32_t number = 0, turn = 0;
};

/// What this rank lends. Owned by Neighbours. Any thread may use it.
class Lender {
  public:
    Lender(Gpus& gpus, int device, std::shared_ptr<Ledger> ledger);
    ~Lender();

    /// Permits lending the allocation until forbid(). Permits are counted. Does nothing if its base is unknown.
    void permit(const Pointee& memory);
    /// Ends one permit. The last one takes the allocation back, unless it is of tuttiMemAllocDevice. Returns the loan
    /// that must come back before the user may free the memory; number 0 if there is none.
    Loan forbid(const Pointee& memory);

    /// The number under which all borrowers have opened the allocation; lends it if that was not done. 0 if some have
    /// not opened it yet, or never will (it may not be lent, or is pool or virtual memory, which has no handle).
    std::uint32_t find(const Pointee& memory);

    /// For windows: lends the allocation, which is permitted, at once. Throws if it can't be shared, or if no number is
    /// free.
    Loan lend_now(const Pointee& memory);

    /// Ends all permits. Returns the loans that must come back.
    std::vector<Loan> recall_permitted();

    Ledger& ledger() const { return *ledger_; }

  private:
    struct Lent {
        std::byte* base = nullptr;  // of the allocation; nullptr: the number is free
        std::size_t size = 0;
        std::uint64_t id = 0;     // Pointee::id
        std::uint32_t turn = 0;   // of the loan; 0: the allocation can't be shared
        bool everywhere = false;  // all borrowers have opened it
    };
    using Key = std::pair<std::byte*, std::uint64_t>;  // base and id of an allocation
    bool may_lend(const Pointee& memory) const;
    std::uint32_t number_of(const Pointee& memory);
    std::uint32_t free_number(std::uint32_t first, std::uint32_t end) const;
    void share(std::uint32_t number, const Pointee& memory);
    void take_back(std::uint32_t number);

    Gpus& gpus_;
    const int device_;
    const std::shared_ptr<Ledger> ledger_;
    std::mutex mutex_;                                        // guards what follows
    std::map<Key, int> permitted_;                            // number of permits
    std::vector<Lent> lent_ = std::vector<Lent>(most_loans);  // by number
    bool told_of_room_ = false;                               // the log says that no number is free
};

/// What one peer lends, as opened on this rank's GPU. Owned by Borrowers, and used only under its mutex.
class Borrower {
  public:
    /// page: the peer's. table: max_regions pointers in device memory, where kernels find what is open.
    Borrower(Gpus& gpus, int device, std::shared_ptr<const PageMapping> page, Rank peer, int own_seat,
             std::byte* table);
    Borrower(Borrower&&) noexcept = default;
    ~Borrower();

    /// Opens new loans for references, after closing what is wanted back. Logs those that can't be opened.
    void look();
    /// Closes the loans that the peer wants back.
    void give_back();
    bool has_any() const { return open_ != 0; }
    bool has_news() const { return (*page_)->changes.load(std::memory_order_relaxed) != changes_; }
    Rank peer() const { return peer_; }
    /// Opens a window's loan and returns its address in kernels. Throws if it can't be opened, or was taken back.
    std::byte* open_now(Loan loan);

  private:
    void close(std::uint32_t number);
    bool open(std::uint32_t number, std::uint32_t turn);

    struct Seen {
        std::uint32_t turn = 0;   // the last one that was opened or could not be; 0: none
        std::byte* at = nullptr;  // its address here; nullptr if it could not be opened
    };
    Gpus* gpus_;
    int device_;
    std::shared_ptr<const PageMapping> page_;
    Rank peer_;
    int own_seat_;
    std::byte* table_;
    std::uint32_t changes_ = 0;  // the page's, at the last look()
    int open_ = 0;               // loans for references
    std::vector<Seen> seen_;     // by number
};

/// All that this rank's peers lend. A thread of its own closes what they want back, because they wait for that whatever
/// this rank does. Owned by Neighbours. Any thread may use it; mutex_ guards all_.
class Borrowers {
  public:
    /// own: the page of this rank's own ledger, whose bell wakes the thread. It outlives this.
    explicit Borrowers(LendingPage& own) : own_(own) {}
    ~Borrowers();
    Borrowers(const Borrowers&) = delete;

    void add(Borrower borrower) { all_.push_back(std::move(borrower)); }  // before any other call
    void look();
    bool have_any();
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
