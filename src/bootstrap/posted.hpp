// The queue of work that other threads hand to a service thread. Posting prepared work allocates nothing, so that a
// rank can leave or report an error when memory is short.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "base/os.hpp"

namespace tutti::bootstrap {

using Work = std::function<void()>;

/// The log text for an exception that a piece of work has thrown. It must not end the service, which others wait for.
inline constexpr const char* goes_on = "the service thread goes on after an error";

/// A reference to work whose caller waits until it is done, so that nothing is copied or allocated.
class Errand {
  public:
    template <class F>
    Errand(const F& work) : work_(&work), call_([](const void* f) { (*static_cast<const F*>(f))(); }) {}
    void operator()() const { call_(work_); }

  private:
    const void* work_;
    void (*call_)(const void*);
};

/// Owned by its service.
class Posted {
  public:
    struct Piece;
    struct Delete {
        void operator()(Piece* piece) const;
    };
    using PiecePtr = std::unique_ptr<Piece, Delete>;
    static PiecePtr prepared(Work work);

    /// Creates wake_up(). Throws tuttiSystemError.
    void open();
    /// An eventfd, readable when work has been posted or stop() was called.
    const Fd& wake_up() const { return wake_; }

    // ---- for any thread
    /// False if the queue has been stopped.
    bool post(PiecePtr piece);
    /// Posts the work, waits until it is done and rethrows what it throws. False if the queue has been stopped.
    bool run(Errand work);
    /// Refuses all work from now on. False if the service thread can't be woken.
    bool stop();

    // ---- for the service thread
    /// Does all posted work in the order of posting. False once the queue has been stopped and is empty.
    bool perform();

  private:
    bool append(Piece& piece);
    bool wake() const;

    Fd wake_;
    std::mutex mutex_;
    Piece* first_ = nullptr;  // a linked list, guarded by mutex_
    Piece** end_ = &first_;
    bool stop_ = false;
};

}  // namespace tutti::bootstrap
