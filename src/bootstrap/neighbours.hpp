// The connections of a member: to the rendezvous, to its parent and children in the tree, and pair connections; and the
// listeners at which others connect to it.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/connection.hpp"
#include "bootstrap/listener.hpp"

namespace tutti::bootstrap {

/// Owned by its membership; for the service thread alone.
class Neighbours {
  public:
    /// user: is told of what happens on all connections.
    Neighbours(Service& service, ConnectionUser& user) : service_(service), user_(user) {}

    /// Open a listener on a Unix socket, or at `here`, and return its address. secret: peers have to prove that they
    /// have it. self: this rank, the listener's tag. Throw as Listener::open().
    Address listen_locally(const Secret& secret, Rank self);
    Address listen_remotely(const Address& here, const Secret& secret, Rank self);
    /// Closes the listener that listen_remotely() opened.
    void stop_listening_remotely();
    /// Sets the function that is called when the listeners have been out of descriptors for a second.
    void on_starved(const std::function<void()>& starved);

    /// Starts to connect. role, peer: the new connection's. tag, limit: see Connection::dial(). A connection to the
    /// directory or a parent becomes directory() or parent(). nullptr, with errno set, if it failed at once.
    Connection* dial(const Address& address, std::uint64_t tag, Role role, Rank peer, const Secret& secret,
                     std::chrono::milliseconds limit = {});
    /// Adds a connection that a peer has made.
    void add(Connection& connection) { all_.push_back(connection.shared_from_this()); }
    void drop(Connection& connection);
    void close();

    const std::vector<std::shared_ptr<Connection>>& all() const { return all_; }
    /// nullptr if there is none, as below.
    const std::shared_ptr<Connection>& directory() const { return directory_; }
    const std::shared_ptr<Connection>& parent() const { return parent_; }
    /// Any connection with the peer, of the tree or not, whichever end made it.
    Connection* any(Rank peer) const;
    /// Whether there is a tree connection with the peer, open or still being made.
    bool in_tree(Rank peer) const;
    /// Any connection with the peer over a Unix socket.
    Connection* pair(Rank peer) const;
    /// An open connection with the peer on which both ends have exchanged Attach and Welcome. The peer may close it
    /// before that, and lose what was sent.
    Connection* welcomed(Rank peer) const;

    /// Sends a message to the parent and all children except `from`.
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
