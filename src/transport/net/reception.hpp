// Where data connections are made and let in: the handshake, who it is, which stripe, which cipher. Lives on the
// service thread.
#pragma once

#include <bitset>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "bootstrap/connection.hpp"
#include "transport/tcp/cipher.hpp"
#include "transport/transport.hpp"

namespace tutti::net {

class Engine;

/// How many connections a pair of ranks makes over so many interfaces, as many over each: at least `sockets` where that
/// can be told (bootstrap::Stripe), and no less than one each.
int connections_over(int rails, int sockets);

class Reception : public bootstrap::ConnectionUser, public std::enable_shared_from_this<Reception> {
  public:
    /// silence limit: how long the hosts of peers may be silent.
    Reception(std::weak_ptr<Engine> engine, bootstrap::Service& service, Rank self, int ranks,
              const bootstrap::Secret& secret, std::chrono::milliseconds silence_limit);

    void listen(Fd fd, const bootstrap::Address& address);
    /// After listen(): nobody else will connect. Once they all have, all of their connections, the ports close.
    void expect(std::optional<std::set<Rank>> callers);
    /// Makes all connections with peer, or one alone; the engine hears of each one, or that it can't be reached.
    void dial(Rank peer, const std::array<bootstrap::Address, most_rails>& addresses, bool alone);
    /// The link is gone before its connections stood.
    void forget(Rank peer);
    void close();

  private:
    struct Call {
        std::shared_ptr<bootstrap::Connection> connection;
        Rank peer;
        bootstrap::Address address;
        bootstrap::Stripe stripe;
        int attempt;
        Deadline begin = Clock::now();
    };
    void dial(Call call);
    void attempt(Rank peer, bootstrap::Errand work);
    void opened(bootstrap::Connection& connection) override;
    void received(bootstrap::Connection& connection, bootstrap::Message& message, Fd descriptor) override;
    void closed(bootstrap::Connection& connection, const bootstrap::Loss& loss) override;
    void on_stripe(bootstrap::Connection& connection, const bootstrap::Stripe& stripe);
    void on_accepted(bootstrap::Connection& connection, const bootstrap::Accepted& accepted);
    void close_if_complete();
    void lost(Call call, const bootstrap::Loss& loss);

    const std::weak_ptr<Engine> engine_;
    bootstrap::Service& service_;
    const Rank self_;
    const int ranks_;
    const bootstrap::Secret secret_;
    const std::chrono::milliseconds silence_limit_;
    std::vector<std::shared_ptr<bootstrap::Listener>> listeners_;
    std::map<bootstrap::Connection*, Call> calls_;
    std::map<bootstrap::Connection*, std::shared_ptr<bootstrap::Connection>> unidentified_;
    std::set<Rank> wanted_;                                            // peers that are being dialled
    std::optional<std::set<Rank>> callers_;                            // who is still to connect; nullopt: anybody may
    std::map<Rank, std::bitset<bootstrap::stripes_limit>> connected_;  // which of their connections stand
    bool closed_ = false;
};

}  // namespace tutti::net
