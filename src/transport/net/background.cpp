#include "transport/net/background.hpp"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/caught.hpp"
#include "base/peer_error.hpp"

namespace tutti::net {
namespace {

using std::chrono::milliseconds;
using namespace bootstrap;

constexpr milliseconds settle_delay{5};                 // from the rank's last poll to Links::settle()
constexpr milliseconds look_delay{1};                   // between looks at endpoints without descriptors
constexpr unsigned eager_looks = 2048;                  // fruitless looks without a delay while kernels run
constexpr std::chrono::microseconds kernel_delay{100};  // between looks after these
constexpr int rounds_in_background = 64;

class Watch : public Watcher {
  public:
    explicit Watch(std::weak_ptr<Background> background) : background_(std::move(background)) {}
    void ready(std::uint32_t) override {
        if (const auto background = background_.lock()) background->ready();
    }

  private:
    const std::weak_ptr<Background> background_;
};

}  // namespace

void Background::start(std::weak_ptr<Background> self, std::shared_ptr<Service> service, RankPage& page,
                       milliseconds silence_limit) {
    self_ = std::move(self);
    service_ = std::move(service);
    page_ = &page;
    silence_limit_ = silence_limit;
    if (!service_->watch(links_.epoll().get(), EPOLLIN, std::make_shared<Watch>(self_)))
        fail_errno("watching sockets failed");
    watched_ = true;
    listen_for_silence();
}

void Background::step_aside() {
    if (lock_.hangs_perhaps()) return;
    aside_ = Service::aside();
    lock_.may_hang();
}

void Background::rank_rests(bool asleep, const Links::Left& left) {
    asleep_.store(asleep, std::memory_order_relaxed);
    awake_.store(false, std::memory_order_seq_cst);
    if (kernels_.load() > 0 || launched_.load()) look_soon();  // the look for them was perhaps left out
    look_when_due(left);
    if (asleep || left.pending) watch();
    // What is pending may wait for something that arrived just now, of which nothing tells any more.
    if (serves_blindly() || (left.pending && !asleep)) look_later(look_delay);
    if (!asleep && !left.pending && (left.owes || !watched_.load(std::memory_order_seq_cst))) settle_later();
}

void Background::serve(bool begins) {
    if (!begins)
        kernels_.fetch_sub(1);
    else if (kernels_.fetch_add(1) == 0)
        look_soon();
}

void Background::launched() {
    if (!launched_.exchange(true)) look_soon();
}

void Background::ask(std::function<bool()> run) {
    const std::lock_guard lock(asking_);
    run_ = std::move(run);
}

/// Whether kernels may use the FIFOs now. A launch during the call of run_() is not lost: launched_ is set again.
bool Background::kernels_run() {
    if (kernels_.load() > 0) return true;
    if (!launched_.exchange(false)) return false;
    const std::lock_guard lock(asking_);
    if (!run_ || !run_()) return launched_.load();
    launched_ = true;
    return true;
}

/// Whether a timer serves endpoints without descriptors while the rank does not poll: it waits to be woken, or may not
/// call again for long while peers put to its windows and get from them.
bool Background::serves_blindly() {
    return blind_ && (asleep_.load(std::memory_order_relaxed) || links_.arena().lent().lends_any());
}

void Background::on_loss(std::function<void(const Error&)> listener) {
    tells_of_loss_ = listener != nullptr;
    service_->run([&] { loss_ = std::move(listener); });
}

void Background::blind() {
    blind_ = true;
    look_later(look_delay);  // the rank may be asleep
}

/// Runs work on the service thread or, where calls under the lock may hang, on the thread aside.
void Background::in_background(std::function<void(Background&)> work) {
    if (!lock_.hangs_perhaps() || aside_->is_this_thread()) return work(*this);
    aside_->post([weak = self_, work = std::move(work)] {
        if (const auto self = weak.lock()) work(*self);
    });
}

void Background::run(std::function<void(Links&)> work, bool serve) {
    in_background([work = std::move(work), serve](Background& self) {
        {
            const auto lock = self.lock_.in_background();
            work(self.links_);
        }
        if (serve) self.serve_sockets();
        wake(self.page_->wake_up);
    });
}

/// Gives the listener the error that Links::check_lost() throws, once.
void Background::report_loss() {
    if (!tells_of_loss_) return;
    try {
        const auto lock = lock_.in_background();
        links_.check_lost();
        return;
    } catch (const PeerError& error) {
        service_->post([weak = self_, code = error.code(), said = std::string(error.what()), peer = error.peer()] {
            const auto self = weak.lock();
            if (self && self->loss_) std::exchange(self->loss_, nullptr)(PeerError(code, said, peer));
        });
    }
}

void Background::watch() {
    if (watched_.exchange(true, std::memory_order_seq_cst)) return;
    service_->post([weak = self_] {
        if (const auto self = weak.lock()) self->service_->change(self->links_.epoll().get(), EPOLLIN);
    });
}

/// Does work in the background after a delay. If there is no memory for that, it does it early, or throws.
void Background::schedule(std::chrono::microseconds delay, Work work) {
    const std::shared_ptr<Service> service = lock_.hangs_perhaps() ? aside_ : service_;
    service->post([service = service.get(), delay, work = std::move(work)] {
        try {
            service->after(delay, work);
        } catch (const std::bad_alloc&) {
            work();  // early rather than never
        }
    });
}

/// Schedules work in the background after a delay, unless it is scheduled already (asked). It is left out if the rank's
/// thread polls by then.
void Background::later(std::atomic<bool>& asked, std::chrono::microseconds delay, void (Background::*work)()) {
    if (asked.load() || asked.exchange(true)) return;
    try {
        schedule(delay, [weak = self_, &asked, work] {
            const auto self = weak.lock();  // keeps `asked` alive, which is a member
            if (!self) return;
            asked.store(false);
            if (!self->awake_.load()) ((*self).*work)();
        });
    } catch (...) {
        asked.store(false);
        throw;
    }
}

void Background::look_later(std::chrono::microseconds delay) {
    later(looking_, delay, &Background::look_now);
}

/// Schedules a look for when something is due of which nothing tells, unless one is scheduled for then, or earlier.
/// Not by look_later(), which would then take no other look until that one. It, too, is left out if the rank's thread
/// polls by then.
void Background::look_when_due(const Links::Left& left) {
    if (!left.due) return;
    const milliseconds wait = std::max(*left.due, look_delay);
    const Clock::rep when = (Clock::now() + wait).time_since_epoch().count();
    Clock::rep known = due_.load();
    do {
        if (known != 0 && known <= when) return;
    } while (!due_.compare_exchange_weak(known, when));
    try {
        schedule(wait, [weak = self_, its = when]() mutable {
            const auto self = weak.lock();
            if (!self) return;
            self->due_.compare_exchange_strong(its, 0);
            if (!self->awake_.load()) self->look_now();
        });
    } catch (...) {
        due_.store(0);
        throw;
    }
}

void Background::settle_later() {
    later(settling_, settle_delay, &Background::settle_now);
}

/// Sends due credits, then watches the sockets: the rank may not poll for long, or sleep by now, and its peers'
/// messages must be read all the same.
void Background::settle_now() {
    {
        const auto lock = lock_.in_background();
        links_.settle();
    }
    serve_sockets();
    watch();
}

void Background::listen_for_silence() {
    service_->after(silence_limit_ / 8, [weak = self_] {
        const auto self = weak.lock();
        if (!self) return;
        self->listen_for_silence();  // first: the check may fail, for lack of memory
        self->in_background([](Background& b) { b.check_silence(); });
    });
}

void Background::check_silence() {
    {
        const auto lock = lock_.in_background();
        links_.listen_for_silence();
    }
    serve_sockets();
    report_loss();
}

Background::Seen Background::look() {
    const auto lock = lock_.in_background();
    const bool moved = links_.look();
    return {moved, links_.fruitless(), links_.left()};
}

/// Moves all links, and schedules itself again: while kernels use them, while something is pending, and for endpoints
/// without descriptors.
void Background::look_now() {
    const bool kernels = kernels_run();
    Seen seen = look();
    for (int i = 1; kernels && !seen.moved && i < rounds_in_background; ++i) {
        sched_yield();
        seen = look();
    }
    if (seen.moved) wake(page_->wake_up);
    report_loss();
    look_when_due(seen.left);
    if (kernels)
        look_later(seen.fruitless < eager_looks ? std::chrono::microseconds(0) : kernel_delay);
    else if (seen.left.pending || serves_blindly())
        look_later(look_delay);
    if (!kernels && !seen.left.pending && (seen.left.owes || !watched_.load())) settle_later();
}

void Background::ready() {
    const int epoll = links_.epoll().get();
    if (awake_.load(std::memory_order_seq_cst)) {
        // The rank's thread polls. Of the two threads, the one that reads the other's flag last resumes watching.
        watched_.store(false, std::memory_order_seq_cst);
        service_->change(epoll, 0);
        if (!awake_.load(std::memory_order_seq_cst)) watch();
        return;
    }
    if (!lock_.hangs_perhaps()) return serve_sockets();
    watched_.store(false, std::memory_order_seq_cst);
    service_->change(epoll, 0);
    in_background([](Background& b) {
        b.serve_sockets();
        b.watch();
    });
}

void Background::serve_sockets() {
    bool again = true;
    Links::Left left;
    {
        const auto lock = lock_.in_background();
        for (int i = 0; i < rounds_in_background && again; ++i) again = links_.move() || !links_.arm();
        if (links_.owes()) {  // credits for puts, which the engine handles without the rank
            links_.settle();
            again |= links_.move() || !links_.arm();
        }
        left = links_.left();
    }
    wake(page_->wake_up);
    look_when_due(left);
    if (blind_ && left.pending) look_later(look_delay);  // nothing tells when there is room
    if (blind_ && !left.pending && left.owes) settle_later();
    if (!again) return;
    service_->post([weak = self_] {  // also from the thread aside: only the service thread changes what it watches
        if (const auto self = weak.lock()) self->ready();
    });
}

}  // namespace tutti::net
