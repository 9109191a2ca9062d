// One authenticated connection: a non-blocking socket, the handshake, and the frames after it. For the service thread
// alone.
#pragma once

#include <deque>
#include <memory>

#include "bootstrap/frame.hpp"
#include "bootstrap/service.hpp"
#include "bootstrap/silence.hpp"
#include "bootstrap/socket_io.hpp"

namespace tutti::bootstrap {

class Connection;

/// Why a connection ended.
struct Loss {
    int error = 0;              // errno, if there was one
    bool wrong_secret = false;  // the peer could not prove that it has our secret
    const char* text = "";      // valid until closed() returns
    bool late = false;          // the peer's host took the connection, but its process did not answer in time
    bool ended = false;         // the peer's end closed or reset it; a reset may be the network's (may_heal())
    bool silent = false;        // the peer's host does not answer, or can't be reached

    /// A caller that speaks Tutti's protocol was not let in: which address it called from (none: a process of this
    /// host), and why. nullptr: there was none.
    Address caller = {};
    const char* turned_away = nullptr;
};

/// The owner of a connection. Called on the service thread. closed() says that the connection is lost; it is not called
/// if the user itself calls Connection::close().
class ConnectionUser {
  public:
    virtual ~ConnectionUser() = default;
    virtual void opened(Connection& connection) = 0;  // the peer has proven that it has the secret
    virtual void received(Connection& connection, Message& message, Fd descriptor) = 0;
    virtual void closed(Connection& connection, const Loss& loss) = 0;
    /// An error of this process, such as lack of memory, while it handled what came or was to be sent. closed()
    /// follows, unless closed() itself has thrown.
    virtual void failed(Connection&, const Error&) {}
};

/// What the peer of a connection is to the membership that owns the connection.
enum class Role { unknown, directory, parent, child, pair };

/// The socket of a connection whose user goes on without frames, with its keys.
struct Detached {
    Fd fd;
    Bytes unread;  // bytes that came after the last frame
    Secret outgoing, incoming;
};

/// Owned by its user, and by the service while its socket is open. For the service thread alone.
class Connection : public Watcher, public std::enable_shared_from_this<Connection> {
  public:
    /// Starts to connect to address. tag: see Handshake. limit: how long the peer has to answer and to prove that it
    /// has the secret; 0 for the default of a few seconds. nullptr, with errno set, if it failed at once.
    static std::shared_ptr<Connection> dial(Service& service, ConnectionUser& user, const Address& address,
                                            const Secret& secret, std::uint64_t tag,
                                            std::chrono::milliseconds limit = {});
    /// Takes an accepted socket. nullptr, with errno set, if the kernel refuses to poll it.
    static std::shared_ptr<Connection> answer(Service& service, ConnectionUser& user, Fd fd, const Address& listener,
                                              const Secret& secret, std::uint64_t tag);
    ~Connection() override;

    /// Queues a message, which is written at the end of this round of events. Does nothing unless the connection is
    /// open. descriptor: travels with the message; Unix sockets only.
    void send(const Message& message, std::shared_ptr<Fd> descriptor = nullptr);
    /// The same for a frame that encode() made.
    void send(Bytes frame, std::shared_ptr<Fd> descriptor = nullptr);
    /// Writes what the socket takes.
    void flush() override;
    /// Flushes, for some 50 ms at most, and closes.
    void close();
    /// Ends the connection, but keeps its socket. If something that was sent is not in the kernel yet, it closes the
    /// socket and returns no fd.
    Detached detach();
    bool is_open() const { return state_ == State::open; }
    bool is_closed() const { return state_ == State::closed; }
    /// Whether its loss may be a reset by the network between two hosts rather than the end of the peer.
    bool may_heal(const Loss& loss) const;
    const Address& address() const { return address_; }
    /// The shortest round trip that the kernel has measured so far; 0 for a Unix socket.
    std::chrono::microseconds round_trip() const { return bootstrap::round_trip(fd_.get()); }

    /// Ends the time limit for authentication. The user calls it once it knows which rank the peer is.
    void recognise();
    bool is_recognised() const { return recognised_; }

    // Kept here for the user.
    Role role = Role::unknown;
    Rank peer = -1;        // -1 until known, and for the directory
    bool welcome = false;  // the two ends have exchanged the first frame and its answer

  private:
    enum class State { connecting, hello, proof, open, closed };

    Connection(Service& service, ConnectionUser& user, Fd fd, const Address& address, bool initiator,
               const Secret& secret, std::uint64_t tag);
    static std::shared_ptr<Connection> start(std::shared_ptr<Connection> made, std::uint32_t events,
                                             std::chrono::milliseconds limit);
    void ready(std::uint32_t events) override;
    void failed(const Error& error) override;
    void finish_connecting();
    void listen_for_silence();
    void receive();
    void digest();
    std::size_t digest_handshake(View bytes);
    bool digest_frame(View bytes);
    void enqueue(View bytes, std::shared_ptr<Fd> descriptor = nullptr);
    void attempt(Errand work);
    void lose(const Loss& loss);
    void lose(const char* why) { lose(Loss{0, false, why}); }
    Loss turned_away(Loss loss, const char* why) const;
    void lose_errno(int error);

    Service& service_;
    ConnectionUser* user_;
    Fd fd_;
    Address address_;
    State state_ = State::connecting;
    Handshake handshake_;
    Seal sealing_, opening_;
    Incoming incoming_;
    Outgoing outgoing_;
    bool waits_to_write_ = false;
    bool flush_asked_ = false;
    int refused_ = 0;  // errno of a write that failed, which the kernel reports only once
    bool recognised_ = false;
    std::optional<Service::Timer> limit_;  // ends the connection unless the peer proves itself in time
    Silence silence_;                      // used for TCP only
};

}  // namespace tutti::bootstrap
