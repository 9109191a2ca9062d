// One authenticated connection: a non-blocking socket, the handshake, and the frames after it. Lives on the service
// thread.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "bootstrap/frame.hpp"
#include "bootstrap/service.hpp"
#include "bootstrap/silence.hpp"
#include "bootstrap/socket_io.hpp"

namespace tutti::bootstrap {

class Connection;

/// Why a connection ended.
struct Loss {
    int error = 0;              // errno, if there was one
    bool wrong_secret = false;  // the other side could not prove that it has our secret
    const char* text = "";      // valid until closed() returns
    bool late = false;          // its host has taken the connection, but its process did nothing with it
    bool ended = false;         // the other side has closed it, or its process has ended
    bool silent = false;        // its host does not answer, or can't be reached
};

/// Whoever a connection belongs to. After closed() the connection is dead; it is not called when the user closes it
/// himself.
class ConnectionUser {
  public:
    virtual ~ConnectionUser() = default;
    virtual void opened(Connection& connection) = 0;  // the other side has proven itself
    virtual void received(Connection& connection, Message& message, Fd descriptor) = 0;
    virtual void closed(Connection& connection, const Loss& loss) = 0;
    /// This process could not go on with what came over a connection, or was to be sent: it has no memory, or the like.
    /// closed() follows; or it was that which could not go on.
    virtual void failed(Connection&, const Error&) {}
};

/// What the other end of a connection is to the membership that holds it.
enum class Role { unknown, directory, parent, child, pair };

/// A socket that has done with frames: what it goes on with.
struct Detached {
    Fd fd;
    Bytes unread;  // what came behind the last frame
    Secret outgoing, incoming;
};

class Connection : public Watcher, public std::enable_shared_from_this<Connection> {
  public:
    /// Connects to address. nullptr and errno if that failed at once. limit: how long the other side has to answer and
    /// to prove itself; 0: a few seconds.
    static std::shared_ptr<Connection> dial(Service& service, ConnectionUser& user, const Address& address,
                                            const Secret& secret, std::uint64_t tag,
                                            std::chrono::milliseconds limit = {});
    /// The accepting side. nullptr if the kernel has no room for it.
    static std::shared_ptr<Connection> answer(Service& service, ConnectionUser& user, Fd fd, const Address& listener,
                                              const Secret& secret, std::uint64_t tag);
    ~Connection() override;

    void send(const Message& message, std::shared_ptr<Fd> descriptor = nullptr);
    /// As encode() made it.
    void send(Bytes frame, std::shared_ptr<Fd> descriptor = nullptr);
    void flush() override;
    void close();
    /// Ends the connection, but not its socket. No fd if something that was sent is not in the kernel yet: then the
    /// socket has ended, too.
    Detached detach();
    bool is_open() const { return state_ == State::open; }
    bool is_closed() const { return state_ == State::closed; }
    const Address& address() const { return address_; }
    /// The shortest one so far of an open connection; 0 of a Unix socket.
    std::chrono::microseconds round_trip() const { return bootstrap::round_trip(fd_.get()); }

    /// Ends the time limit for authentication: its user knows who it is.
    void recognise();
    bool is_recognised() const { return recognised_; }

    // The user's notes.
    Role role = Role::unknown;
    Rank peer = -1;
    bool welcome = false;  // the responder has answered our first frame

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
    int refused_ = 0;  // errno of a write that failed: the kernel tells it once
    bool recognised_ = false;
    std::optional<Service::Timer> limit_;
    Silence silence_;  // of TCP
};

/// Accepts connections for a user. Unauthenticated peers are capped and have two seconds; running out of descriptors
/// costs nobody a core.
class Listener : public Watcher, public std::enable_shared_from_this<Listener> {
  public:
    /// The address may have port 0; address() has the real one. Throws tuttiSystemError.
    static std::shared_ptr<Listener> open(Service& service, ConnectionUser& user, const Address& address,
                                          const Secret& secret, std::uint64_t tag);
    /// The same for a socket that listens already.
    static std::shared_ptr<Listener> adopt(Service& service, ConnectionUser& user, Fd fd, const Address& address,
                                           const Secret& secret, std::uint64_t tag);
    ~Listener() override;
    const Address& address() const { return address_; }
    void close();
    /// Called when no descriptor was to be had for a second.
    std::function<void()> starved;

  private:
    Listener(Service& service, ConnectionUser& user, const Secret& secret, std::uint64_t tag)
        : service_(service), user_(&user), secret_(secret), tag_(tag) {}
    void ready(std::uint32_t events) override;
    void admit(Fd fd);
    std::size_t unauthenticated();
    bool may_drop() const;
    bool drop_oldest_unauthenticated();
    Listener& fullest();
    void pause();
    void starve();

    Service& service_;
    ConnectionUser* user_;
    struct Stranger {
        std::weak_ptr<Connection> connection;
        Deadline since;
    };
    std::deque<Stranger> unauthenticated_;  // the oldest first
    Secret secret_;
    std::uint64_t tag_;
    Fd fd_;
    Address address_;
    std::optional<Service::Timer> paused_;
    std::optional<Deadline> starving_since_;
};

}  // namespace tutti::bootstrap
