// How communicators begin and end, and what can be asked of them.
#include "tutti/tutti.h"

#include <algorithm>
#include <memory>
#include <new>

#include "api/making.hpp"
#include "base/caught.hpp"
#include "base/config.hpp"
#include "base/per_thread.hpp"
#include "bootstrap/launch.hpp"

using namespace tutti;

namespace {

void check_ranks(const char* function, const void* comm, int ranks) {
    if (comm == nullptr) fail(tuttiInvalidArgument, "%s: comm is NULL", function);
    if (ranks < 1) fail(tuttiInvalidArgument, "%s: nranks is %d; at least 1 was expected", function, ranks);
}

/// Marks the communicator as finalized when its operations have ended. If it has failed, throws its error instead: then
/// it is not finalized and can be shrunk.
void finalize(tuttiComm& handle, Communicator& comm) {
    InTurn turn(*comm.ticket_lock());
    const std::optional<Fault> fault = comm.faults().fault();
    auto was = fault ? tuttiComm::Closed::finalized : tuttiComm::Closed::no;
    handle.closed.compare_exchange_strong(was, fault ? tuttiComm::Closed::no : tuttiComm::Closed::finalized);
    if (fault) throw Error(fault->code, fault->text);
}

/// The error of the other ranks of a communicator that this rank aborts.
Error aborted_by(Rank rank) {
    try {
        return Error(tuttiRemoteError, text("rank %d aborted its communicator", rank));
    } catch (const std::bad_alloc&) {  // the communicator ends all the same
        return caught();
    }
}

/// Takes the communicator out of its handle, once, when all that was issued on it has ended. nullptr if it was
/// suspended. aborts: fails it first. For a failed communicator it waits only for what is under way: operations that
/// their streams have not reached will do nothing.
CommunicatorPtr take(tuttiComm_t handle, bool aborts = false) {
    tuttiComm& h = checked(handle);
    std::uint32_t expected = tuttiComm::living;
    if (!h.magic.compare_exchange_strong(expected, tuttiComm::dead))
        fail(tuttiInvalidArgument, "the communicator was destroyed or aborted before");
    CommunicatorPtr comm;  // whoever resumes it from now on ends it
    {
        std::lock_guard lock(h.mutex);
        comm = h.comm;
    }
    if (comm && aborts) comm->faults().fail(aborted_by(comm->rank()));
    if (comm && comm->faults().failed()) h.ticket_lock->call_off();
    InTurn turn(*h.ticket_lock);
    end_suspended(h);  // also if the call before this one has suspended it
    std::lock_guard lock(h.mutex);
    h.for_newcomers.reset();
    h.comm.reset();
    return comm;
}

/// The failed ranks, also of a suspended communicator, whose ranks still hear of each other's end.
std::vector<Rank> failed_ranks(tuttiComm_t handle) {
    tuttiComm& h = checked(handle);
    CommunicatorPtr comm;
    {
        std::lock_guard lock(h.mutex);
        if (h.suspended) return h.suspended->session->failed_ranks(h.suspended->session->fault());
        comm = h.comm;
    }
    return (comm ? comm : communicator(handle))->faults().failed_ranks();
}

bool is(tuttiComm_t handle, std::uint32_t state) {
    return handle != nullptr && handle->magic.load(std::memory_order_acquire) == state;
}

/// Marks a handle that is in `state` as dead. False if it is in another state.
bool mark_dead(tuttiComm_t handle, std::uint32_t state) {
    return handle != nullptr && handle->magic.compare_exchange_strong(state, tuttiComm::dead);
}

}  // namespace

extern "C" {

const char* tuttiGetLastError(tuttiComm_t handle) {
    struct Told {
        std::string text;
    };
    if (handle == nullptr) return last_error();
    try {
        std::string& text = of_this_thread<Told>().text;
        text = last_error();
        if (is(handle, tuttiComm::failed))
            text = handle->error->what();
        else if (const std::optional<Fault> fault = communicator(handle)->faults().fault())
            text = fault->text;
        return text.c_str();
    } catch (const Error&) {
        return last_error();  // no living communicator: the thread's own error is the answer
    } catch (...) {
        return "out of memory";
    }
}

tuttiResult_t tuttiGetUniqueId(tuttiUniqueId* id) {
    return guarded([&] {
        if (id == nullptr) fail(tuttiInvalidArgument, "tuttiGetUniqueId: id is NULL");
        const std::string& place = config().comm_id;
        *id = (place.empty() ? Identity::create() : Identity::at(place)).to_unique_id();
    });
}

tuttiResult_t tuttiCommInitRank(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank) {
    return tuttiCommInitRankConfig(comm, nranks, id, rank, nullptr);
}

tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank,
                                      const tuttiConfig_t* config) {
    bool goes_on = false;
    const tuttiResult_t result = grouped([&] {
        check_ranks("tuttiCommInitRank", comm, nranks);
        if (rank < 0 || rank >= nranks)
            fail(tuttiInvalidArgument, "tuttiCommInitRank: rank is %d; 0 to %d was expected", rank, nranks - 1);
        const Identity identity = Identity::from(id);
        try {
            const Options options = Options::from(config);
            goes_on = make(comm, options, [=]() -> CommunicatorPtr {
                if (nranks == 1) forget_rendezvous(identity);
                return Communicator::join(identity, rank, nranks, options);
            });
        } catch (const std::bad_alloc&) {  // maybe before join(): other ranks may wait in this process
            shielded("closing a rendezvous", [&] { close_rendezvous(identity, "out of memory"); });
            throw;
        }
    });
    return or_in_progress(result, goes_on);
}

tuttiResult_t tuttiCommInitAll(tuttiComm_t* comms, int nranks, const int* devices) {
    return guarded([&] {
        check_ranks("tuttiCommInitAll", comms, nranks);
        const std::span<const int> gpus(devices, devices == nullptr ? 0 : static_cast<std::size_t>(nranks));
        std::vector<std::unique_ptr<Communicator>> made =
            Communicator::in_process(nranks, Options::from(nullptr), gpus);
        const std::vector<CommunicatorPtr> all(std::move_iterator(made.begin()), std::move_iterator(made.end()));
        std::vector<PendingHandle> handles(all.size());  // nothing may fail once the caller has a handle
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            comms[rank] = handles[rank].release();
            give(*comms[rank], all[rank]);
        }
    });
}

tuttiResult_t tuttiCommInitEnv(tuttiComm_t* comm, const tuttiConfig_t* config) {
    bool goes_on = false;
    const tuttiResult_t result = grouped([&] {
        check_ranks("tuttiCommInitEnv", comm, 1);
        const Options options = Options::from(config);
        goes_on = make(comm, options, [=, launch = Launch::from_environment()]() -> CommunicatorPtr {
            return Communicator::join(launch.identity, launch.rank, launch.ranks, options);
        });
    });
    return or_in_progress(result, goes_on);
}

tuttiResult_t tuttiCommCount(tuttiComm_t comm, int* count) {
    return guarded([&] {
        if (count == nullptr) fail(tuttiInvalidArgument, "tuttiCommCount: count is NULL");
        *count = communicator(comm)->ranks();
    });
}

tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int* rank) {
    return guarded([&] {
        if (rank == nullptr) fail(tuttiInvalidArgument, "tuttiCommUserRank: rank is NULL");
        *rank = communicator(comm)->rank();
    });
}

tuttiResult_t tuttiCommDevice(tuttiComm_t comm, int* device) {
    return guarded([&] {
        if (device == nullptr) fail(tuttiInvalidArgument, "tuttiCommDevice: device is NULL");
        const GpuSide* gpu = communicator(comm)->gpu();
        *device = gpu == nullptr ? TUTTI_DEVICE_CPU : gpu->device();
    });
}

tuttiResult_t tuttiCommMemory(tuttiComm_t comm, uint64_t* bytes) {
    return guarded([&] {
        if (bytes == nullptr) fail(tuttiInvalidArgument, "tuttiCommMemory: bytes is NULL");
        const CommunicatorPtr c = unless_suspended(comm);
        if (c == nullptr) {
            *bytes = 0;
            return;
        }
        InTurn turn(*c->ticket_lock());
        *bytes = c->memory();
    });
}

tuttiResult_t tuttiCommGetFailedRank(tuttiComm_t comm, int* rank) {
    return guarded([&] {
        if (rank == nullptr) fail(tuttiInvalidArgument, "tuttiCommGetFailedRank: rank is NULL");
        const std::vector<Rank> all = failed_ranks(comm);
        *rank = all.empty() ? -1 : all.front();
    });
}

tuttiResult_t tuttiCommGetFailedRanks(tuttiComm_t comm, int* ranks, int maxRanks, int* count) {
    return guarded([&] {
        if (count == nullptr) fail(tuttiInvalidArgument, "tuttiCommGetFailedRanks: count is NULL");
        if (maxRanks < 0 || (ranks == nullptr && maxRanks > 0))
            fail(tuttiInvalidArgument, "tuttiCommGetFailedRanks: room for %d ranks at %p", maxRanks,
                 static_cast<void*>(ranks));
        const std::vector<Rank> all = failed_ranks(comm);
        std::copy_n(all.begin(), std::min(all.size(), static_cast<std::size_t>(maxRanks)), ranks);
        *count = static_cast<int>(all.size());
    });
}

tuttiResult_t tuttiCommFinalize(tuttiComm_t comm) {
    bool goes_on = false;
    const tuttiResult_t result = guarded([&] {
        CommunicatorPtr c = communicator(comm);
        if (comm->closed == tuttiComm::Closed::revoked)
            fail(tuttiInvalidUsage, "tuttiCommFinalize: the communicator was revoked: destroy it");
        if (!c->options().blocking && !c->ticket_lock()->idle()) {
            comm->closed = tuttiComm::Closed::finalized;
            try {
                in_background(*comm, [comm, c] { finalize(*comm, *c); });
            } catch (...) {  // no thread
                auto was = tuttiComm::Closed::finalized;
                comm->closed.compare_exchange_strong(was, tuttiComm::Closed::no);
                throw;
            }
            goes_on = true;
            return;
        }
        finalize(*comm, *c);
    });
    return or_in_progress(result, goes_on);
}

tuttiResult_t tuttiCommDestroy(tuttiComm_t comm) {
    return guarded([&] {
        if (mark_dead(comm, tuttiComm::failed)) return retire(*comm);
        const CommunicatorPtr taken = take(comm);
        retire(*comm);
        if (taken) taken->leave();
    });
}

tuttiResult_t tuttiCommAbort(tuttiComm_t comm) {
    return guarded([&] {
        if (mark_dead(comm, tuttiComm::making)) return;  // the thread that makes it retires it
        if (mark_dead(comm, tuttiComm::failed)) return retire(*comm);
        const CommunicatorPtr taken = take(comm, true);
        retire(*comm);
        if (taken) taken->leave();
    });
}

tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* asyncError) {
    return guarded([&] {
        if (asyncError == nullptr) fail(tuttiInvalidArgument, "tuttiCommGetAsyncError: asyncError is NULL");
        if (is(comm, tuttiComm::making) || is(comm, tuttiComm::failed)) {
            *asyncError = is(comm, tuttiComm::failed) ? comm->error->code() : tuttiInProgress;
            return;
        }
        const CommunicatorPtr c = unless_suspended(comm);
        if (c == nullptr) {
            *asyncError = tuttiSuccess;
            return;
        }
        if (comm->underway > 0 || comm->closed == tuttiComm::Closed::revoked) {
            *asyncError = comm->underway > 0 ? tuttiInProgress : tuttiSuccess;
            return;
        }
        if (c->gpu() != nullptr) c->faults().hear_verdict();
        const std::optional<Fault> fault = c->faults().fault();
        *asyncError = fault ? fault->code : tuttiSuccess;
    });
}

}  // extern "C"
