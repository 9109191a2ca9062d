// The peers in other processes that a rank on a GPU reaches by p2p, and the memory that they lend each other.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "bootstrap/session.hpp"
#include "gpu/arena.hpp"
#include "gpu/lending.hpp"

namespace tutti::gpu {

/// Owned by its communicator. For one thread until borrow_through() has returned, then for any.
class Neighbours {
  public:
    Neighbours(Gpus& gpus, int device, const Arena& arena)
        : gpus_(gpus),
          device_(device),
          key_(arena.key()),
          ledger_(arena.ledger()),
          lender_(gpus, device, ledger_),
          borrowers_(ledger_->page()) {}
    /// Asks back users' registered memory, and waits until it is back, for some seconds at most.
    ~Neighbours();
    Neighbours(const Neighbours&) = delete;

    /// Offers this rank's page and lease to its peers. To be called before meet().
    void offer(Session& session) const;
    /// Fetches the pages and leases of all neighbours. Returns the leases, which Ends keeps while it has their arenas
    /// open. The session must outlive this.
    std::vector<Fd> meet(Session& session, const Places& places, Deadline deadline);
    /// Starts borrowing. ends: its tables are where kernels find the loans.
    void borrow_through(const Ends& ends, const Places& places);

    Lender& lender() { return lender_; }
    Borrowers& borrowers() { return borrowers_; }

    /// Allows the allocation at `memory` to be lent until forbid() of the result. The result has no base if it can't
    /// be.
    Pointee permit(const void* memory, std::size_t bytes);
    /// Undoes a permit(). Unless another one holds, it waits until no neighbour has the memory open. Throws
    /// tuttiTimeout, naming one that has.
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
