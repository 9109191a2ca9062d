// The ranks of other processes that p2p joins a rank with, and all memory that they have of each other: what it lends
// and what it borrows.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "bootstrap/session.hpp"
#include "gpu/arena.hpp"
#include "gpu/lending.hpp"

namespace tutti::gpu {

class Neighbours {
  public:
    Neighbours(Gpus& gpus, int device, const Arena& arena)
        : gpus_(gpus),
          device_(device),
          key_(arena.key()),
          ledger_(arena.ledger()),
          lender_(gpus, device, ledger_),
          borrowers_(ledger_->page()) {}
    /// Takes back what users have registered and may free now.
    ~Neighbours();
    Neighbours(const Neighbours&) = delete;

    /// Before it meets them.
    void offer(Session& session) const;
    /// Returns the leases of their arenas, by which these are opened. The session outlives this.
    std::vector<Fd> meet(Session& session, const Places& places, Deadline deadline);
    /// ends: where kernels look for what is lent to this rank.
    void borrow_through(const Ends& ends, const Places& places);

    Lender& lender() { return lender_; }
    Borrowers& borrowers() { return borrowers_; }

    /// Memory whose allocation may be lent until forbid(). Without a base: it can't be.
    Pointee permit(const void* memory, std::size_t bytes);
    /// When it returns none of them has it open, unless something else permits it. Throws tuttiTimeout that names one.
    void forbid(const Pointee& memory, std::chrono::milliseconds timeout);

  private:
    struct Neighbour {
        Rank rank;
        int seat;
        std::shared_ptr<const PageMapping> page;
    };
    void await_return(std::span<const Loan> loans, std::chrono::milliseconds timeout);

    Gpus& gpus_;
    const int device_;
    const std::uint64_t key_;  // of the arena
    const std::shared_ptr<Ledger> ledger_;
    Session* session_ = nullptr;
    std::vector<Neighbour> all_;
    Lender lender_;
    Borrowers borrowers_;
};

}  // namespace tutti::gpu
