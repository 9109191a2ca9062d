// A rank's neighbours are the ranks of other processes that p2p joins it with. This is the memory that it lends them
// and that it borrows from them.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "bootstrap/session.hpp"
#include "gpu/arena.hpp"
#include "gpu/borrowing.hpp"
#include "gpu/lending.hpp"

namespace tutti::gpu {

/// Owned by GpuSide. One thread connects it; after that, permit(), forbid(), lender() and borrowers() take any thread.
class Neighbours {
  public:
    Neighbours(Gpus& gpus, int device, const Arena& arena)
        : gpus_(gpus),
          device_(device),
          key_(arena.key()),
          ledger_(arena.ledger()),
          lender_(gpus, device, ledger_),
          borrowers_(ledger_->page()) {}
    /// Takes back the users' memory that is still permitted, and waits for that for up to 10 s.
    ~Neighbours();
    Neighbours(const Neighbours&) = delete;

    /// Offers the page and the lease to the neighbours. Call it before meet().
    void offer(Session& session) const;
    /// Fetches the neighbours' pages and leases. Returns the leases, to be kept while their arenas are open. The
    /// session outlives this.
    std::vector<Fd> meet(Session& session, const Places& places, Deadline deadline);
    /// Call it after meet(). ends: has the tables in which kernels find what is lent to this rank.
    void borrow_through(const Ends& ends, const Places& places);

    Lender& lender() { return lender_; }
    Borrowers& borrowers() { return borrowers_; }

    /// Permits lending the memory, until forbid() of the result. No base: it can't be lent; if it is virtual memory,
    /// the log says why.
    Pointee permit(const void* memory, std::size_t bytes);
    /// Ends a permit. On return no neighbour has the memory open, unless it is permitted otherwise. Throws
    /// tuttiTimeout, whose text names a rank that still has it open.
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
    const std::uint64_t key_;  // the arena's, under which the page is offered
    const std::shared_ptr<Ledger> ledger_;
    Session* session_ = nullptr;
    std::vector<Neighbour> all_;  // fixed by meet()
    Lender lender_;
    Borrowers borrowers_;
};

}  // namespace tutti::gpu
