// Whom a member is connected to: the rendezvous, its parent and its children in the tree, and pairs; and where others
// connect to it. Of the service thread.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/connection.hpp"

namespace tutti::bootstrap {

class Neighbours {
  public:
    /// user: of all connections. secret: of those who connect; tag: as Listener's.
    Neighbours(Service& service, ConnectionUser& user) : service_(service), user_(user) {}

    /// Throws as Listener::open(). Their addresses; none where there is no listener.
    Address listen_locally(const Secret& secret, Rank self);
    Address listen_remotely(const Address& here, const Secret& secret, Rank self);
    /// Nobody comes over the network any more.
    void stop_listening_remotely();
    /// Called when no descriptor was to be had for a second.
    void on_starved(const std::function<void()>& starved);

    /// nullptr and errno if that failed at once. A directory or parent takes the place of the last one.
    /// limit: see Connection::dial().
    Connection* dial(const Address& address, std::uint64_t tag, Role role, Rank peer, const Secret& secret,
                     std::chrono::milliseconds limit = {});
    /// One that others have made.
    void add(Connection& connection) { all_.push_back(connection.shared_from_this()); }
    void drop(Connection& connection);
    void close();

    const std::vector<std::shared_ptr<Connection>>& all() const { return all_; }
    /// nullptr: there is none.
    const std::shared_ptr<Connection>& directory() const { return directory_; }
    const std::shared_ptr<Connection>& parent() const { return parent_; }
    /// Any connection with the peer, also one of the tree or one that the peer made.
    Connection* any(Rank peer) const;
    /// Whether there is one of the tree, open or not yet.
    bool in_tree(Rank peer) const;
    /// The same over a Unix socket.
    Connection* pair(Rank peer) const;
    /// One that the peer has welcomed: what is sent before may be lost with it.
    Connection* welcomed(Rank peer) const;

    /// To parent and children, but `from`.
    void pass_on(const Message& message, Rank from);
    void flush();

  private:
    Service& service_;
    ConnectionUser& user_;
    std::vector<std::shared_ptr<Connection>> all_;
    std::shared_ptr<Connection> directory_, parent_;
    std::shared_ptr<Listener> local_, remote_;
};

inline bool is_tree(const Connection& c) {
    return c.role == Role::parent || c.role == Role::child;
}

}  // namespace tutti::bootstrap
