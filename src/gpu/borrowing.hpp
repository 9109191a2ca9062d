// What peers lend (gpu/lending.hpp), as opened on this rank's GPU.
#pragma once

#include <functional>

#include "base/thread.hpp"
#include "gpu/ledger.hpp"

namespace tutti {
class Session;
}

namespace tutti::gpu {

/// What one peer lends, as opened on this rank's GPU. Owned by Borrowers, and used only under its mutex.
class Borrower {
  public:
    /// page: the peer's. table: max_regions pointers in device memory, where kernels find what is open. session: by
    /// which descriptors come; it outlives this.
    Borrower(Gpus& gpus, int device, std::shared_ptr<const PageMapping> page, Rank peer, int own_seat, std::byte* table,
             Session* session);
    Borrower(Borrower&&) noexcept = default;
    ~Borrower();

    /// Opens new loans for references, after closing what is wanted back. Logs those that can't be opened.
    void look();
    /// Closes the loans that the peer wants back.
    void give_back();
    bool is_wanted_back() const;  // whether there are any such loans
    bool has_any() const { return open_ != 0; }
    bool has_news() const { return (*page_)->changes.load(std::memory_order_relaxed) != changes_; }
    Rank peer() const { return peer_; }
    /// Opens a window's loan and returns its address in kernels. Throws if it can't be opened, or was taken back.
    std::byte* open_now(Loan loan);

  private:
    bool is_wanted_back(std::uint32_t number) const;
    void close(std::uint32_t number);
    std::byte* opened(const LendingPage::Entry& entry);
    bool open(std::uint32_t number, std::uint32_t turn);

    struct Seen {
        std::uint32_t turn = 0;   // the last one that was opened or could not be; 0: none
        std::byte* at = nullptr;  // its address here; nullptr if it could not be opened
        bool is_virtual = false;
    };
    Gpus* gpus_;
    int device_;
    std::shared_ptr<const PageMapping> page_;
    Rank peer_;
    int own_seat_;
    std::byte* table_;
    Session* session_;
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
    /// Nothing is given back while busy() holds: copies that are enqueued use it. Before any call but add().
    void keep_while(std::function<bool()> busy) { busy_ = std::move(busy); }
    void look();
    bool have_any();
    std::byte* open_now(Rank peer, Loan loan);

  private:
    void serve();
    void start();
    bool give_back();

    LendingPage& own_;
    std::function<bool()> busy_;
    std::mutex mutex_;
    std::vector<Borrower> all_;
    Thread thread_;
    std::atomic<bool> ends_{false};
};

}  // namespace tutti::gpu
