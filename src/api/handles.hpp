// What the opaque handles of the C API point to. A handle's memory is never freed, and is reused only after many other
// handles have been destroyed: so the use of a destroyed handle is recognized.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "base/caught.hpp"
#include "comm/group.hpp"

namespace tutti {

struct PremultipliedSum {
    int number;  // as tuttiRedOp_t; the process uses none twice, until all were in use
    DataType type;
    const void* scalar;       // read when the operation runs; nullptr: use immediate
    std::uint64_t immediate;  // the scalar's bytes
};

}  // namespace tutti

/// What a tuttiComm_t points to. The user owns it until it is destroyed or aborted. Any thread may read the atomics;
/// mutex guards comm, suspended, for_newcomers and changes of ops.
struct tuttiComm {
    /// making: being made in the background, and then living, or failed with `error`. dead: destroyed or aborted.
    static constexpr std::uint32_t dead = 0x54754330, living = 0x54754331, making = 0x54754332, failed = 0x54754333;
    enum class Closed : std::uint8_t { no, finalized, revoked, suspended };
    /// What tuttiCommResume makes the communicator from.
    struct Suspended {
        tutti::Identity identity;
        tutti::Rank rank;
        int ranks;
        tutti::Options options;
        std::shared_ptr<tutti::RendezvousPoint> opened;  // by rank 0
        std::shared_ptr<tutti::Session> session;         // by which the ranks still hear of each other's end
    };
    std::atomic<std::uint32_t> magic{living};
    std::shared_ptr<tutti::TicketLock> ticket_lock;  // the communicator's; outlives it
    tutti::CommunicatorPtr comm;  // null once destroyed, and while suspended; changed inside the ticket lock and under
                                  // mutex, so either will do to read it
    std::mutex mutex;
    std::atomic<Closed> closed{Closed::no};
    tutti::TicketLock setups;           // orders collective setup calls (windows, splits), which are no operations
    std::atomic<int> underway{0};       // background work; while > 0, tuttiCommGetAsyncError says tuttiInProgress
    std::optional<tutti::Error> error;  // why it is `failed`
    std::shared_ptr<tutti::RendezvousPoint> for_newcomers;  // from tuttiCommGetUniqueId to tuttiCommGrow
    std::optional<Suspended> suspended;                     // guarded as comm is
    bool checks = false;                                    // calls must take the way through issue(), see give()
    bool on_gpu = false;
    std::vector<tutti::PremultipliedSum> ops;
    tuttiComm* next_retired = nullptr;  // see retire()
};

namespace tutti {

/// Throws tuttiInvalidUsage for a call that a suspended communicator can't do.
[[noreturn]] void refuse_suspended();

/// Throws tuttiInvalidUsage if the communicator takes no operations any more: suspended, finalized or revoked.
void refuse_closed(const char* function, const tuttiComm& handle);

/// The handle, if it is living. Throws tuttiInvalidArgument if it is null, destroyed or foreign, tuttiInvalidUsage if
/// it is still being made, and the error of one that could not be made.
tuttiComm& checked(tuttiComm_t handle);
CommunicatorPtr unless_suspended(tuttiComm_t handle);  // as checked(); nullptr while it is suspended
CommunicatorPtr communicator(tuttiComm_t handle);      // as checked(); tuttiInvalidUsage if suspended

tuttiComm_t new_handle(CommunicatorPtr comm);

/// Gives back a dead handle that nothing in the background uses. Its memory may serve a new handle later.
void retire(tuttiComm& handle) noexcept;

/// Ends the session of a suspended communicator that will not be resumed.
void end_suspended(tuttiComm& handle);

/// Makes a handle without a communicator (`making`), and gives it one. give(): false if the handle was aborted
/// meanwhile.
tuttiComm_t new_handle();
bool give(tuttiComm& handle, CommunicatorPtr comm);

/// Owns a handle without a communicator until release(): for work that may fail before the caller gets the handle.
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

StreamPtr stream_of(tuttiStream_t handle);  // nullptr for the null stream
tuttiStream_t new_stream();
void destroy_stream(tuttiStream_t handle);

/// Like guarded(), for calls that a group defers: if one is refused, the group issues nothing.
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
