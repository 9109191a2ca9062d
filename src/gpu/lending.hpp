// GPU memory that ranks of other processes read and write where it is: users' for large messages by reference, and what
// lies in windows. Its owner lends whole allocations: it numbers them and puts a handle into its ledger's page
// (gpu/ledger.hpp). The others open the handle: for references when they next call something, and once all have,
// messages name the memory instead of carrying it; for windows when they are registered.
//
// Only memory whose end the library hears of is lent, since nobody may have it open then: what tuttiMemAllocDevice
// gave, and what is registered, or in a window, until that ends. By then its owner's kernels that used it have ended,
// and with them everything that peers do there.
#pragma once

#include <map>

#include "base/thread.hpp"
#include "gpu/ledger.hpp"

namespace tutti::gpu {

/// One time that an allocation is lent.
struct Loan {
    std::uint32_t number = 0, turn = 0;
};

/// From any thread.
class Lender {
  public:
    Lender(Gpus& gpus, int device, std::shared_ptr<Ledger> ledger);
    ~Lender();

    /// Its allocation may be lent until forbid(), as often as it is permitted.
    void permit(const Pointee& memory);
    /// Once it is forbidden as often it is taken back, unless the library has allocated it. Returns what is to come
    /// back before it may be freed; number 0: nothing.
    Loan forbid(const Pointee& memory);

    /// The number under which all borrowers see the allocation; 0: not all do, or never will (it is not to be lent, or
    /// of a pool, or virtual memory, which can't be shared this way).
    std::uint32_t find(const Pointee& memory);

    /// For windows: lends what is permitted now. Throws if it can't be shared, or too much is lent.
    Loan lend_now(const Pointee& memory);

    /// Takes back, and forbids, all that is still permitted.
    std::vector<Loan> recall_permitted();

    Ledger& ledger() const { return *ledger_; }

  private:
    struct Lent {
        std::byte* base = nullptr;  // nullptr: free
        std::size_t size = 0;
        std::uint64_t id = 0;
        std::uint32_t turn = 0;  // 0: it can't be shared
        bool everywhere = false;
    };
    using Key = std::pair<std::byte*, std::uint64_t>;  // of an allocation
    bool may_lend(const Pointee& memory) const;
    std::uint32_t number_of(const Pointee& memory);
    std::uint32_t free_number(std::uint32_t first, std::uint32_t end) const;
    void share(std::uint32_t number, const Pointee& memory);
    void take_back(std::uint32_t number);

    Gpus& gpus_;
    const int device_;
    const std::shared_ptr<Ledger> ledger_;
    std::mutex mutex_;  // of what follows
    std::map<Key, int> permitted_;
    std::vector<Lent> lent_ = std::vector<Lent>(most_loans);
    bool told_of_room_ = false;
};

/// What one peer lends, as this rank's GPU sees it. Of Borrowers.
class Borrower {
  public:
    /// page: the peer's. table: max_regions pointers in memory of the device.
    Borrower(Gpus& gpus, int device, std::shared_ptr<const PageMapping> page, Rank peer, int own_seat,
             std::byte* table);
    Borrower(Borrower&&) noexcept = default;
    ~Borrower();

    /// Opens what is new for references.
    void look();
    /// Closes what is wanted back.
    void give_back();
    bool has_any() const { return open_ != 0; }
    bool has_news() const { return (*page_)->changes.load(std::memory_order_relaxed) != changes_; }
    Rank peer() const { return peer_; }
    /// For a window. Throws if it can't be opened, or was taken back.
    std::byte* open_now(Loan loan);

  private:
    void close(std::uint32_t number);
    bool open(std::uint32_t number, std::uint32_t turn);

    struct Seen {
        std::uint32_t turn = 0;  // it was opened, or can't be
        std::byte* at = nullptr;
    };
    Gpus* gpus_;
    int device_;
    std::shared_ptr<const PageMapping> page_;
    Rank peer_;
    int own_seat_;
    std::byte* table_;
    std::uint32_t changes_ = 0;
    int open_ = 0;  // for references
    std::vector<Seen> seen_;
};

/// All that this rank's peers lend. A thread closes what they want back, since they wait for it whatever this rank
/// does.
class Borrowers {
  public:
    /// own: the page of this rank's own ledger, which outlives this: its bell wakes the thread.
    explicit Borrowers(LendingPage& own) : own_(own) {}
    ~Borrowers();
    Borrowers(const Borrowers&) = delete;

    void add(Borrower borrower) { all_.push_back(std::move(borrower)); }  // before all else
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
