// Users' GPU memory that ranks of other processes read and write in place: buffers of large messages by reference, and
// windows. Its owner, the lender, lends whole allocations: it numbers them and puts a handle into its ledger's page
// (gpu/ledger.hpp). Borrowers open handles for references at their next call; once all have, messages name the memory
// instead of carrying it. They open handles of windows when the window is registered.
//
// Of virtual memory it lends the mappings in which a registered range lies, or the ranges in which a buffer lies, if
// they follow each other. They have no handle: borrowers fetch a descriptor of each mapping (gpu/offered.hpp), and map
// all of them as one. The allocations live as long as anyone has them mapped. Before a message names such memory, the
// lender looks whether the same allocations are mapped there still.
//
// No process may have memory open when it is freed, so only memory whose end the library hears of is lent: that of
// tuttiMemAllocDevice, and memory that is registered or in a window, until it is deregistered. By then the owner's
// kernels that used it have ended, and with them all that peers do there.
#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "gpu/ledger.hpp"
#include "gpu/offered.hpp"

namespace tutti::gpu {

/// What this rank lends. Owned by Neighbours. Any thread may use it.
class Lender {
  public:
    Lender(Gpus& gpus, int device, std::shared_ptr<Ledger> ledger);
    ~Lender();

    /// For virtual memory. The session outlives this.
    void offer_through(Session& session) { session_ = &session; }

    /// Permits lending the allocation, of virtual memory the mappings in which these bytes lie, until forbid() of the
    /// result. Permits are counted. Nothing is permitted, and the result has no base, if that is unknown. Throws if it
    /// is virtual memory that can't be shared.
    Pointee permit(const Pointee& memory, const std::byte* at, std::size_t bytes);
    /// Ends one permit. Takes back what is permitted no longer, unless it is of tuttiMemAllocDevice. Returns the loans
    /// that must come back before the user may free the memory.
    std::vector<Loan> forbid(const Pointee& permitted);

    /// What is lent: its number is 0 if there is nothing.
    struct Found {
        std::uint32_t number = 0;
        const std::byte* base = nullptr;
    };
    /// The loan in which these bytes of `memory` lie and that all borrowers have opened; lends it if that was not done.
    /// Nothing if some have not opened it yet, or never will (it may not be lent, or is of a pool, which has no
    /// handle). of_windows: only loans of lend_now(), which last as long as their windows.
    Found find(const Pointee& memory, const std::byte* at, std::size_t bytes, bool of_windows);

    /// For windows: lends what is permitted at once. Throws if it can't be shared, or if no number is free.
    Loan lend_now(const Pointee& permitted);

    /// Ends all permits. Returns the loans that must come back.
    std::vector<Loan> recall_permitted();

    /// Withdraws what was offered for loans that have come back.
    void settle();

    Ledger& ledger() const { return *ledger_; }

  private:
    struct Lent {
        std::byte* base = nullptr;  // nullptr: the number is free
        std::size_t size = 0;
        std::uint64_t id = 0;             // Pointee::id
        std::uint32_t turn = 0;           // of the loan; 0: it can't be shared
        bool everywhere = false;          // all borrowers have opened it
        bool of_window = false;           // lend_now() has returned it
        std::vector<Segment> segments{};  // of users' virtual memory
        bool has(const std::byte* at, std::size_t bytes) const { return base <= at && at + bytes <= base + size; }
        bool overlaps(const std::byte* at, std::size_t bytes) const { return base < at + bytes && at < base + size; }
    };
    using Key = std::tuple<std::byte*, std::size_t, std::uint64_t>;  // base, size and id of what is permitted
    static Key key_of(const Pointee& memory) { return {memory.base, memory.size, memory.id}; }
    std::optional<Pointee> lendable(const Pointee& memory, const std::byte* at, std::size_t bytes) const;
    template <class Suits>
    std::uint32_t number_of(const Pointee& memory, const std::byte* at, std::size_t bytes, Suits suits);
    bool forget_recalled(std::uint32_t number);
    bool has_changed(const Lent& lent, const Pointee& memory, const std::byte* at, std::size_t bytes) const;
    std::uint32_t free_number(std::uint32_t first, std::uint32_t end) const;
    void share(std::uint32_t number, const Pointee& memory);
    void withdraw(std::uint32_t number);
    void take_back(std::uint32_t number);

    Gpus& gpus_;
    const int device_;
    const std::shared_ptr<Ledger> ledger_;
    Session* session_ = nullptr;
    std::mutex mutex_;                                        // guards what follows
    std::map<Key, int> permitted_;                            // number of permits
    std::vector<Lent> lent_ = std::vector<Lent>(most_loans);  // by number
    std::map<std::uint32_t, std::shared_ptr<Offer>> offers_;  // of virtual memory, by number, until the loan is back
    bool told_of_room_ = false;                               // the log says that no number is free
};

}  // namespace tutti::gpu
