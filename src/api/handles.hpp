// What the opaque handles of the C API point to. A handle's memory is never given back, and becomes another handle only
// when many others have been destroyed after it: so a destroyed one is known as such.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "base/caught.hpp"
#include "comm/group.hpp"

namespace tutti {

struct PremultipliedSum {
    DataType type;
    const void* scalar;       // read when the operation runs; nullptr: immediate
    std::uint64_t immediate;  // the bytes of one element
    bool alive;
};

}  // namespace tutti

struct tuttiComm {
    /// making: in the background, until it is living, or failed, with a reason. dead: destroyed or aborted.
    static constexpr std::uint32_t dead = 0x54754330, living = 0x54754331, making = 0x54754332, failed = 0x54754333;
    enum class Closed : std::uint8_t { no, finalized, revoked, suspended };
    /// What tuttiCommResume makes the communicator from.
    struct Suspended {
        tutti::Identity identity;
        tutti::Rank rank;
        int ranks;
        tutti::Options options;
        std::shared_ptr<tutti::RendezvousPoint> opened;  // by rank 0
        std::shared_ptr<tutti::Session> session;         // through which the ranks still hear of each other's end
    };
    std::atomic<std::uint32_t> magic{living};
    std::shared_ptr<tutti::TicketLock> ticket_lock;  // the communicator's; outlives it
    tutti::CommunicatorPtr comm;  // null once destroyed, and while suspended; changed inside the ticket lock and under
                                  // mutex, so either will do to read it
    std::mutex mutex;
    std::atomic<Closed> closed{Closed::no};
    tutti::TicketLock setups;           // for what all ranks do together beside operations, in the order of the calls
    std::atomic<int> underway{0};       // what the background does with it: tuttiCommGetAsyncError says tuttiInProgress
    std::optional<tutti::Error> error;  // why it could not be made
    std::shared_ptr<tutti::RendezvousPoint> for_newcomers;  // of tuttiCommGetUniqueId, until tuttiCommGrow
    std::optional<Suspended> suspended;                     // as comm
    bool checks = false;                                    // Options::check, or of issue()
    bool on_gpu = false;
    std::vector<tutti::PremultipliedSum> ops;
    tuttiComm* next_retired = nullptr;  // see retire()
};

namespace tutti {

/// Says no to whatever needs the memory of a suspended communicator.
[[noreturn]] void refuse_suspended();

/// Throws tuttiInvalidUsage for one that takes no operations any more: suspended, finalized, revoked.
void refuse_closed(const char* function, const tuttiComm& handle);

/// Throws tuttiInvalidArgument for null, destroyed and foreign handles; tuttiInvalidUsage for one that is still being
/// made, and what went wrong with that for one that could not be.
tuttiComm& checked(tuttiComm_t handle);
CommunicatorPtr communicator(tuttiComm_t handle);  // tuttiInvalidUsage if it is suspended

tuttiComm_t new_handle(CommunicatorPtr comm);

/// A dead one that nothing in the background uses: its memory may serve a new one, later.
void retire(tuttiComm& handle) noexcept;

/// Ends the session of a suspended one that is not resumed.
void end_suspended(tuttiComm& handle);

/// One without a communicator yet, and how it gets it: false if it was aborted meanwhile.
tuttiComm_t new_handle();
bool give(tuttiComm& handle, CommunicatorPtr comm);

/// One without a communicator yet, until it is released: for what may fail before the caller knows it.
class PendingHandle {
  public:
    PendingHandle() : handle_(new_handle()) {}
    PendingHandle(PendingHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    ~PendingHandle() {
        if (handle_ == nullptr) return;
        handle_->magic = tuttiComm::dead;
        retire(*handle_);
    }
    tuttiComm_t get() const { return handle_; }
    tuttiComm_t release() { return std::exchange(handle_, nullptr); }

  private:
    tuttiComm_t handle_;
};

StreamPtr stream_of(tuttiStream_t handle);  // null for the null stream
tuttiStream_t new_stream();
void destroy_stream(tuttiStream_t handle);

/// The same for calls that a group holds back: a refused one spoils it.
template <class Body>
tuttiResult_t grouped(Body&& body) {
    return guarded([&] {
        try {
            body();
        } catch (...) {
            if (Group::is_open()) Group::mine().refuse(caught());
            throw;
        }
    });
}

}  // namespace tutti
