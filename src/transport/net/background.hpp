// What an engine has done in the background, where the rank's own thread is not there to do it: messages while the rank
// computes or sleeps. On the service thread; where calls of a network may hang, on one aside for what is under the
// engine's lock.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "bootstrap/service.hpp"
#include "transport/net/links.hpp"
#include "transport/net/lock.hpp"

namespace tutti::net {

class Background {
  public:
    Background(Links& links, Lock& lock) : links_(links), lock_(lock) {}

    /// Once, on the service thread. self: keeps the engine, too. page: this rank's. Watches the links from now on.
    /// Throws tuttiSystemError.
    void start(std::weak_ptr<Background> self, std::shared_ptr<bootstrap::Service> service, RankPage& page,
               std::chrono::milliseconds silence_limit);
    /// On the service thread.
    void stop() { service_->unwatch(links_.epoll().get()); }
    /// From now on calls under the lock may hang.
    void step_aside();

    // ---- for the rank's thread
    /// It looks itself.
    void rank_looks() { awake_.store(true, std::memory_order_relaxed); }
    /// It does not any more; asleep: until it is woken.
    void rank_rests(bool asleep, bool pending, bool owes);
    /// Kernels use the links' FIFOs from now on, or do no more. See tutti::Engine, also for the next two.
    void serve(bool begins);
    void launched();
    void ask(std::function<bool()> run);
    /// Called once, on the service thread, with what Links::check_lost() throws.
    void on_loss(std::function<void(const Error&)> listener);

    // ---- for any thread
    /// There are endpoints that can't tell when something arrives.
    void blind();
    void look_soon() { look_later({}); }

    // ---- for the service thread
    /// Does work under the lock where that may be waited for, then wakes the rank. serve: what has come is dealt with
    /// first.
    void run(std::function<void(Links&)> work, bool serve = false);
    /// The links' sockets are.
    void ready();

  private:
    struct Seen {
        bool moved, pending, owes;
        unsigned fruitless;  // looks, up to this one
    };
    void in_background(std::function<void(Background&)> work);
    bool kernels_run();
    void watch();
    void later(std::atomic<bool>& asked, std::chrono::microseconds delay, void (Background::*work)());
    void look_later(std::chrono::microseconds delay);
    void settle_later();
    void settle_now();
    void look_now();
    Seen look();
    void serve_sockets();
    void listen_for_silence();
    void check_silence();
    void report_loss();

    Links& links_;
    Lock& lock_;
    std::weak_ptr<Background> self_;
    std::shared_ptr<bootstrap::Service> service_, aside_;
    RankPage* page_ = nullptr;
    std::chrono::milliseconds silence_limit_{};

    std::atomic<bool> awake_{false};     // the rank's thread looks
    std::atomic<bool> asleep_{false};    // it sleeps
    std::atomic<bool> watched_{false};   // the service thread hears of sockets that are ready
    std::atomic<bool> settling_{false};  // it will have credits told
    std::atomic<bool> looking_{false};   // it will look at what is blind
    std::atomic<bool> blind_{false};     // some endpoints can't tell when something arrives
    std::atomic<int> kernels_{0};        // that use the links' FIFOs
    std::atomic<bool> launched_{false};  // others do, as long as run_() says
    std::mutex asking_;                  // of run_
    std::function<bool()> run_;
    std::function<void(const Error&)> loss_;  // the service thread's
    std::atomic<bool> tells_of_loss_{false};
};

}  // namespace tutti::net
