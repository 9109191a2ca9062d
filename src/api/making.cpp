#include "api/making.hpp"

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"

namespace tutti {
namespace {

/// Runs work() on a thread that nobody waits for. It ends by itself, as every wait of the library does.
void detached(std::function<void()> work) {
    start_thread("tutti-comm", std::move(work)).detach();
}

void become_failed(tuttiComm& handle, const Error& why) {
    log(Level::info, "a communicator could not be made: %s", why.what());
    handle.error = why;
    std::uint32_t expected = tuttiComm::making;
    if (!handle.magic.compare_exchange_strong(expected, tuttiComm::failed)) retire(handle);  // aborted meanwhile
}

void make_for(tuttiComm& handle, const std::function<CommunicatorPtr()>& join) {
    try {
        const CommunicatorPtr comm = join();
        if (give(handle, comm)) return;
        comm->faults().fail(Error(tuttiRemoteError, text("rank %d aborted its communicator", comm->rank())));
        comm->leave();
        retire(handle);
    } catch (...) {
        become_failed(handle, caught());
    }
}

}  // namespace

void now_or_then(tuttiComm* of, std::function<void()> work) {
    TicketLock* const turns = of == nullptr ? nullptr : &of->setups;
    if (Group::is_open()) return Group::mine().add_join(turns, std::move(work));
    std::optional<InTurn> turn;
    if (turns != nullptr) turn.emplace(*turns);
    work();
}

bool make(tuttiComm_t* to, const Options& options, std::function<CommunicatorPtr()> join, tuttiComm* parent) {
    if (!options.blocking) {
        PendingHandle pending;
        const auto work = [handle = pending.get(), join = std::move(join)] { make_for(*handle, join); };
        if (parent != nullptr)
            in_background(*parent, work);
        else
            detached(work);
        *to = pending.release();
        Group::has_begun();
        return true;
    }
    now_or_then(parent, [to, join = std::move(join)] {
        CommunicatorPtr comm = join();
        *to = comm == nullptr ? nullptr : new_handle(std::move(comm));
    });
    return false;
}

void in_background(tuttiComm& handle, std::function<void()> work) {
    ++handle.underway;
    const std::uint32_t ticket = handle.setups.ticket();
    try {
        detached([&handle, ticket, work = std::move(work)] {
            try {
                InTurn turn(handle.setups, ticket);
                work();
            } catch (const std::exception& error) {
                log(Level::info, "in the background: %s", error.what());
            }
            --handle.underway;
        });
    } catch (...) {
        const InTurn unused(handle.setups, ticket);
        --handle.underway;
        throw;
    }
    Group::has_begun();
}

}  // namespace tutti
