#include "bootstrap/posted.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <optional>
#include <utility>

#include "base/caught.hpp"
#include "base/result.hpp"

namespace tutti::bootstrap {

// One piece of work, owned by the queue, or on the stack of the thread that waits for it. An error is passed on as code
// and text, because two threads that shared an exception object would race to free it.
struct Posted::Piece {
    Work work;
    const Errand* waited_for = nullptr;  // set if a thread waits, which then owns the piece
    Piece* next = nullptr;

    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::optional<Error> error;

    void perform() {
        std::optional<Error> trouble;
        try {
            (*waited_for)();
        } catch (...) {
            trouble = caught();
        }
        const std::lock_guard lock(mutex);
        error = std::move(trouble);
        done = true;
        changed.notify_all();  // under the lock, because the waiter destroys this piece
    }
    void wait() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return done; });
        if (error) throw Error(error->code(), error->what());
    }
};

void Posted::Delete::operator()(Piece* piece) const {
    delete piece;
}

Posted::PiecePtr Posted::prepared(Work work) {
    PiecePtr piece(new Piece);
    piece->work = std::move(work);
    return piece;
}

void Posted::open() {
    wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_) fail_errno("starting the service thread failed");
}

bool Posted::wake() const {
    const std::uint64_t one = 1;
    return ::write(wake_.get(), &one, sizeof one) >= 0;
}

bool Posted::append(Piece& piece) {
    bool first;
    {
        std::lock_guard lock(mutex_);
        if (stop_) return false;
        first = first_ == nullptr;
        *end_ = &piece;
        end_ = &piece.next;
    }
    if (first) wake();  // if that fails the counter is full, so the thread is awake
    return true;
}

bool Posted::post(PiecePtr piece) {
    if (!append(*piece)) return false;
    piece.release();
    return true;
}

bool Posted::run(Errand work) {
    Piece piece;
    piece.waited_for = &work;
    if (!append(piece)) return false;
    piece.wait();
    return true;
}

bool Posted::stop() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    return wake();
}

bool Posted::perform() {
    Piece* piece;
    bool stop;
    {
        std::lock_guard lock(mutex_);
        piece = std::exchange(first_, nullptr);
        end_ = &first_;
        stop = stop_;
    }
    while (piece != nullptr) {
        Piece* const next = piece->next;
        if (piece->waited_for != nullptr) {
            piece->perform();
        } else {
            const PiecePtr own(piece);
            shielded(goes_on, own->work);
        }
        piece = next;
    }
    return !stop;
}

}  // namespace tutti::bootstrap
