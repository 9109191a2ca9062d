// A rank's end of all its links over networks: where data connections come in, and what moves their messages. The
// rank's own thread does that while it waits, so that a message costs no hand-over between threads; while it sleeps or
// computes, the service thread does what is left, and wakes them. So sockets are always read: the inbox has room for
// all that peers may send, and no window stays closed because a rank is late.
//
// Of two ranks the lower one dials. Connections are made by the bootstrap's handshake, on the service thread; what
// comes before its rank has made the link is kept, and the peer can learn by it what this rank calls.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "transport/net/link.hpp"

namespace tutti::net {

class Reception;

class Engine : public tutti::Engine, public std::enable_shared_from_this<Engine> {
  public:
    /// Listens at these addresses, of port 0. Throws tuttiSystemError.
    explicit Engine(std::span<const bootstrap::Address> addresses);
    ~Engine() override;

    std::array<bootstrap::Address, most_rails> addresses() const override { return addresses_; }
    void start(const Neighbourhood& from, std::chrono::milliseconds timeout) override;
    bool poll() override;
    bool pending() override;
    bool rest(bool asleep) override;
    void serve(bool begins) override;
    void on_loss(std::function<void(const Error&)> listener) override;
    void withdraw() override;

    /// The rank's link with peer, which belongs to the engine and its lock; until it is disconnected. net: what its
    /// messages go by; nullptr: TCP. slots: see Ends::use().
    Ends& connect(Rank peer, Net* net, const DeviceSlots* slots = nullptr);
    /// False: a network's call hangs, and the link stays until it returns.
    bool disconnect(Ends& ends);
    std::timed_mutex& mutex() { return mutex_; }
    /// Not locked, after a moment, if a network's call that may hang does so under the lock.
    std::unique_lock<std::timed_mutex> lock_soon();

    // ---- for the service thread (background.cpp)
    void arrived(Rank peer, const bootstrap::Stripe& stripe, bootstrap::Detached socket, tcp::Cipher::Kind cipher);
    void unreachable(Rank peer, const std::string& why);
    /// This rank lacks what a connection with the peer takes: the error is its own, and the peers hear of it as such.
    void lacking(Rank peer, const Error& why);
    void ready();

  private:
    struct Seen {
        bool moved = false, pending = false, owes = false;
        unsigned fruitless = 0;  // looks, up to this one
    };
    Seen look();  // of the service thread
    bool move(bool sockets = true);
    bool by_endpoints() const;
    bool arm();
    void introduce(Ends& ends);
    void check_lost();
    void settle();
    Ends& ends_with(Rank peer);
    void attach(Ends& ends, int number, int count, std::unique_ptr<tcp::Stream> stream);

    // background.cpp
    void in_background(std::function<void(Engine&)> work);
    std::unique_lock<std::timed_mutex> lock_in_background();
    void note_trouble(Rank peer, const Error& why);
    void report_loss();
    void watch_in_background();
    void later(std::atomic<bool>& asked, std::chrono::microseconds delay, void (Engine::*work)());
    void look_later(std::chrono::microseconds delay);
    void look_later();
    void settle_later();
    void settle_now();
    void look_now();
    void listen_for_silence();
    void check_silence();
    void serve_sockets();

    std::array<bootstrap::Address, most_rails> addresses_{};
    std::vector<Fd> listening_;
    std::shared_ptr<bootstrap::Service> service_, aside_;  // aside_: where foreign_
    std::shared_ptr<Reception> reception_;
    Fd epoll_;

    // Set once, by start().
    std::shared_ptr<Session> session_;
    RankPage* page_ = nullptr;
    std::shared_ptr<Arena> arena_;
    std::vector<std::array<bootstrap::Address, most_rails>> addresses_of_;  // of all ranks
    std::chrono::milliseconds silence_limit_{};

    std::timed_mutex mutex_;
    std::map<Rank, std::unique_ptr<Ends>> links_;
    std::vector<Ends*> ends_;           // of links_: what every look goes through
    std::atomic<bool> blind_{false};    // some endpoints can't tell when something arrives
    std::atomic<bool> foreign_{false};  // of a network that may hang: the service thread keeps off the lock
    std::atomic<bool> stuck_{false};    // it does
    std::optional<Error> trouble_;      // of this rank, with a connection
    unsigned fruitless_ = 0;            // looks of the rank's thread, one after the other
    unsigned looks_ = 0;                // all of them

    std::atomic<bool> awake_{false};    // the rank's thread looks
    std::atomic<bool> watched_{false};  // the service thread hears of sockets that are ready
    std::atomic<bool> settling_{false};
    std::atomic<bool> asleep_{false};         // the rank's thread sleeps
    std::atomic<bool> looking_{false};        // the service thread will look at what is blind
    std::atomic<bool> wanted_{false};         // the service thread waits for the lock
    std::atomic<int> kernels_{0};             // that use the links' FIFOs
    std::function<void(const Error&)> loss_;  // the service thread's
    std::atomic<bool> tells_of_loss_{false};
};

/// The rank's link with peer. net: what its messages go by; nullptr: TCP.
std::unique_ptr<Link> make_link(const Neighbourhood& from, Rank peer, Net* net);

}  // namespace tutti::net
