#include "bootstrap/service.hpp"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "base/thread.hpp"
#include "bootstrap/auth.hpp"
#include "bootstrap/listener.hpp"

namespace tutti::bootstrap {

// The services of this process, and what the fork handlers need. Guarded by its mutex.
struct ServiceHolder {
    std::mutex mutex;
    std::shared_ptr<Service> service, aside;
    std::set<int> descriptors;  // that the services poll or use; a forked child closes them
    std::vector<std::shared_ptr<Service>>* inherited = nullptr;

    ServiceHolder() {
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        std::atexit([] { get().stop(); });
    }
    static ServiceHolder& get() {
        static auto* const holder = new ServiceHolder;  // never destroyed: threads use it until the process ends
        return *holder;
    }
    void stop() const {
        if (aside && !aside->is_inherited()) aside->stop(true);
        if (service && !service->is_inherited()) service->stop(false);
    }

    static void before_fork() { get().mutex.lock(); }
    static void after_fork_in_parent() { get().mutex.unlock(); }
    static void after_fork_in_child() {
        ServiceHolder& h = get();
        for (const int fd : h.descriptors) ::close(fd);
        h.descriptors.clear();
        // The child does not have the service's thread, so it can neither use nor destroy the service. It keeps it.
        if (h.inherited == nullptr) h.inherited = new std::vector<std::shared_ptr<Service>>;
        for (auto* mine : {&h.service, &h.aside}) {
            if (*mine) h.inherited->push_back(std::move(*mine));
            mine->reset();
        }
        h.mutex.unlock();
    }

    void add(int fd) {
        std::lock_guard lock(mutex);
        descriptors.insert(fd);
    }
    void remove(int fd) {
        std::lock_guard lock(mutex);
        descriptors.erase(fd);
    }
};

namespace {

constexpr std::uint64_t wake_number = 0, alarm_number = 1;
constexpr std::chrono::milliseconds longest_end{1000};

void add_to(const Fd& epoll, const Fd& fd, std::uint64_t number) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = number;
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) fail_errno("epoll_ctl failed");
}

/// Every peer takes descriptors, and at the rendezvous every rank takes one for a moment, which may be more than the
/// usual soft limit of 1024. The new limit is bounded, since programs may close every possible descriptor before they
/// exec.
void raise_descriptor_limit() {
    constexpr rlim_t enough = 65536;
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= enough) return;
    limit.rlim_cur = std::min(enough, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

std::shared_ptr<Service> Service::get() {
    start_crypto();
    return one_of(&ServiceHolder::service);
}

std::shared_ptr<Service> Service::running() {
    ServiceHolder& holder = ServiceHolder::get();
    std::lock_guard lock(holder.mutex);
    return holder.service;
}

std::shared_ptr<Service> Service::aside() {
    return one_of(&ServiceHolder::aside);
}

std::shared_ptr<Service> Service::one_of(std::shared_ptr<Service> ServiceHolder::*which) {
    ServiceHolder& holder = ServiceHolder::get();
    std::lock_guard lock(holder.mutex);
    if (!(holder.*which)) {
        std::shared_ptr<Service> made(new Service);
        made->start();
        const std::array all = {made->epoll_.get(), made->posted_.wake_up().get(), made->timers_.alarm().get()};
        try {
            holder.descriptors.insert(all.begin(), all.end());
        } catch (...) {
            for (const int fd : all) holder.descriptors.erase(fd);
            made->stop(false);
            throw;
        }
        holder.*which = std::move(made);
    }
    return holder.*which;
}

void Service::start() {
    process_ = getpid();
    raise_descriptor_limit();
    epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) fail_errno("starting the service thread failed");
    posted_.open();
    timers_.open();
    add_to(epoll_, posted_.wake_up(), wake_number);
    add_to(epoll_, timers_.alarm(), alarm_number);
    std::promise<void> known;
    thread_ = start_thread("tutti-service", [this, ready = known.get_future().share()] {
        ready.wait();  // until thread_id_ is written
        loop();
        ended_.store(1);
        futex_wake_all(ended_);
    });
    thread_id_ = thread_.id();
    known.set_value();
}

Service::~Service() = default;

void Service::stop(bool may_hang) {
    if (!posted_.stop()) return;
    for (Deadline now = Clock::now(), limit = now + longest_end; may_hang && now < limit; now = Clock::now())
        if (ended_.load() == 0)
            futex_wait(ended_, 0, limit - now);
        else
            break;
    if (!may_hang || ended_.load() != 0) return thread_.join();
    // The thread hangs in a plugin's call. It is left running until the process ends, with all that it may use.
    thread_.detach();
}

bool Service::is_inherited() const {
    return process_ != getpid();
}

void Service::post(PiecePtr piece) {
    if (!is_inherited()) posted_.post(std::move(piece));
}

bool Service::run(Errand work) {
    if (!is_this_thread()) return !is_inherited() && posted_.run(work);
    work();
    return true;
}

bool Service::watch(int fd, std::uint32_t events, std::shared_ptr<Watcher> watcher) {
    const std::uint64_t number = next_number_++;
    epoll_event event{};
    event.events = events;
    event.data.u64 = number;
    const auto undo = [&] {  // the last statement may drop the last reference to the watcher
        ServiceHolder::get().remove(fd);
        numbers_.erase(fd);
        watchers_.erase(number);
    };
    try {
        watchers_[number] = {fd, std::move(watcher)};
        numbers_[fd] = number;
        ServiceHolder::get().add(fd);
    } catch (...) {
        undo();
        throw;
    }
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return true;
    const int error = errno;
    undo();
    errno = error;
    return false;
}

void Service::change(int fd, std::uint32_t events) {
    TUTTI_ASSERT(is_this_thread());
    epoll_event event{};
    event.events = events;
    event.data.u64 = numbers_.at(fd);
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Service::unwatch(int fd) {
    const auto found = numbers_.find(fd);
    if (found == numbers_.end()) return;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    const auto entry = watchers_.extract(found->second);  // may hold the last reference, so it is destroyed last
    numbers_.erase(found);
    ServiceHolder::get().remove(fd);
}

void Watcher::failed(const Error& error) {
    log(Level::warn, "%s: %s", goes_on, error.what());
}

void Service::call(Watcher& watcher, Errand work) {
    shielded(goes_on, [&] {
        try {
            work();
        } catch (...) {
            watcher.failed(caught());
        }
    });
}

void Service::loop() {
    epoll_event events[64];
    bool go_on = true;
    while (go_on) {
        timers_.arm();
        const int count = epoll_wait(epoll_.get(), events, 64, -1);
        for (int i = 0; i < count; ++i) dispatch(events[i].data.u64, events[i].events);
        timers_.perform();
        go_on = posted_.perform();
        flush_all();
    }
    timers_.clear();
    const auto kept = std::move(kept_);  // destructors of these objects may call release()
    kept_.clear();
    while (!numbers_.empty()) unwatch(numbers_.begin()->first);
}

void Service::dispatch(std::uint64_t number, std::uint32_t events) {
    std::uint64_t count;
    if (number == wake_number || number == alarm_number) {
        if (read((number == wake_number ? posted_.wake_up() : timers_.alarm()).get(), &count, sizeof count) < 0) return;
        if (number == alarm_number) timers_.rang();
        return;
    }
    const auto found = watchers_.find(number);
    if (found == watchers_.end()) return;  // an earlier event of this round has removed it
    const std::shared_ptr<Watcher> watcher = found->second.watcher;
    call(*watcher, [&] { watcher->ready(events); });
}

void Service::flush_all() {
    while (!unflushed_.empty()) {
        std::vector<std::shared_ptr<Watcher>> now;
        now.swap(unflushed_);
        for (const auto& w : now) call(*w, [&] { w->flush(); });
    }
}

}  // namespace tutti::bootstrap

namespace tutti {

std::uint64_t process_id() {
    struct Identity {
        pid_t pid = 0;
        std::uint64_t value = 0;
    };
    static std::mutex mutex;
    static Identity identity;
    std::lock_guard lock(mutex);
    if (identity.pid != getpid()) {  // also after a fork
        random_bytes(&identity.value, sizeof identity.value);
        identity.pid = getpid();
    }
    return identity.value;
}

}  // namespace tutti
