// The engine: a rank's end of all its links over networks. It accepts data connections and moves messages. The rank's
// own thread moves them while it waits, so that a message costs no hand-over between threads. While the rank sleeps or
// computes, the service thread moves the rest and wakes it. So sockets are always read: the inbox has room for all that
// peers may send, and no TCP window stays closed because a rank is late.
//
// Of two ranks the lower one dials. Connections are made by the bootstrap's handshake, on the service thread. A
// connection that arrives before its rank has made the link is kept, and already tells the peer what this rank calls.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "transport/net/background.hpp"

namespace tutti::net {

class Reception;

/// The communicator and the links of a rank share it. Threads: as tutti::Engine. Its lock guards links_ and every Ends.
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
    void lend(std::uint32_t gate, std::uint32_t key, std::span<std::byte> memory) override;
    void withdraw() override;

    /// The rank's link with peer. The engine owns it until disconnect(); use it only under mutex(). net: the network
    /// for its messages; nullptr: TCP. slots: see Ends::use(). Throws as lock_or_fail().
    Ends& connect(Rank peer, const std::array<bootstrap::Address, most_rails>& addresses, Net* net,
                  const DeviceSlots* slots = nullptr);
    /// Says goodbye and destroys the link. False if a network's call hangs under the lock: the link then stays.
    bool disconnect(Ends& ends);
    std::mutex& mutex() { return lock_.mutex(); }
    bool hangs_perhaps() const { return lock_.hangs_perhaps(); }
    /// See Lock::soon().
    Lock::Held lock_soon() { return lock_.soon(session_->rank()); }
    /// The same; throws tuttiSystemError if it is not held.
    Lock::Held lock_or_fail();

    // ---- for the service thread
    /// A data connection with peer has been made.
    void arrived(Rank peer, const bootstrap::Stripe& stripe, bootstrap::Detached socket, tcp::Cipher::Kind cipher);
    /// A connection with peer can't be made.
    void unreachable(Rank peer, const std::string& why);
    /// A connection that would replace a broken one can't be made now: see Ends::missed(). again: is called on the
    /// service thread if the connection is still wanted.
    void missed(Rank peer, const bootstrap::Stripe& stripe, const std::string& why, bool hopeless,
                std::function<void()> again);
    /// This rank lacks memory or descriptors for a connection with peer. The error names this rank as its origin.
    void lacking(Rank peer, const Error& why);

  private:
    std::array<bootstrap::Address, most_rails> addresses_{};
    std::vector<Fd> listening_;  // until start() gives them to reception_

    // Set once, by start(); but spread_, which spread_by() sets before it.
    std::shared_ptr<bootstrap::Service> service_;
    std::shared_ptr<Reception> reception_;
    std::shared_ptr<Session> session_;
    std::chrono::milliseconds silence_limit_{};
    Spread spread_;
    std::vector<Net*> nets_;  // that this rank may use

    Lock lock_;
    Links links_;  // guarded by lock_
    Background background_{links_, lock_};
    unsigned looks_ = 0;  // calls of poll(); only of the rank's thread
};

/// Makes this rank's end of the link with peer. net: the network for its messages; nullptr: TCP.
std::unique_ptr<Link> make_link(const Neighbourhood& from, Rank peer, Net* net);

}  // namespace tutti::net
