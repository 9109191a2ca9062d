// A rank's end of all its links over networks: where data connections come in, and what moves their messages. The
// rank's own thread does that while it waits, so that a message costs no hand-over between threads; while it sleeps or
// computes, the service thread does what is left, and wakes them. So sockets are always read: the inbox has room for
// all that peers may send, and no window stays closed because a rank is late.
//
// Of two ranks the lower one dials. Connections are made by the bootstrap's handshake, on the service thread; what
// comes before its rank has made the link is kept, and the peer can learn by it what this rank calls.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "transport/net/background.hpp"

namespace tutti::net {

class Reception;

class Engine : public tutti::Engine, public std::enable_shared_from_this<Engine> {
  public:
    /// Listens at these addresses, of port 0. Throws tuttiSystemError.
    explicit Engine(std::span<const bootstrap::Address> addresses);
    ~Engine() override;

    std::array<bootstrap::Address, most_rails> addresses() const override { return addresses_; }
    void spread_by(Spread spread) override { spread_ = std::move(spread); }
    void start(const Neighbourhood& from, std::chrono::milliseconds timeout) override;
    bool poll() override;
    bool pending() override;
    bool rest(bool asleep) override;
    void serve(bool begins) override { background_.serve(begins); }
    void launched() override { background_.launched(); }
    void ask(std::function<bool()> run) override { background_.ask(std::move(run)); }
    void on_loss(std::function<void(const Error&)> listener) override { background_.on_loss(std::move(listener)); }
    void withdraw() override;

    /// The rank's link with peer, which belongs to the engine and its lock; until it is disconnected. net: what its
    /// messages go by; nullptr: TCP. slots: see Ends::use().
    Ends& connect(Rank peer, const std::array<bootstrap::Address, most_rails>& addresses, Net* net,
                  const DeviceSlots* slots = nullptr);
    /// False: a network's call hangs, and the link stays until it returns.
    bool disconnect(Ends& ends);
    std::timed_mutex& mutex() { return lock_.mutex(); }
    /// Not locked, after a moment, if a network's call that may hang does so under the lock.
    Lock::Held lock_soon() { return lock_.soon(session_->rank()); }

    // ---- for the service thread
    void arrived(Rank peer, const bootstrap::Stripe& stripe, bootstrap::Detached socket, tcp::Cipher::Kind cipher);
    void unreachable(Rank peer, const std::string& why);
    /// One of the connections that are to take the place of others can't be made now: see Ends::missed(). again: is
    /// called on the service thread, if it is still wanted.
    void missed(Rank peer, const bootstrap::Stripe& stripe, const std::string& why, bool hopeless,
                std::function<void()> again);
    /// This rank lacks what a connection with the peer takes: the error is its own, and the peers hear of it as such.
    void lacking(Rank peer, const Error& why);

  private:
    std::array<bootstrap::Address, most_rails> addresses_{};
    std::vector<Fd> listening_;

    // Set once, by start().
    std::shared_ptr<bootstrap::Service> service_;
    std::shared_ptr<Reception> reception_;
    std::shared_ptr<Session> session_;
    std::chrono::milliseconds silence_limit_{};
    Spread spread_;

    Lock lock_;
    Links links_;  // under the lock
    Background background_{links_, lock_};
    unsigned looks_ = 0;  // of the rank's thread
};

/// The rank's link with peer. net: what its messages go by; nullptr: TCP.
std::unique_ptr<Link> make_link(const Neighbourhood& from, Rank peer, Net* net);

}  // namespace tutti::net
