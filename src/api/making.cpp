#include "api/making.hpp"

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>

#include "base/log.hpp"

namespace tutti {
namespace {

/// A thread that nobody waits for: it ends by itself, as every wait of the library does.
void detached(std::function<void()> work) {
    sigset_t all, before;  // signals are the application's, not this thread's
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::string trouble;
    try {
        std::thread thread(std::move(work));
        pthread_setname_np(thread.native_handle(), "tutti-comm");
        thread.detach();
    } catch (const std::system_error& error) {
        trouble = error.what();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!trouble.empty()) fail(tuttiSystemError, "a thread could not be started: %s", trouble.c_str());
}

void become_unborn(tuttiComm& handle, const Error& why) {
    log(Level::info, "a communicator could not be made: %s", why.what());
    handle.error = why;
    std::uint32_t expected = tuttiComm::making;
    handle.magic.compare_exchange_strong(expected, tuttiComm::unborn);
}

void make_for(tuttiComm& handle, const std::function<CommunicatorPtr()>& join) {
    try {
        const CommunicatorPtr comm = join();
        if (give(handle, comm)) return;
        comm->fail(Error(tuttiRemoteError, text("rank %d aborted its communicator", comm->rank())));
        comm->leave();
    } catch (const Error& error) {
        become_unborn(handle, error);
    } catch (const std::exception& error) {
        become_unborn(handle, Error(tuttiInternalError, error.what()));
    }
}

}  // namespace

void now_or_then(std::function<void()> work) {
    if (Group::is_open())
        Group::mine().add_join(std::move(work));
    else
        work();
}

bool make(tuttiComm_t* to, const Options& options, std::function<CommunicatorPtr()> join, tuttiComm* parent) {
    if (!options.blocking) {
        const tuttiComm_t handle = new_handle();
        const auto work = [handle, join = std::move(join)] { make_for(*handle, join); };
        if (parent != nullptr)
            in_background(*parent, work);
        else
            detached(work);
        *to = handle;
        Group::has_begun();
        return true;
    }
    now_or_then([to, join = std::move(join)] {
        CommunicatorPtr comm = join();
        *to = comm == nullptr ? nullptr : new_handle(std::move(comm));
    });
    return false;
}

void in_background(tuttiComm& handle, std::function<void()> work) {
    ++handle.underway;
    try {
        detached([&handle, work = std::move(work)] {
            try {
                work();
            } catch (const std::exception& error) {
                log(Level::info, "in the background: %s", error.what());
            }
            --handle.underway;
        });
    } catch (...) {
        --handle.underway;
        throw;
    }
    Group::has_begun();
}

}  // namespace tutti
