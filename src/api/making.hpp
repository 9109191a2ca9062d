// How handles get their communicators: at once, when the group ends or, if config.blocking is 0, in the background.
#pragma once

#include <functional>

#include "api/handles.hpp"

namespace tutti {

/// Calls work() in the calling thread or, inside a group, when that ends. of: the communicator all of whose ranks call
/// it, and whose setup calls run in the order of their calls; nullptr if there is none yet.
void now_or_then(tuttiComm* of, std::function<void()> work);

/// Makes the communicator that join() returns and puts its handle in *to (null if join() returns null). join() is
/// called once, on any thread. options: the new communicator's. parent: the one that it comes from; nullptr if there is
/// none. True if the work goes on in the background: then *to already is a handle, and tuttiCommGetAsyncError on it
/// tells what becomes of it. Until then it says tuttiInProgress on parent, too, because some callers ask there.
bool make(tuttiComm_t* to, const Options& options, std::function<CommunicatorPtr()> join, tuttiComm* parent = nullptr);

/// Calls work() on a thread of its own, after earlier setup calls of `handle`. Until it has ended,
/// tuttiCommGetAsyncError says tuttiInProgress. Exceptions of work() are only logged: a communicator that fails keeps
/// its own error.
void in_background(tuttiComm& handle, std::function<void()> work);

/// The result of a function that may have begun something in the background.
inline tuttiResult_t or_in_progress(tuttiResult_t result, bool goes_on) {
    return result == tuttiSuccess && goes_on ? tuttiInProgress : result;
}

}  // namespace tutti
