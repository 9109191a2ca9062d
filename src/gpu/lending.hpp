// Users' GPU memory that ranks of other processes read and write where it is. Its owner lends what its calls use: it
// numbers the allocation and puts a handle into a page that all ranks of the host see. The others open the handle when
// they next call something, and say so there. Once all have, messages name the memory instead of carrying it.
//
//     lender                                          borrower
//     find()  entry k = handle; turn = 2 i + 1  ----> look()  opens it: table[k] = where its own kernels see it
//                                               <----         borrowed[k] = 2 i + 1
//     find()  k, from now on
//     the memory was freed: turn = 2 i + 2      ----> look()  closes it
//
// An allocation is another one when the runtime says so (Pointee::id), wherever it lies. By the time that an owner
// frees memory its kernels that used it have ended, and with them everything that peers do there.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "base/os.hpp"
#include "gpu/gpus.hpp"
#include "gpu/places.hpp"

namespace tutti::gpu {

/// Shared between processes; written by the lender but for `borrowed`.
struct LendingPage {
    struct Entry {
        std::atomic<std::uint32_t> turn;  // odd: the handle is good; changes with it
        std::atomic<std::uint64_t> handle[sizeof(Handle) / 8];
    };
    std::atomic<std::uint32_t> changes;
    Entry entries[max_regions];                                    // 0 is never used
    std::atomic<std::uint32_t> borrowed[most_seats][max_regions];  // by the borrower's seat: the turn that it opened
};

class Lender {
  public:
    Lender(Gpus& gpus, int device);
    const Fd& fd() const { return fd_; }
    void expect(int seat) { borrowers_.push_back(seat); }

    /// The number under which all borrowers see the allocation; 0: not all do, or never will (memory of pools and
    /// virtual memory can't be shared this way). base: where it begins.
    std::uint32_t find(const Pointee& memory);

  private:
    struct Loan {
        std::byte* base = nullptr;  // nullptr: free
        std::size_t size = 0;
        std::uint64_t id = 0;
        bool shareable = false, everywhere = false;
    };
    LendingPage& page() const { return *reinterpret_cast<LendingPage*>(mapping_.base()); }
    std::uint32_t lend(const Pointee& memory);
    void take_back(std::uint32_t number);
    bool lives(const Loan& loan) const;

    Gpus& gpus_;
    const int device_;
    Fd fd_;
    Mapping mapping_;
    std::vector<int> borrowers_;  // seats
    Loan loans_[max_regions];
    int full_for_ = 0;  // calls more, before it looks again whether something was freed
};

/// What one peer lends.
class Borrower {
  public:
    /// page: the peer's. table: max_regions pointers in memory of the device.
    Borrower(Gpus& gpus, int device, const Fd& page, Rank peer, int own_seat, std::byte* table);
    Borrower(Borrower&&) noexcept = default;
    ~Borrower();

    /// Opens what is new and closes what was taken back.
    void look();
    bool has_any() const { return open_ != 0; }

  private:
    LendingPage& page() const { return *reinterpret_cast<LendingPage*>(mapping_.base()); }
    void close(std::uint32_t number);
    bool open(std::uint32_t number);

    struct Seen {
        std::uint32_t turn = 0;
        std::byte* at = nullptr;
    };
    Gpus* gpus_;
    int device_;
    Mapping mapping_;
    Rank peer_;
    int own_seat_;
    std::byte* table_;
    std::uint32_t changes_ = 0;
    int open_ = 0;
    std::vector<Seen> seen_;
};

}  // namespace tutti::gpu
