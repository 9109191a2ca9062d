// The one thread per process that does all of the bootstrap's input and output. It starts with the first session and
// ends with the process. Only this thread touches connections, listeners, directories and memberships, so they need no
// locks, except for the parts that say otherwise. Other threads hand it work with run() and post().
//
// A forked child has no such thread. The child closes the descriptors that it inherited at once, so that others notice
// the parent's death even if the child lives on. Sessions of the parent can't be used in the child.
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

/// A random number that identifies this process among all processes of a job. A forked child has another one.
std::uint64_t process_id();

namespace bootstrap {

/// A user of a descriptor that the service thread polls. The service holds a reference from watch() to unwatch(), and
/// calls it on the service thread.
class Watcher {
  public:
    virtual ~Watcher() = default;
    /// events: of epoll, that have come.
    virtual void ready(std::uint32_t events) = 0;
    /// Called when ready() or flush() has thrown, and may have left its work half done. Logs the error.
    virtual void failed(const Error& error);
    /// Called at the end of a round of events if flush_later() asked for it, so that messages of one round share a
    /// write.
    virtual void flush() {}
};

struct ServiceHolder;
class Listener;

/// Owned by the process (get(), aside()); ends at exit.
class Service {
  public:
    using Timer = Timers::Timer;
    using Later = Timers::Later;

    /// The process' service. The first call starts its thread and raises the process' soft limit of open descriptors.
    /// Throws tuttiSystemError.
    static std::shared_ptr<Service> get();
    /// The process' service, or nullptr if it has not been started.
    static std::shared_ptr<Service> running();
    /// A second service for calls of network plugins, which may never return. The first call starts it.
    static std::shared_ptr<Service> aside();
    ~Service();

    // ---- for any thread
    /// Has the service thread do work, and does not wait. Dropped if the service has ended, or in a forked child.
    void post(Work work) { post(prepared(std::move(work))); }
    /// Work that is allocated beforehand, so that it can be posted when there is no memory.
    using PiecePtr = Posted::PiecePtr;
    static PiecePtr prepared(Work work) { return Posted::prepared(std::move(work)); }
    void post(PiecePtr piece);
    /// Does work on the service thread, waits for it and rethrows what it throws; on the service thread itself, does it
    /// at once. False if the service has ended, or in a forked child. Allocates nothing, since leave() calls it.
    bool run(Errand work);
    bool is_this_thread() const { return std::this_thread::get_id() == thread_id_; }
    /// Whether this process is a fork of the one that started the service.
    bool is_inherited() const;

    // ---- for the service thread
    /// Polls fd for epoll events until unwatch(). False, with errno set, if the kernel refuses.
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
    /// The open listeners. They share the process' limit of unauthenticated peers.
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
    std::unordered_map<std::uint64_t, Entry> watchers_;  // by numbers that, unlike descriptors, are never reused
    std::unordered_map<int, std::uint64_t> numbers_;     // by descriptor
    std::uint64_t next_number_ = 2;
    std::vector<std::shared_ptr<Watcher>> unflushed_;
    std::unordered_map<const void*, std::shared_ptr<void>> kept_;
    std::vector<Listener*> listeners_;

    pid_t process_ = 0;  // that started the thread
    std::thread::id thread_id_;
    std::atomic<std::uint32_t> ended_{0};  // 1: the thread has left loop(); a futex
    Thread thread_;

    friend struct ServiceHolder;
};

}  // namespace bootstrap
}  // namespace tutti
