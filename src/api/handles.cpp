#include "api/handles.hpp"

#include "api/numbered.hpp"

namespace tutti {
namespace {

Numbered<tuttiStream_t, StreamPtr>& streams() {
    static auto* const instance = new Numbered<tuttiStream_t, StreamPtr>;
    return *instance;
}

}  // namespace

[[gnu::hot]] tuttiComm& checked(tuttiComm_t handle) {
    if (handle == nullptr) fail(tuttiInvalidArgument, "the communicator is NULL");
    const std::uint32_t magic = handle->magic.load(std::memory_order_acquire);
    if (magic == tuttiComm::living) [[likely]]
        return *handle;
    if (magic == tuttiComm::dead) fail(tuttiInvalidArgument, "the communicator was destroyed or aborted before");
    if (magic == tuttiComm::making)
        fail(tuttiInvalidUsage,
             "the communicator is still being made: wait until tuttiCommGetAsyncError does not say tuttiInProgress any "
             "more");
    if (magic == tuttiComm::failed) throw Error(*handle->error);
    fail(tuttiInvalidArgument, "%p is no communicator", static_cast<void*>(handle));
}

void refuse_suspended() {
    fail(tuttiInvalidUsage, "the communicator is suspended: tuttiCommResume, called by all its ranks, ends that");
}

[[gnu::hot]] void refuse_closed(const char* function, const tuttiComm& handle) {
    const tuttiComm::Closed closed = handle.closed.load(std::memory_order_relaxed);
    if (closed == tuttiComm::Closed::no) [[likely]]
        return;
    if (closed == tuttiComm::Closed::suspended) refuse_suspended();
    fail(tuttiInvalidUsage, "%s: the communicator was %s", function,
         closed == tuttiComm::Closed::finalized ? "finalized" : "revoked: it can be split, shrunk and destroyed");
}

CommunicatorPtr unless_suspended(tuttiComm_t handle) {
    tuttiComm& h = checked(handle);
    std::lock_guard lock(h.mutex);
    if (!h.comm && !h.suspended) fail(tuttiInvalidArgument, "the communicator was destroyed or aborted before");
    return h.comm;
}

CommunicatorPtr communicator(tuttiComm_t handle) {
    CommunicatorPtr comm = unless_suspended(handle);
    if (!comm) refuse_suspended();
    return comm;
}

void end_suspended(tuttiComm& handle) {
    std::lock_guard lock(handle.mutex);
    if (handle.suspended) handle.suspended->session->leave();
    handle.suspended.reset();
}

namespace {

/// The queue of destroyed handles, in the order of their end.
struct Retired {
    static constexpr int kept = 256;  // handles that wait before one is used again
    std::mutex mutex;
    tuttiComm* first = nullptr;
    tuttiComm** end = &first;
    int count = 0;
};
Retired& retired() {
    static auto* const instance = new Retired;
    return *instance;
}

/// Brings a retired handle back to its initial state.
void renew(tuttiComm& handle) {
    handle.ticket_lock.reset();
    handle.comm.reset();
    handle.closed = tuttiComm::Closed::no;
    handle.error.reset();
    handle.for_newcomers.reset();
    handle.suspended.reset();
    handle.checks = handle.on_gpu = false;
    handle.ops.clear();
}

}  // namespace

tuttiComm_t new_handle() {
    Retired& r = retired();
    std::lock_guard lock(r.mutex);
    tuttiComm* handle = nullptr;
    if (r.count > Retired::kept && r.first->setups.idle() && r.first->underway == 0) {
        handle = r.first;
        r.first = std::exchange(handle->next_retired, nullptr);
        --r.count;
        renew(*handle);
    } else {
        handle = new tuttiComm;
    }
    handle->magic.store(tuttiComm::making, std::memory_order_release);
    return handle;
}

void retire(tuttiComm& handle) noexcept {
    handle.error.reset();  // frees a text that nobody can ask for any more
    Retired& r = retired();
    std::lock_guard lock(r.mutex);
    *r.end = &handle;
    r.end = &handle.next_retired;
    ++r.count;
}

bool give(tuttiComm& handle, CommunicatorPtr comm) {
    std::lock_guard lock(handle.mutex);
    handle.ticket_lock = comm->ticket_lock();
    handle.checks = comm->options().check || comm->through_host();
    handle.on_gpu = comm->gpu() != nullptr;
    handle.comm = std::move(comm);
    std::uint32_t expected = tuttiComm::making;
    if (handle.magic.compare_exchange_strong(expected, tuttiComm::living)) return true;
    handle.comm.reset();
    return false;
}

tuttiComm_t new_handle(CommunicatorPtr comm) {
    const tuttiComm_t handle = new_handle();
    give(*handle, std::move(comm));
    return handle;
}

StreamPtr stream_of(tuttiStream_t handle) {
    if (handle == nullptr) return nullptr;
    StreamPtr stream = streams().find(handle);
    if (!stream) fail(tuttiInvalidArgument, "%p is no stream of this library, or was destroyed", handle);
    return stream;
}

tuttiStream_t new_stream() {
    return streams().add(std::make_shared<Stream>());
}

void destroy_stream(tuttiStream_t handle) {
    const StreamPtr last = stream_of(handle);  // its destructor waits for what was enqueued
    if (!last) fail(tuttiInvalidArgument, "the null stream can't be destroyed");
    streams().remove(handle);
}

}  // namespace tutti
