// Moves an engine's messages in the background while the rank's own thread computes or sleeps. That happens on the
// service thread. Where calls of a network may hang, a thread aside does all that needs the engine's lock.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "bootstrap/service.hpp"
#include "transport/net/links.hpp"
#include "transport/net/lock.hpp"

namespace tutti::net {

/// Part of the engine. Each function says which threads may call it. Takes the engine's lock itself.
class Background {
  public:
    Background(Links& links, Lock& lock) : links_(links), lock_(lock) {}

    /// Watches the links from now on. Call it once, on the service thread. self: shares ownership with the engine.
    /// page: this rank's. silence limit: how long a peer's host may be silent. Throws tuttiSystemError.
    void start(std::weak_ptr<Background> self, std::shared_ptr<bootstrap::Service> service, RankPage& page,
               std::chrono::milliseconds silence_limit);
    /// Ends watching. On the service thread.
    void stop() { service_->unwatch(links_.epoll().get()); }
    /// From now on calls under the lock may hang, so work under it goes to a thread aside. Any thread.
    void step_aside();

    // ---- for the rank's thread
    /// The rank's thread polls from now on.
    void rank_looks() { awake_.store(true, std::memory_order_relaxed); }
    /// The rank's thread does not poll any more. asleep: it sleeps until it is woken. left: what it has left.
    void rank_rests(bool asleep, const Links::Left& left);
    /// See tutti::Engine, for these three.
    void serve(bool begins);
    void launched();
    void ask(std::function<bool()> run);
    /// listener: called once, on the service thread, with the error that Links::check_lost() throws.
    void on_loss(std::function<void(const Error&)> listener);

    // ---- for any thread
    /// Says that some endpoint has no descriptor to watch. A timer serves it from now on.
    void blind();
    /// Has the links moved in the background at once.
    void look_soon() { look_later({}); }

    // ---- for the service thread
    /// Runs work under the lock, on a thread that may wait for it, then wakes the rank. serve: moves what has arrived
    /// before it wakes the rank.
    void run(std::function<void(Links&)> work, bool serve = false);
    /// Some socket or endpoint of the links is ready.
    void ready();

  private:
    /// What a look at the links has found.
    struct Seen {
        bool moved;
        unsigned fruitless;  // looks in a row, up to this one, that moved nothing
        Links::Left left;
    };
    void in_background(std::function<void(Background&)> work);
    bool kernels_run();
    bool serves_blindly();
    void watch();
    void schedule(std::chrono::microseconds delay, bootstrap::Work work);
    void later(std::atomic<bool>& asked, std::chrono::microseconds delay, void (Background::*work)());
    void look_later(std::chrono::microseconds delay);
    void look_when_due(const Links::Left& left);
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

    std::atomic<bool> awake_{false};     // the rank's thread polls
    std::atomic<bool> asleep_{false};    // the rank's thread sleeps
    std::atomic<bool> watched_{false};   // the service thread is told of sockets that are ready
    std::atomic<bool> settling_{false};  // settle_now() is scheduled
    std::atomic<bool> looking_{false};   // look_now() is scheduled
    std::atomic<Clock::rep> due_{0};     // when look_when_due() has scheduled it for; 0: it has not
    std::atomic<bool> blind_{false};     // some endpoint has no descriptor to watch
    std::atomic<int> kernels_{0};        // serve() calls that have begun and not ended
    std::atomic<bool> launched_{false};  // kernels were launched, and use the FIFOs until run_() returns false
    std::mutex asking_;                  // guards run_, also while it is called
    std::function<bool()> run_;
    std::function<void(const Error&)> loss_;  // only the service thread uses it
    std::atomic<bool> tells_of_loss_{false};
};

}  // namespace tutti::net
