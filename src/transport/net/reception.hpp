// Makes and accepts data connections: the handshake, which rank it is, which stripe, which cipher.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "bootstrap/connection.hpp"
#include "bootstrap/listener.hpp"
#include "transport/tcp/cipher.hpp"
#include "transport/transport.hpp"

namespace tutti::net {

class Engine;

/// How many connections a pair of ranks makes over `rails` interfaces, the same number over each: at least `sockets` in
/// all, within the limit of bootstrap::Stripe.
int connections_over(int rails, int sockets);

/// Owned by the engine. Used on the service thread only.

class Reception : public bootstrap::ConnectionUser, public std::enable_shared_from_this<Reception> {
  public:
    /// sockets: how many connections two ranks should have. silence limit: how long the hosts of peers may be silent.
    Reception(std::weak_ptr<Engine> engine, bootstrap::Service& service, Rank self, const bootstrap::Secret& secret,
              int sockets, std::chrono::milliseconds silence_limit);

    void listen(Fd fd, const bootstrap::Address& address);
    /// Says which ranks will connect, after listen(). The ports close if there are none. nullopt: unknown.
    void expect(std::optional<std::set<Rank>> callers);
    /// Makes all connections with peer. alone: makes only one. Gives each to the engine, or tells it that the peer
    /// can't be reached.
    void dial(Rank peer, const std::array<bootstrap::Address, most_rails>& addresses, bool alone);
    /// The connections have broken: makes all of them anew, as that round, after a pause. Gives up calls of earlier
    /// rounds.
    void dial_again(Rank peer, std::uint32_t round, std::chrono::milliseconds pause);
    /// The link is gone: gives up its calls.
    void forget(Rank peer);
    void close();

  private:
    /// A connection that is being made to a peer.
    struct Call {
        std::shared_ptr<bootstrap::Connection> connection;
        Rank peer;
        bootstrap::Address address;
        bootstrap::Stripe stripe;
        int attempt;
        Deadline begin = Clock::now();
    };
    void dial_all(Rank peer);
    void dial(Call call);
    void attempt(Rank peer, bootstrap::Errand work);
    void opened(bootstrap::Connection& connection) override;
    void received(bootstrap::Connection& connection, bootstrap::Message& message, Fd descriptor) override;
    void closed(bootstrap::Connection& connection, const bootstrap::Loss& loss) override;
    void on_stripe(bootstrap::Connection& connection, const bootstrap::Stripe& stripe);
    void on_accepted(bootstrap::Connection& connection, const bootstrap::Accepted& accepted);
    void lost(Call call, const bootstrap::Loss& loss);
    void missed(Call call, const bootstrap::Loss& loss);
    void give_up_calls(Rank peer);
    bool is_wanted(Rank peer, std::uint32_t round) const;

    const std::weak_ptr<Engine> engine_;
    bootstrap::Service& service_;
    const Rank self_;
    const bootstrap::Secret secret_;
    const int sockets_;
    const std::chrono::milliseconds silence_limit_;
    std::vector<std::shared_ptr<bootstrap::Listener>> listeners_;
    std::map<bootstrap::Connection*, Call> calls_;
    std::map<bootstrap::Connection*, std::shared_ptr<bootstrap::Connection>> unidentified_;
    struct Way {
        std::array<bootstrap::Address, most_rails> addresses;
        int rails;
        std::uint8_t count;
        std::uint32_t round;
    };
    std::map<Rank, Way> wanted_;  // by peer; those that are dialled, or have been
    bool closed_ = false;
};

}  // namespace tutti::net
