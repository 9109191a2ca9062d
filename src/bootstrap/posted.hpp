// Work that threads hand to a service thread, in the order in which it came. Handing over needs no memory, so that it
// works for whoever leaves, or tells of an error, where there is none.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "base/os.hpp"

namespace tutti::bootstrap {

using Work = std::function<void()>;

/// What one piece of work throws must not end the others, for which threads wait: it is logged with these words.
inline constexpr const char* goes_on = "the service thread goes on after an error";

/// Work of somebody who waits until it is done: not copied.
class Errand {
  public:
    template <class F>
    Errand(const F& work) : work_(&work), call_([](const void* f) { (*static_cast<const F*>(f))(); }) {}
    void operator()() const { call_(work_); }

  private:
    const void* work_;
    void (*call_)(const void*);
};

class Posted {
  public:
    struct Piece;
    struct Delete {
        void operator()(Piece* piece) const;
    };
    using PiecePtr = std::unique_ptr<Piece, Delete>;
    static PiecePtr prepared(Work work);

    /// Makes wake_up(). Throws tuttiSystemError.
    void open();
    /// Readable when there is something to do, or all is to stop.
    const Fd& wake_up() const { return wake_; }

    // ---- for any thread; false if the service has been stopped
    bool post(PiecePtr piece);
    /// Returns when the work is done; what it throws is rethrown.
    bool run(Errand work);
    /// Nothing is taken any more. False if the thread can't be told.
    bool stop();

    // ---- for the service thread
    /// Does all that is there. False if it is to stop, and then nothing will come any more.
    bool perform();

  private:
    bool append(Piece& piece);
    bool wake() const;

    Fd wake_;
    std::mutex mutex_;
    Piece* first_ = nullptr;
    Piece** end_ = &first_;
    bool stop_ = false;
};

}  // namespace tutti::bootstrap
