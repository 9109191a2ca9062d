// How handles come to their communicators: here and now, when the group ends, or, where config.blocking is 0, in the
// background.
#pragma once

#include <functional>

#include "api/handles.hpp"

namespace tutti {

/// Calls work() here; in a group, when that ends. of: the communicator of which all ranks call it, and whose setup
/// calls take place in the order of their calls; nullptr: there is none yet.
void now_or_then(tuttiComm* of, std::function<void()> work);

/// Makes a communicator of a member of a family: join() is called once, on whatever thread, and returns it (or null,
/// for which *to becomes null). options: the new one's. True if it goes on in the background: then *to is a handle
/// already, of which tuttiCommGetAsyncError says what becomes of it; of parent, from which it comes, it says
/// tuttiInProgress meanwhile, because some callers ask there.
bool make(tuttiComm_t* to, const Options& options, std::function<CommunicatorPtr()> join, tuttiComm* parent = nullptr);

/// Calls work() on a thread of its own, after what was begun before; tuttiCommGetAsyncError of handle says
/// tuttiInProgress until it has ended. What it throws is kept by nobody: communicators that fail know why.
void in_background(tuttiComm& handle, std::function<void()> work);

/// What a function says that has begun something in the background.
inline tuttiResult_t or_in_progress(tuttiResult_t result, bool goes_on) {
    return result == tuttiSuccess && goes_on ? tuttiInProgress : result;
}

}  // namespace tutti
