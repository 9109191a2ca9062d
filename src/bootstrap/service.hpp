// The one thread per process that does all of the bootstrap's input and output. It starts with the first session and
// ends with the process. Connections, listeners, rendezvous points and memberships belong to it: only it touches them,
// and nothing of theirs needs a lock. Other threads hand it work with run() and post().
//
// fork(): the child has no such thread. What it inherited is closed in the child at once, so that the parent's death is
// noticed although the child lives on; sessions of the parent can't be used in the child.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/os.hpp"
#include "base/result.hpp"
#include "base/thread.hpp"
#include "bootstrap/posted.hpp"
#include "bootstrap/timers.hpp"

namespace tutti {

/// The same for all ranks of this process, different from every other process' one.
std::uint64_t process_id();

namespace bootstrap {

/// Something with a descriptor that the service thread waits for.
class Watcher {
  public:
    virtual ~Watcher() = default;
    virtual void ready(std::uint32_t events) = 0;
    /// ready() or flush() has thrown: whatever it was about is in doubt now.
    virtual void failed(const Error& error);
    /// Called once after all that was ready has been dealt with, if flush_later() asked for it: one write for many
    /// messages.
    virtual void flush() {}
};

struct ServiceHolder;
class Listener;

class Service {
  public:
    using Timer = Timers::Timer;
    using Later = Timers::Later;

    /// The process' service; its thread runs when this returns. It raises the process' limit of open descriptors, as
    /// far as it may. Throws tuttiSystemError.
    static std::shared_ptr<Service> get();
    /// The same if it runs already; else null.
    static std::shared_ptr<Service> running();
    /// Another thread like it, for work that may never return: calls of network plugins. It starts when somebody asks.
    static std::shared_ptr<Service> aside();
    ~Service();

    // ---- for any thread
    void post(Work work) { post(prepared(std::move(work))); }
    /// Work that can be posted when there is no memory.
    using PiecePtr = Posted::PiecePtr;
    static PiecePtr prepared(Work work) { return Posted::prepared(std::move(work)); }
    void post(PiecePtr piece);
    /// Does work on the service thread and waits for it; what it throws is rethrown. False if the service has ended.
    /// Takes no memory itself: whoever leaves calls it.
    bool run(Errand work);
    bool is_this_thread() const { return std::this_thread::get_id() == thread_id_; }
    /// Whether this process is a fork of the one that the service belongs to.
    bool is_inherited() const;

    // ---- for the service thread
    /// False and errno if the kernel refuses.
    bool watch(int fd, std::uint32_t events, std::shared_ptr<Watcher> watcher);
    void change(int fd, std::uint32_t events);
    void unwatch(int fd);
    Timer at(Deadline when, Work work) { return timers_.at(when, std::move(work)); }
    Timer at(Deadline when, Later work) { return timers_.at(when, std::move(work)); }
    static Later later(Work work) { return Timers::later(std::move(work)); }
    Timer after(std::chrono::microseconds delay, Work work) { return at(Clock::now() + delay, std::move(work)); }
    void cancel(const Timer& timer) { timers_.cancel(timer); }
    void flush_later(std::shared_ptr<Watcher> watcher) { unflushed_.push_back(std::move(watcher)); }
    /// Keeps an object alive that no user thread holds, until released or the service ends.
    void keep(std::shared_ptr<void> object) { kept_[object.get()] = object; }
    void release(const void* object) { kept_.erase(object); }
    /// Those that are open: they share what the process may spend on unauthenticated peers.
    std::vector<Listener*>& listeners() { return listeners_; }

  private:
    Service() = default;
    static std::shared_ptr<Service> one_of(std::shared_ptr<Service> ServiceHolder::*which);
    void start();
    void stop(bool may_hang);
    void loop();
    void dispatch(std::uint64_t number, std::uint32_t events);
    void flush_all();
    static void call(Watcher& watcher, Errand work);

    struct Entry {
        int fd;
        std::shared_ptr<Watcher> watcher;
    };

    Fd epoll_;
    Posted posted_;
    Timers timers_;
    std::unordered_map<std::uint64_t, Entry> watchers_;  // by numbers that are never used again, unlike descriptors
    std::unordered_map<int, std::uint64_t> numbers_;
    std::uint64_t next_number_ = 2;
    std::vector<std::shared_ptr<Watcher>> unflushed_;
    std::unordered_map<const void*, std::shared_ptr<void>> kept_;
    std::vector<Listener*> listeners_;

    pid_t process_ = 0;
    std::thread::id thread_id_;
    std::promise<void> ended_;
    Thread thread_;

    friend struct ServiceHolder;
};

}  // namespace bootstrap
}  // namespace tutti
